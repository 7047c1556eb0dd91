// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/lane_math.hpp"

// How kernels of several ranks meet: a rank stores into the memory of the others, which its GPU
// reaches as its own, then raises a flag there. A flag holds the number of the meeting, the epoch,
// and only grows, so that nothing has to be cleared and a graph can be replayed. Beside the
// operations of lane_math.hpp a lane has
//
//   sync_block_for_release()          sync_block(); what the CTA stored before it is seen by who
//                                     sees a later store_release_system() of one of its threads
//   store_release_system(p, v), load_acquire_system(p)    64 bits, between all GPUs and the host
//   nanoseconds()                     a clock
namespace qwen38::ops::cuda {

inline constexpr int max_peers = 8;

/// Words in host memory by which a group's kernels end when a rank is lost.
struct peer_guard {
  std::uint32_t const* stop = nullptr;  ///< not 0: nobody waits any longer
  /// [rank]: 0, or what was waited for in vain: 1 + that rank, with stopped_wait where `stop` said
  /// so.
  std::uint32_t* failures = nullptr;
  std::int64_t limit_ns = 0;  ///< the longest wait
};

inline constexpr std::uint32_t stopped_wait = 0x80000000U;

/// What every rank shows of itself.
struct peer_flags {
  std::uint64_t* epochs = nullptr;  ///< [rows] meetings so far, of this rank alone
  std::uint64_t* done = nullptr;    ///< [ranks][rows] raised by the others: their data is here
  std::uint64_t* ready = nullptr;   ///< [ranks][rows] raised by the others: they take data
};

/// Whether the flag of rank `other` comes to the epoch.
template <class Lane>
QPN_HD bool wait_for_flag(Lane& lane, std::uint64_t const* flag, std::uint64_t epoch,
                          peer_guard const& guard, int rank, int other) {
  constexpr std::uint32_t polls_per_look = 256;  // the words of the guard are far away
  std::int64_t start = 0;
  for (std::uint32_t poll = 1; lane.load_acquire_system(flag) < epoch; ++poll) {
    if (poll % polls_per_look != 0) continue;
    std::int64_t const now = lane.nanoseconds();
    if (poll == polls_per_look) start = now;
    bool const is_stopped = lane.load_volatile(guard.stop) != 0;
    if (!is_stopped && now - start <= guard.limit_ns) continue;
    std::uint32_t const waited_for = static_cast<std::uint32_t>(other) + 1;
    lane.store(guard.failures + rank, is_stopped ? stopped_wait | waited_for : waited_for);
    return false;
  }
  return true;
}

/// Shared memory of wait_for_peers().
inline constexpr int peer_wait_bytes = max_peers * int{sizeof(std::uint32_t)};

/// Thread `other` waits for that rank's flag, where it is wanted; then the CTA goes on together,
/// and what those ranks had stored is there. false: some did not come. Between two calls lies a
/// barrier.
template <class Lane, class Wanted>
QPN_HD bool wait_for_peers(Lane& lane, std::uint64_t const* flags, std::int64_t flag_rows,
                           std::int64_t row, std::uint64_t epoch, peer_guard const& guard, int rank,
                           int ranks, int shared_offset, Wanted wanted) {
  int const other = lane.thread();
  if (other < ranks) {
    bool const came =
        other == rank || !wanted(other) ||
        wait_for_flag(lane, flags + other * flag_rows + row, epoch, guard, rank, other);
    lane.shared_store(shared_offset + 4 * other, std::uint32_t{came ? 0U : 1U});
  }
  lane.sync_block();
  std::uint32_t missing = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    missing |= lane.template shared_load<std::uint32_t>(shared_offset + 4 * peer);
  }
  return missing == 0;
}

}  // namespace qwen38::ops::cuda
