// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace qwen38::engine {

/// A token that may be drawn. Mass is in units of 2^-44 of the most likely token's, so that sums
/// are exact and the same in any order.
struct candidate {
  float logit = 0;
  std::int32_t id = 0;
  std::uint64_t mass = 0;
};

inline constexpr std::uint64_t full_mass = std::uint64_t{1} << 44;
/// So many tokens of full_mass still add up in 64 bits.
inline constexpr std::size_t max_candidates = std::size_t{1} << 19;

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

}  // namespace qwen38::engine
