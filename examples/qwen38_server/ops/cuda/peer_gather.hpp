// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/peer_wait.hpp"

namespace qwen38::ops::cuda {

/// Row r of every rank's source becomes row r of each rank's target, where the words of a rank
/// begin at its number times rank_stride; the same of a second pair, if there is one. A rank
/// without a target takes nothing. Who has one says so first, since readers of what it held are
/// done by then. One CTA for a row of a rank; all must be resident, as for peer_reduce_params.
struct peer_gather_params {
  static constexpr int threads = 1024;
  static constexpr int min_blocks = 2;
  static constexpr int shared_bytes = peer_wait_bytes;
  static constexpr bool blocks_meet = true;

  static constexpr int max_parts = 2;

  struct rank_rows {
    std::uint32_t const* source[max_parts] = {};
    std::uint32_t* target[max_parts] = {};
    peer_flags flags;
  };
  rank_rows of[max_peers];  ///< of other ranks than the grid's: target and flags
  int parts = 1;            ///< pairs of source and target
  int ranks = 0;
  int first_rank = 0;
  int grid_ranks = 1;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t words = 0;  ///< of a row of a source, 4 bytes each
  std::int64_t source_stride = 0;
  std::int64_t target_stride = 0;  ///< of rows
  std::int64_t rank_stride = 0;    ///< from one rank's words to the next in a target's row
  std::int64_t flag_rows = 0;
  peer_guard guard;

  [[nodiscard]] std::int64_t blocks() const { return rows * grid_ranks; }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, peer_gather_params const& p) {
  int const rank = p.first_rank + lane.block() % p.grid_ranks;
  std::int64_t const row = p.first_row + lane.block() / p.grid_ranks;
  int const thread = lane.thread();
  peer_gather_params::rank_rows const& own = p.of[rank];
  std::uint64_t const epoch = lane.load(own.flags.epochs + row) + 1;
  std::int64_t const own_flag = rank * p.flag_rows + row;
  bool const has_peer = thread < p.ranks && thread != rank;
  if (has_peer && own.target[0] != nullptr) {
    lane.store_release_system(p.of[thread].flags.ready + own_flag, epoch);
  }
  auto const takes = [&p](int other) { return p.of[other].target[0] != nullptr; };
  bool const came = wait_for_peers(lane, own.flags.ready, p.flag_rows, row, epoch, p.guard, rank,
                                   p.ranks, 0, takes);
  std::int64_t const from = row * p.source_stride;
  std::int64_t const to = row * p.target_stride + rank * p.rank_stride;
  for (int part = 0; came && part < p.parts; ++part) {
    for (std::int64_t i = thread; i < p.words; i += peer_gather_params::threads) {
      std::uint32_t const word = lane.load(own.source[part] + from + i);
      for (int other = 0; other < p.ranks; ++other) {
        if (takes(other)) lane.store(p.of[other].target[part] + to + i, word);
      }
    }
  }
  lane.sync_block_for_release();  // of the words, and of the epoch that all have read
  if (thread == 0) lane.store(own.flags.epochs + row, epoch);
  if (!came) return;
  if (has_peer && takes(thread)) {
    lane.store_release_system(p.of[thread].flags.done + own_flag, epoch);
  }
  if (own.target[0] == nullptr) return;
  static_cast<void>(wait_for_peers(lane, own.flags.done, p.flag_rows, row, epoch, p.guard, rank,
                                   p.ranks, 0, [](int) { return true; }));
}

}  // namespace qwen38::ops::cuda
