// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/candidate_key.hpp>

#include "ops/cuda/lane_math.hpp"
#include "ops/ranked_id.hpp"

namespace qwen38::ops::cuda {

/// best[i] = the largest of lists[rank][i], in the order of ranked_key().
struct best_of_ranks_params {
  static constexpr int threads = 128;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  ranked_id const* lists = nullptr;  ///< [ranks][count]
  ranked_id* best = nullptr;         ///< [count]
  std::int64_t count = 0;
  int ranks = 0;

  [[nodiscard]] std::int64_t blocks() const { return divide_up(count, threads); }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, best_of_ranks_params const& p) {
  std::int64_t const i = std::int64_t{lane.block()} * best_of_ranks_params::threads + lane.thread();
  if (i >= p.count) return;
  ranked_id best;
  for (int rank = 0; rank < p.ranks; ++rank) {
    ranked_id const other = lane.load(p.lists + rank * p.count + i);
    if (ranked_key(other) > ranked_key(best)) best = other;
  }
  lane.store(p.best + i, best);
}

}  // namespace qwen38::ops::cuda
