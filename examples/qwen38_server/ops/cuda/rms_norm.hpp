// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// y = x * rsqrt(mean(x^2) + eps) * (1 + w), one CTA a row.
struct rms_norm_params {
  static constexpr int threads = 1024;  // rows are long and few
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = threads / warp_size * int{sizeof(float)};

  float const* x = nullptr;
  std::int64_t x_stride = 0;
  float const* w = nullptr;
  float eps = 0;
  output_rows y;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  [[nodiscard]] std::int64_t blocks() const { return rows; }
};

/// One row of that, by a CTA of 1024 threads; its thread i % 1024 reads x[i].
template <class Lane>
QPN_HD void rms_norm_row(Lane& lane, float const* x, float const* w, float eps, std::int64_t cols,
                         output_rows const& y, std::int64_t y_row) {
  static_assert(rms_norm_params::threads == warp_size * warp_size);
  float sum = 0;
  for (std::int64_t i = lane.thread(); i < cols; i += rms_norm_params::threads) {
    float const value = lane.load(x + i);
    sum = lane.fma(value, value, sum);
  }
  sum = warp_sum(lane, sum);
  if (lane.thread() % warp_size == 0) lane.shared_store(lane.thread() / warp_size * 4, sum);
  lane.sync_block();
  sum = warp_sum(lane, lane.template shared_load<float>(lane.thread() % warp_size * 4));
  float const scale = 1.0F / lane.sqrt(sum / static_cast<float>(cols) + eps);
  for (std::int64_t i = lane.thread(); i < cols; i += rms_norm_params::threads) {
    store_value(lane, y, y_row, i, lane.load(x + i) * scale * (1.0F + lane.load(w + i)));
  }
}

template <class Lane>
QPN_HD void run_program(Lane& lane, rms_norm_params const& p) {
  std::int64_t const row = lane.block();
  rms_norm_row(lane, p.x + row * p.x_stride, p.w, p.eps, p.cols, p.y, row);
}

}  // namespace qwen38::ops::cuda
