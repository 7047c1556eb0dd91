// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/rms_norm.hpp"

namespace qwen38::ops::cuda {

/// What follows a sum over ranks: y = x * rsqrt(mean(x^2) + eps) * (1 + w), as rms_norm_params has
/// it, bit for bit; nothing where w is null.
struct following_norm {
  float const* w = nullptr;
  float eps = 0;
  output_rows y;
};

/// x += (term(0, i) + term(1, i) + ...), element by element, added in that order; then the norm.
template <class Lane, class Term>
QPN_HD void add_terms(Lane& lane, int ranks, float* x, std::int64_t cols,
                      following_norm const& then, std::int64_t row, Term const& term) {
  for (std::int64_t i = lane.thread(); i < cols; i += rms_norm_params::threads) {
    float sum = term(0, i);
    for (int rank = 1; rank < ranks; ++rank) sum += term(rank, i);
    lane.store(x + i, lane.load(x + i) + sum);
  }
  // Each thread reads again what it wrote itself.
  if (then.w != nullptr) rms_norm_row(lane, x, then.w, then.eps, cols, then.y, row);
}

/// Terms that lie side by side in the device's own memory, one CTA a row.
struct rank_sum_params {
  static constexpr int threads = rms_norm_params::threads;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = rms_norm_params::shared_bytes;

  float const* terms = nullptr;  ///< [ranks][rows][cols]
  int ranks = 0;
  float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  following_norm then;

  [[nodiscard]] std::int64_t blocks() const { return rows; }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, rank_sum_params const& p) {
  std::int64_t const row = lane.block();
  float const* const terms = p.terms + row * p.cols;
  add_terms(
      lane, p.ranks, p.x + row * p.x_stride, p.cols, p.then, row,
      [&](int rank, std::int64_t i) { return lane.load(terms + rank * p.rows * p.cols + i); });
}

}  // namespace qwen38::ops::cuda
