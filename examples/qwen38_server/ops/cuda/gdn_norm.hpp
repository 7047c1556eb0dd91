// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/gdn_memory.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// out = o * rsqrt(mean(o^2) + eps) * w * silu(z) over each value head, one warp each.
struct gdn_norm_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  gdn_sizes sizes;
  float const* o = nullptr;  ///< [rows][value_channels]
  float const* z = nullptr;  ///< rows of value_channels
  std::int64_t z_stride = 0;
  float const* w = nullptr;  ///< [value_dim]
  output_rows out;
  std::int64_t rows = 0;

  [[nodiscard]] std::int64_t blocks() const {
    return divide_up(rows * sizes.value_heads, threads / warp_size);
  }
};

/// A lane's values at(d) of a head, d = id, id + 32, ...; returns what the norm multiplies them by.
template <int PerLane, class Lane, class At>
QPN_HD float take_head_values(Lane& lane, gdn_sizes const& g, At const& at,
                              float (&value)[PerLane]) {
  int const id = lane.thread() % warp_size;
  float square = 0;
  QPN_UNROLL
  for (int j = 0; j < PerLane; ++j) {
    int const d = id + warp_size * j;
    if (d >= g.value_dim) continue;
    value[j] = at(d);
    square = lane.fma(value[j], value[j], square);
  }
  float const mean = warp_sum(lane, square) / static_cast<float>(g.value_dim);
  return 1.0F / lane.sqrt(mean + g.eps);
}

template <class Lane>
QPN_HD void run_program(Lane& lane, gdn_norm_params const& p) {
  gdn_sizes const& g = p.sizes;
  int const id = lane.thread() % warp_size;
  std::int64_t const task = std::int64_t{lane.block()} * (gdn_norm_params::threads / warp_size) +
                            lane.thread() / warp_size;
  std::int64_t const row = task / g.value_heads;
  std::int64_t const first = task % g.value_heads * g.value_dim;
  if (row >= p.rows) return;
  constexpr int per_lane = gdn_largest_head / warp_size;
  float value[per_lane];
  float const scale = take_head_values(
      lane, g, [&](int d) { return lane.load(p.o + row * g.value_channels() + first + d); }, value);
  QPN_UNROLL
  for (int j = 0; j < per_lane; ++j) {
    int const d = id + warp_size * j;
    if (d >= g.value_dim) continue;
    float const gate = silu(lane, lane.load(p.z + row * p.z_stride + first + d));
    store_value(lane, p.out, row, first + d, value[j] * scale * lane.load(p.w + d) * gate);
  }
}

}  // namespace qwen38::ops::cuda
