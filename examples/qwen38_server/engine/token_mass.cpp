// SPDX-License-Identifier: Apache-2.0
#include "engine/token_mass.hpp"

#include <algorithm>
#include <cstddef>

namespace qwen38::engine {
namespace {

constexpr std::size_t sorted_below = 32;  // a sort is quicker than further partitions

std::uint64_t sum(std::span<candidate const> candidates) {
  std::uint64_t total = 0;
  for (candidate const& one : candidates) total += one.mass;
  return total;
}

}  // namespace

mass_point find_mass(std::span<candidate> candidates, std::uint64_t point) {
  std::uint64_t before = 0;
  while (candidates.size() > sorted_below) {
    auto const middle = candidates.begin() + std::ssize(candidates) / 2;
    std::nth_element(candidates.begin(), middle, candidates.end(), comes_before);
    auto const likelier = candidates.first(candidates.size() / 2);
    std::uint64_t const through = before + sum(likelier);
    if (point < through) {
      candidates = likelier;
    } else {
      before = through;
      candidates = candidates.subspan(likelier.size());
    }
  }
  std::sort(candidates.begin(), candidates.end(), comes_before);
  for (candidate const& one : candidates) {
    before += one.mass;
    if (point < before) return {one.id, before};
  }
  return {candidates.back().id, before};
}

}  // namespace qwen38::engine
