// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace qpn::test {

inline constexpr int warp_lanes = 32;

/// Threads of the other CTAs of a cluster, for the shared memory that they store to: thread t is
/// first_peer_thread + t there.
inline constexpr int first_peer_thread = 1024;

/// Who does something, and when. Each CTA has a clock that ticks at its barriers: every sync_block,
/// and every sync_pair and sync_warp of any of its warps. What happens between two ticks bears the
/// same time.
struct lane_moment {
  int block = 0;
  int thread = 0;
  std::uint32_t now = 0;
  std::uint32_t block_start = 0;  ///< First time after the last sync_block.
  std::uint32_t pair_start =
      0;  ///< First time after the last sync_pair, or sync_block, of this pair.
  std::uint32_t warp_start = 0;  ///< First time after the last sync_warp of this warp.

  [[nodiscard]] bool same_pair(int other_thread) const {
    return other_thread / (2 * warp_lanes) == thread / (2 * warp_lanes);
  }
  [[nodiscard]] bool same_warp(int other_thread) const {
    return other_thread / warp_lanes == thread / warp_lanes;
  }

  /// A barrier has put what `other_thread` of this CTA did at `time` before this moment.
  [[nodiscard]] bool is_after(int other_thread, std::uint32_t time) const {
    return other_thread == thread || time < block_start ||
           (same_pair(other_thread) && time < pair_start) ||
           (same_warp(other_thread) && time < warp_start);
  }
};

}  // namespace qpn::test
