// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "qpn/config.hpp"
#include "qpn/detail/alignment.hpp"
#include "qpn/detail/candidate_key.hpp"
#include "qpn/status.hpp"

// Lists of the best columns of a row, as qpn::gemm writes them, and their merge where a matrix is
// cut into shards of columns: ranks gather the lists, and each gets the list of the whole matrix,
// bit for bit, in whatever order the shards come. On the host here, on a GPU in candidates.cuh.
//
// A list has the larger values first, the lower id first among equal values, NaN before every
// number; -0 counts as +0. Places beyond the number of columns that may be chosen have id -1 and
// value -infinity.

namespace qpn {

/// Columns that a list can hold.
inline constexpr int max_candidates = 64;

/// Lists that a merge takes, one for each shard.
inline constexpr int max_candidate_shards = 1024;

/// Ids differ, but for -1. No result may lie in a list.
struct merge_candidates_args {
  std::int64_t m = 0;                  ///< rows; 0 does nothing
  int candidates = 0;                  ///< of a list: 1 to max_candidates
  int shards = 0;                      ///< 1 to max_candidate_shards
  std::int32_t const* ids = nullptr;   ///< [shards][m][candidates]
  float const* values = nullptr;       ///< [shards][m][candidates]
  std::int32_t* merged_ids = nullptr;  ///< [m][candidates]
  float* merged_values = nullptr;      ///< [m][candidates], or null
};

namespace detail {

[[nodiscard]] inline status check_merge_candidates(merge_candidates_args const& args) noexcept {
  if (args.candidates < 1 || args.candidates > max_candidates || args.shards < 1 ||
      args.shards > max_candidate_shards || args.m < 0 ||
      args.m > (std::numeric_limits<std::int32_t>::max)() / args.candidates / args.shards) {
    return {status_code::invalid_shape, 0,
            "merge_candidates: needs 1 to 64 candidates, 1 to 1024 shards and fewer than 2^31 "
            "entries"};
  }
  if (args.m == 0) return {};
  if (args.ids == nullptr || args.values == nullptr || args.merged_ids == nullptr) {
    return {status_code::invalid_value, 0,
            "merge_candidates: ids, values and merged_ids must not be null"};
  }
  if (!is_aligned_to(4, args.ids) || !is_aligned_to(4, args.values) ||
      !is_aligned_to(4, args.merged_ids) || !is_aligned_to(4, args.merged_values)) {
    return {status_code::misaligned, 0, "merge_candidates: ids and values must be 4-byte aligned"};
  }
  return {};
}

inline constexpr int merge_candidates_threads = 128;

/// The entries of all lists: one thread each.
[[nodiscard]] QPN_HD constexpr std::int64_t merge_entries(
    merge_candidates_args const& args) noexcept {
  return args.m * args.candidates * args.shards;
}

/// Each thread finds the place of one entry in the merged list: how many come before it. Of equal
/// keys (places without a candidate, if ids differ) that of the lower shard comes first, so that
/// every place is taken by one entry.
template <class Lane>
QPN_HD void merge_candidates_program(Lane& lane, merge_candidates_args const& args) noexcept {
  std::int64_t const entry = std::int64_t{lane.block()} * merge_candidates_threads + lane.thread();
  if (entry >= merge_entries(args)) return;
  std::int64_t const of_shard = args.m * args.candidates;
  auto const key_at = [&](std::int64_t at) {
    std::int32_t const id = lane.load(args.ids + at);
    return id < 0 ? no_candidate
                  : candidate_key(lane.load(args.values + at), static_cast<std::uint32_t>(id));
  };
  std::uint64_t const key = key_at(entry);
  std::int64_t const shard = entry / of_shard;
  std::int64_t const row = entry % of_shard / args.candidates;
  int place = static_cast<int>(entry % args.candidates);
  for (int other = 0; other < args.shards && place < args.candidates; ++other) {
    if (other == shard) continue;
    std::int64_t const list = other * of_shard + row * args.candidates;
    int before = 0;  // keys of the list that come before, found by halving
    int end = args.candidates;
    while (before < end) {
      int const middle = (before + end) / 2;
      std::uint64_t const there = key_at(list + middle);
      bool const is_before = there > key || (there == key && other < shard);
      before = is_before ? middle + 1 : before;
      end = is_before ? end : middle;
    }
    place += before;
  }
  if (place >= args.candidates) return;
  std::int64_t const to = row * args.candidates + place;
  lane.store(args.merged_ids + to, candidate_id(key));
  if (args.merged_values != nullptr) lane.store(args.merged_values + to, candidate_value(key));
}

/// A thread of a program whose threads do not talk to each other, on the host.
struct host_lane {
  int block_index;
  int thread_index;

  [[nodiscard]] QPN_HD int block() const noexcept { return block_index; }
  [[nodiscard]] QPN_HD int thread() const noexcept { return thread_index; }
  template <class T>
  [[nodiscard]] QPN_HD T load(T const* p) const noexcept {
    return *p;
  }
  template <class T>
  QPN_HD void store(T* p, T value) const noexcept {
    *p = value;
  }
};

}  // namespace detail

/// The best candidates of each row over all shards' lists: what one gemm over all columns would
/// have listed. Host memory.
/// @return invalid_shape: candidates, shards or the number of entries out of range; invalid_value:
///         null pointers; misaligned
[[nodiscard]] inline status merge_candidates(merge_candidates_args const& args) noexcept {
  status const checked = detail::check_merge_candidates(args);
  if (!checked.ok()) return checked;
  constexpr int threads = detail::merge_candidates_threads;
  for (std::int64_t entry = 0; entry < detail::merge_entries(args); ++entry) {
    detail::host_lane lane{static_cast<int>(entry / threads), static_cast<int>(entry % threads)};
    detail::merge_candidates_program(lane, args);
  }
  return {};
}

}  // namespace qpn
