// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/ranked_id.hpp"
#include "ops/token_choice.hpp"

namespace qwen38::ops::cpu {

/// A token that may be drawn.
struct candidate {
  float logit = 0;
  std::int32_t id = 0;
  std::uint64_t mass = 0;
};

/// The fixed order of all filters and sums: likelier tokens first, of equal ones the lower id.
[[nodiscard]] constexpr bool comes_before(candidate const& a, candidate const& b) noexcept {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// The token at a point of the cumulative mass, and the mass up to and including it.
struct mass_point {
  std::int32_t id = 0;
  std::uint64_t through = 0;
};

/// The candidate whose share of the cumulative mass, summed in the order of comes_before, holds
/// `point`: before <= point < through. Expected time O(n), and no sorting: `candidates` is partly
/// reordered. point: less than the sum of all masses.
[[nodiscard]] mass_point find_mass(std::span<candidate> candidates, std::uint64_t point);

/// Chooses from a row as token_choice says; the logit with it. A logit that is no number or
/// +infinity is chosen before all others, so that it shows; -infinity only where there is nothing
/// else. id -1 of an empty row. candidates: working memory.
[[nodiscard]] ranked_id choose_token(std::span<float const> logits, row_choice const& choice,
                                     std::vector<candidate>& candidates);

}  // namespace qwen38::ops::cpu
