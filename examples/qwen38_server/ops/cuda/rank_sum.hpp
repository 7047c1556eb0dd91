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

/// A row of x and what it is normed by, as far as a thread keeps it.
struct sum_target {
  float* x = nullptr;
  row_part part;
  row_part weight;
};

template <class Lane>
QPN_HD sum_target take_target(Lane& lane, float* x, std::int64_t cols, float const* w) {
  sum_target target{x, load_part(lane, x, cols), {}};
  if (w != nullptr) target.weight = load_part(lane, w, cols);
  return target;
}

/// x += (term(0, i) + term(1, i) + ...), element by element, added in that order; then the norm.
template <class Lane, class Term>
QPN_HD void add_terms(Lane& lane, int ranks, sum_target target, std::int64_t cols,
                      following_norm const& then, std::int64_t row, Term const& term) {
  float* const x = target.x;
  row_part sum = take_part(lane, cols, [&](std::int64_t i) { return term(0, i); });
  for (int rank = 1; rank < ranks; ++rank) {
    row_part const next = take_part(lane, cols, [&](std::int64_t i) { return term(rank, i); });
    QPN_UNROLL
    for (int j = 0; j < row_part::elements; ++j) sum.v[j] += next.v[j];
  }
  QPN_UNROLL
  for (int j = 0; j < row_part::elements; ++j) {
    std::int64_t const i = lane.thread() + j * row_threads;
    target.part.v[j] += sum.v[j];
    if (i < cols) lane.store(x + i, target.part.v[j]);
  }
  std::int64_t const rest = lane.thread() + row_part::columns;
  for (std::int64_t i = rest; i < cols; i += row_threads) {
    float of_all = term(0, i);
    for (int rank = 1; rank < ranks; ++rank) of_all += term(rank, i);
    lane.store(x + i, lane.load(x + i) + of_all);
  }
  // What is not in registers each thread reads again where it wrote it itself.
  if (then.w == nullptr) return;
  rms_norm_row(lane, target.part, x, target.weight, then.w, then.eps, cols, then.y, row);
}

/// Terms that lie side by side in the device's own memory, one CTA a row.
struct rank_sum_params {
  static constexpr int threads = row_threads;
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
      lane, p.ranks, take_target(lane, p.x + row * p.x_stride, p.cols, p.then.w), p.cols, p.then,
      row, [&](int rank, std::int64_t i) { return lane.load(terms + rank * p.rows * p.cols + i); });
}

}  // namespace qwen38::ops::cuda
