// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/candidates.hpp>

#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// qpn::merge_candidates as a kernel of the backend's.
struct merge_lists_params {
  static constexpr int threads = qpn::detail::merge_candidates_threads;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  qpn::merge_candidates_args lists;  ///< checked

  [[nodiscard]] std::int64_t blocks() const {
    return divide_up(qpn::detail::merge_entries(lists), threads);
  }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, merge_lists_params const& p) {
  qpn::detail::merge_candidates_program(lane, p.lists);
}

}  // namespace qwen38::ops::cuda
