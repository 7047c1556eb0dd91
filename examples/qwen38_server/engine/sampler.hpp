// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.hpp"
#include "ops/cpu/token_mass.hpp"
#include "ops/ranked_id.hpp"
#include "ops/token_choice.hpp"

namespace qwen38::engine {

/// Throws qwen38::error (invalid_argument) naming the first field that is out of range.
void check_sampling(sampling_params const& params);

/// The id of a token that a model chose. Throws like sampler::sample().
[[nodiscard]] std::int32_t checked_token(ops::ranked_id const& chosen);

/// Working memory, shared by the samplers of one thread.
struct sampler_scratch {
  std::vector<float> logits;
  std::vector<ops::cpu::candidate> candidates;
};

/// One request's choice of tokens. From a row of fp32 logits and the tokens before it, in this
/// order:
///
///     penalties of ids in the prompt or the output    ops::token_penalties
///     temperature < 1e-5: the id of the largest l, the lowest of equal ones
///     p = exp(l / temperature), normalised; then kept are
///     min_p: ids with p >= min_p * max p;  top_k: the first k ids;  top_p: the shortest beginning
///     with at least that share of the mass left, never empty; ids likelier first, then lower first
///     one draw from what is kept, by random_bits(seed, position)
///
/// Ids from valid_ids on are never chosen, nor those that a mask leaves out, nor, where asked, the
/// stop ids. All of it is as ops/token_choice.hpp says (an id less likely than 2^-44
/// of the likeliest has no mass), so the choice is a function of the row, the tokens and the
/// position alone, on any device.
class sampler {
 public:
  /// valid_ids: at most ops::max_candidates.
  sampler(sampling_params const& params, std::span<std::int32_t const> stop_ids,
          std::int32_t valid_ids);

  /// How a model may choose for this request, with the same result; null: it may not.
  [[nodiscard]] ops::token_choice const* choice(bool without_stop_ids) const noexcept;
  /// The ids that its penalties are of; none without penalties. Valid until the next id is added.
  [[nodiscard]] std::span<ops::token_count const> seen() const noexcept { return seen_; }

  void add_prompt(std::span<std::int32_t const> ids);
  /// The next token of the output.
  void add(std::int32_t id);

  /// logits: [>= valid_ids]. position: the absolute one of the token being chosen. mask: the ids
  /// that may be chosen, bit id % 32 of word id / 32, for all valid ids; empty: all. Throws
  /// qwen38::error (internal) for a logit that is no number or +infinity, and if no id is left.
  /// An id whose logit is -infinity is never chosen.
  [[nodiscard]] std::int32_t sample(std::span<float const> logits, std::int64_t position,
                                    bool without_stop_ids, std::span<std::uint32_t const> mask,
                                    sampler_scratch& scratch) const;

 private:
  /// Its count; one is added where the id is new.
  std::int32_t& count_of(std::int32_t id);

  ops::token_choice choice_;
  std::vector<std::int32_t> stop_ids_;
  std::int32_t valid_ids_;
  std::vector<ops::token_count> seen_;
  std::unordered_map<std::int32_t, std::size_t> places_;  // in seen_
};

}  // namespace qwen38::engine
