// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/peer_wait.hpp"
#include "ops/cuda/rank_sum.hpp"

namespace qwen38::ops::cuda {

/// x += (rank 0's partial + rank 1's + ...) on every rank in one step: each stores its row into the
/// inboxes of the others, raises its flags, waits for theirs and adds up. One CTA for a row of a
/// rank.
///
/// An inbox has two halves that a row's meetings take in turns. A half is written again two
/// meetings later, after a flag of the meeting in between, which its owner raised when it had read
/// the half: so there is no barrier at the end.
///
/// All CTAs must be resident: they wait for each other. A grid has one rank, or all (the rank is
/// then a dimension of the grid), for ranks that share a GPU.
struct peer_reduce_params {
  static constexpr int threads = row_threads;
  static constexpr int min_blocks = 1;  // 32 registers would spill
  static constexpr int shared_bytes = rms_norm_params::shared_bytes + peer_wait_bytes;
  static constexpr bool blocks_meet = true;

  struct rank_rows {
    float const* partial = nullptr;
    float* x = nullptr;
    float const* norm_w = nullptr;  ///< null: no norm follows
    void* y = nullptr;
    float* inbox = nullptr;  ///< [2][ranks][inbox_rows][inbox_cols], written by the others
    peer_flags flags;
  };
  rank_rows of[max_peers];  ///< of other ranks than the grid's: inbox and flags
  int ranks = 0;
  int first_rank = 0;  ///< of the grid
  int grid_ranks = 1;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;  ///< of the grid
  std::int64_t cols = 0;
  std::int64_t partial_stride = 0;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  bool y_is_half = false;
  float eps = 0;
  std::int64_t inbox_rows = 0;
  std::int64_t inbox_cols = 0;
  peer_guard guard;

  [[nodiscard]] std::int64_t blocks() const { return rows * grid_ranks; }
  [[nodiscard]] QPN_HD std::int64_t place(std::uint64_t epoch, int from, std::int64_t row) const {
    return ((static_cast<std::int64_t>(epoch & 1) * ranks + from) * inbox_rows + row) * inbox_cols;
  }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, peer_reduce_params const& p) {
  int const rank = p.first_rank + lane.block() % p.grid_ranks;
  std::int64_t const row = p.first_row + lane.block() / p.grid_ranks;
  peer_reduce_params::rank_rows const& own = p.of[rank];
  float const* const partial = own.partial + row * p.partial_stride;
  std::uint64_t const epoch = lane.load(own.flags.epochs + row) + 1;
  std::int64_t const sent = p.place(epoch, rank, row);
  row_part const part = load_part(lane, partial, p.cols);
  auto const send = [&](std::int64_t i, float value) {
    for (int other = 0; other < p.ranks; ++other) {
      if (other != rank) lane.store(p.of[other].inbox + sent + i, value);
    }
  };
  QPN_UNROLL
  for (int j = 0; j < row_part::elements; ++j) {
    std::int64_t const i = lane.thread() + j * row_threads;
    if (i < p.cols) send(i, part.v[j]);
  }
  for (std::int64_t i = lane.thread() + row_part::columns; i < p.cols; i += row_threads) {
    send(i, lane.load(partial + i));
  }
  lane.sync_block_for_release();  // of the row in the inboxes, and of the epoch that all have read
  if (lane.thread() < p.ranks && lane.thread() != rank) {
    lane.store_release_system(p.of[lane.thread()].flags.done + rank * p.inbox_rows + row, epoch);
  }
  if (lane.thread() == 0) lane.store(own.flags.epochs + row, epoch);
  sum_target const target = take_target(lane, own.x + row * p.x_stride, p.cols, own.norm_w);
  bool const came =
      wait_for_peers(lane, own.flags.done, p.inbox_rows, row, epoch, p.guard, rank, p.ranks,
                     rms_norm_params::shared_bytes, [](int) { return true; });
  if (!came) return;
  following_norm const then{own.norm_w, p.eps, {own.y, p.y_stride, p.y_is_half}};
  add_terms(lane, p.ranks, target, p.cols, then, row, [&](int from, std::int64_t i) {
    return from == rank ? lane.load(partial + i)
                        : lane.load_volatile(own.inbox + p.place(epoch, from, row) + i);
  });
}

}  // namespace qwen38::ops::cuda
