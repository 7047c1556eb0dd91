// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/round_costs.hpp"
#include "text/token_constraint.hpp"

namespace qwen38::engine {

inline constexpr int max_draft_tokens = 15;

/// How the next token is chosen. Order of application: repetition, frequency and presence
/// penalties; argmax if temperature < 1e-5; else temperature, min_p, top_k, top_p, one draw keyed
/// by (seed, absolute position).
struct sampling_params {
  float temperature = 1.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;  ///< 0: off
  float repetition_penalty = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::uint64_t seed = 0;
};

/// One generation, as every front end describes it: plain values, already validated against the
/// wire contract.
struct request {
  std::string id;                        ///< for logs and replies
  std::vector<std::int32_t> prompt_ids;  ///< at least one
  sampling_params sampling;
  std::int64_t max_tokens = 1;  ///< >= 1; prompt + max_tokens <= context, or submit() refuses
  std::int64_t min_tokens = 0;  ///< stop ids are not sampled before this many tokens
  int draft_tokens = 0;         ///< MTP depth k, 0 .. max_draft_tokens
  /// The depth of each round is chosen by what lately was accepted and what rounds cost
  /// (engine/depth_chooser.hpp); draft_tokens is the most.
  bool chooses_depth = false;
  std::vector<std::int32_t>
      stop_ids;  ///< end the text and are not printed; the model's eos ids among them
  std::vector<std::string> stop_strings;  ///< end the text; the match and what follows is dropped
  bool split_reasoning = false;           ///< chat: separate reasoning from content
  bool starts_in_reasoning = false;       ///< the prompt ended with an open <think>
  /// The language of the output, reasoning included; no grammar: any. A stop id that is a control
  /// token may come where the output is a text of it, and nowhere else; one that prints also where
  /// the output can go on with it. Where nothing else may come, stop ids come whatever min_tokens
  /// says; without stop ids the output ends there by itself.
  text::token_grammar grammar;
  /// Most tokens of reasoning before end_reasoning_id, which is chosen once they are spent; none:
  /// any number. Without effect unless the output starts in reasoning.
  std::optional<std::int64_t> thinking_budget;
  std::int32_t end_reasoning_id = -1;  ///< </think>; must be given with a budget
  /// The log probabilities of each token and of this many likeliest ones come with the output.
  std::optional<int> top_logprobs;
};

/// How likely the model found one token: ln of its share in the distribution of the model's logits
/// over all valid ids, before penalties, temperature and masks. A finite number.
struct token_logprob {
  std::int32_t id = 0;
  double logprob = 0;
  bool operator==(token_logprob const&) const = default;
};

struct token_logprobs {
  token_logprob chosen;
  std::vector<token_logprob> top;  ///< likeliest first, of equal ones the lower id
  bool in_reasoning = false;       ///< the token counts as reasoning
  bool operator==(token_logprobs const&) const = default;
};

enum class finish_reason {
  stop,
  length,
  cancelled,
  queue_timeout,  ///< no lane within engine_options::queue_timeout (503)
  deadline,       ///< not done within engine_options::request_timeout (504)
  failed,
};

/// Text that became final in one step, never part of a UTF-8 scalar, never part of a stop string.
struct output_delta {
  std::string reasoning;
  std::string content;
  std::vector<std::int32_t> ids;  ///< token ids emitted in this step (the stop id included)
  std::vector<token_logprobs> logprobs = {};  ///< of each of ids but a stop id, if asked for
};

struct usage_counts {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;  ///< accepted ids, the stop id included
  std::int64_t reasoning_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< prompt tokens whose state came from the prefix cache
};

struct speculation_counts {
  int draft_tokens = 0;        ///< k asked for and served
  bool chooses_depth = false;  ///< as the request does; draft_tokens is the most then
  std::int64_t rounds = 0;     ///< verify passes (plain decode steps for k = 0)
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::vector<std::int64_t> accepted_at;  ///< [k] drafts accepted at depth 1 .. k
  /// Rounds by the depth that was chosen for them, in the order of model::round_depths; all 0 where
  /// the request names its depth.
  std::array<std::int64_t, model::round_depths.size()> rounds_at = {};
  /// Tokens emitted per round, the round being one target pass. 0 if there was none.
  [[nodiscard]] double tau() const noexcept {
    return rounds > 0 ? 1.0 + static_cast<double>(accepted) / static_cast<double>(rounds) : 0.0;
  }
};

struct timing_ms {
  double queued = 0;
  double prefill = 0;
  double decode = 0;  ///< first token to last
};

struct result {
  finish_reason finish = finish_reason::stop;
  std::optional<std::string> stop_string;  ///< the stop string that ended the text
  std::string message;                     ///< one sentence for queue_timeout, deadline and failed
  usage_counts usage;
  speculation_counts speculation;
  timing_ms timing;
};

/// Receives one request's output. Called from the engine's thread: must return quickly and must not
/// throw.
class observer {
 public:
  virtual ~observer() = default;
  virtual void on_output(output_delta const& delta) = 0;
  /// Exactly once, last.
  virtual void on_finish(result const& outcome) = 0;
};

}  // namespace qwen38::engine
