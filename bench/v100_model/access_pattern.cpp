// SPDX-License-Identifier: Apache-2.0
#include "access_pattern.hpp"

#include <algorithm>
#include <set>

namespace qpn::bench::v100 {

namespace {

constexpr std::uint64_t line_bytes = 128;
constexpr std::uint64_t sector_bytes = 32;
constexpr std::uint64_t bank_bytes = 4;
constexpr std::uint64_t banks = 32;

/// Calls visit(first lane, last lane) for each phase.
template <class Visit>
void for_each_phase(warp_access const& access, Visit visit) {
  int const lanes = std::min(detail::warp_lanes, static_cast<int>(line_bytes) / access.bytes);
  for (int lane = 0; lane < detail::warp_lanes; lane += lanes) visit(lane, lane + lanes);
}

/// The blocks of `size` bytes that the lanes [from, to) touch.
std::set<std::uint64_t> touched(warp_access const& access, int from, int to, std::uint64_t size) {
  std::set<std::uint64_t> blocks;
  for (int lane = from; lane < to; ++lane) {
    std::uint64_t const first = access.address[static_cast<std::size_t>(lane)];
    if (first == warp_access::off) continue;
    std::uint64_t const last = first + static_cast<std::uint64_t>(access.bytes) - 1;
    for (std::uint64_t block = first / size; block <= last / size; ++block) blocks.insert(block);
  }
  return blocks;
}

}  // namespace

access_cost global_cost(warp_access const& access) {
  access_cost cost;
  for_each_phase(access, [&](int from, int to) {
    cost.wavefronts += static_cast<int>(touched(access, from, to, line_bytes).size());
  });
  cost.sectors = static_cast<int>(touched(access, 0, detail::warp_lanes, sector_bytes).size());
  return cost;
}

access_cost shared_cost(warp_access const& access) {
  access_cost cost;
  for_each_phase(access, [&](int from, int to) {
    std::array<int, banks> words{};
    for (std::uint64_t const word : touched(access, from, to, bank_bytes)) ++words[word % banks];
    int const busiest = *std::max_element(words.begin(), words.end());
    cost.wavefronts += busiest;
    cost.conflicts += std::max(0, busiest - 1);
  });
  return cost;
}

}  // namespace qpn::bench::v100
