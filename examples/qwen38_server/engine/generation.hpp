// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/request.hpp"
#include "engine/sampler.hpp"
#include "text/text_stream.hpp"
#include "text/token_constraint.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::engine {

/// One request on its way from token to token, whatever model the logits come from: which id is
/// next, which text that makes, whether it is the last. Tokens are added one by one in their order,
/// so nothing here can depend on how many a round accepted.
class generation {
 public:
  /// valid_ids: of the model. `source` must outlive this object. Throws like text_stream.
  generation(request wanted, text::tokenizer const& source, std::int32_t valid_ids);

  [[nodiscard]] request const& wanted() const noexcept { return wanted_; }
  [[nodiscard]] std::int64_t prompt_tokens() const noexcept {
    return static_cast<std::int64_t>(wanted_.prompt_ids.size());
  }
  [[nodiscard]] std::int64_t completion_tokens() const noexcept { return completion_tokens_; }

  /// The prompt becomes history. Before the first sample().
  void begin() { sampler_.add_prompt(wanted_.prompt_ids); }

  /// Chooses the next token from a row of logits. Throws like sampler::sample().
  [[nodiscard]] std::int32_t sample(std::span<float const> logits, sampler_scratch& scratch);

  /// The ids that may come next, as sampler::sample() takes them; empty: all. Valid until the next
  /// call of a member that is not const.
  [[nodiscard]] std::span<std::uint32_t const> mask();

  /// How the model may choose the next tokens; null: sample() must.
  [[nodiscard]] ops::token_choice const* choice() const noexcept {
    bool const plain = !constraint_ && !wanted_.thinking_budget && !wanted_.top_logprobs;
    return plain ? sampler_.choice(completion_tokens_ < wanted_.min_tokens) : nullptr;
  }

  /// What the choice's penalties are of; valid until the next add().
  [[nodiscard]] std::span<ops::token_count const> seen() const noexcept { return sampler_.seen(); }

  /// The next token of the output; may end it. Not after the end.
  void add(std::int32_t id);

  /// Ends the request from outside. Without effect after the end.
  void end(finish_reason reason, std::string message = {});

  [[nodiscard]] bool ended() const noexcept { return ended_.has_value(); }

  /// The output since the last call.
  [[nodiscard]] output_delta take_delta();

  /// After the end: how it ended and the usage.
  [[nodiscard]] result outcome() const;

 private:
  void append(text::text_delta const& text);
  [[nodiscard]] bool must_end_reasoning() const;

  request wanted_;
  sampler sampler_;
  text::text_stream text_;
  std::int32_t valid_ids_;
  std::optional<text::token_constraint> constraint_;
  std::vector<std::uint32_t> mask_;
  std::optional<token_logprobs> logprobs_;  // of the token that sample() chose
  output_delta delta_;
  std::int64_t completion_tokens_ = 0;
  std::int64_t reasoning_tokens_ = 0;
  std::optional<finish_reason> ended_;
  std::string message_;
};

}  // namespace qwen38::engine
