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

template <class Lane>
QPN_HD void run_program(Lane& lane, rms_norm_params const& p) {
  static_assert(rms_norm_params::threads == warp_size * warp_size);
  std::int64_t const row = lane.block();
  float const* const x = p.x + row * p.x_stride;
  float sum = 0;
  for (std::int64_t i = lane.thread(); i < p.cols; i += rms_norm_params::threads) {
    float const value = lane.load(x + i);
    sum = lane.fma(value, value, sum);
  }
  sum = warp_sum(lane, sum);
  if (lane.thread() % warp_size == 0) lane.shared_store(lane.thread() / warp_size * 4, sum);
  lane.sync_block();
  sum = warp_sum(lane, lane.template shared_load<float>(lane.thread() % warp_size * 4));
  float const scale = 1.0F / lane.sqrt(sum / static_cast<float>(p.cols) + p.eps);
  for (std::int64_t i = lane.thread(); i < p.cols; i += rms_norm_params::threads) {
    store_value(lane, p.y, row, i, lane.load(x + i) * scale * (1.0F + lane.load(p.w + i)));
  }
}

}  // namespace qwen38::ops::cuda
