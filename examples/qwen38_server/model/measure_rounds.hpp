// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "model/causal_lm.hpp"
#include "model/round_costs.hpp"

namespace qwen38::model {

struct measure_options {
  int untimed_rounds = 0;  ///< of each kind, first; 2 where the backend records rounds
  int lanes = 2;           ///< at most, beside one
  /// A live context is long from so many tokens on: below, noise is larger than what they cost.
  std::int64_t least_far = 2048;
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

/// Times rounds of a model that nothing runs on, all drafts rejected, for each of round_depths:
/// with one lane, with several, no more than fit one pass, and, where the model has a place for a
/// snapshot and room, with one lane and up to 8192 live tokens, whose pages hold what they happen
/// to. The quicker of two rounds counts, or one that takes longer than 50 ms. None where the model
/// has no MTP layer, or a lane does not hold the rounds. All lanes must begin anew afterwards.
[[nodiscard]] std::optional<round_costs> measure_rounds(causal_lm& lm,
                                                        measure_options const& options);

}  // namespace qwen38::model
