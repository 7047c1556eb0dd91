// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/gdn_memory.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// From projections to what the recurrence takes. One warp for each head of q, k and v of a row,
/// and one for the row's gates.
struct gdn_prepare_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  pass_view pass;
  gdn_memory memory;
  gdn_rows scratch;
  std::int64_t layer = 0;
  std::int64_t rows = 0;
  float const* qkvz = nullptr;
  std::int64_t qkvz_stride = 0;
  float const* ba = nullptr;
  std::int64_t ba_stride = 0;
  float const* taps = nullptr;     ///< [channels][kernel]
  float const* a_log = nullptr;    ///< [value heads]
  float const* dt_bias = nullptr;  ///< [value heads]

  [[nodiscard]] QPN_HD std::int64_t warps_per_row() const {
    return 2 * memory.sizes.key_heads + memory.sizes.value_heads + 1;
  }
  [[nodiscard]] std::int64_t blocks() const {
    return divide_up(rows * warps_per_row(), threads / warp_size);
  }
};

template <class Lane>
QPN_HD void prepare_gates(Lane& lane, gdn_prepare_params const& p, std::int64_t row,
                          gdn_rows const& to) {
  int const heads = p.memory.sizes.value_heads;
  float const* const b = p.ba + row * p.ba_stride;
  for (int h = lane.thread() % warp_size; h < heads; h += warp_size) {
    float const x = lane.load(b + heads + h) + lane.load(p.dt_bias + h);
    float const softplus = x > 20.0F ? x : lane.log1p(lane.exp(x));
    lane.store(to.beta + h, sigmoid(lane, lane.load(b + h)));
    lane.store(to.decay + h, lane.exp(-lane.exp(lane.load(p.a_log + h)) * softplus));
  }
}

template <class Lane>
QPN_HD void run_program(Lane& lane, gdn_prepare_params const& p) {
  gdn_sizes const& g = p.memory.sizes;
  int const id = lane.thread() % warp_size;
  std::int64_t const task = std::int64_t{lane.block()} * (gdn_prepare_params::threads / warp_size) +
                            lane.thread() / warp_size;
  std::int64_t const row = task / p.warps_per_row();
  std::int64_t const head = task % p.warps_per_row();
  if (row >= p.rows) return;
  span_entry const span = lane.load(p.pass.spans + lane.load(p.pass.row_spans + row));
  std::int64_t const i = row - span.first_row;
  gdn_lane const at = p.memory.at(p.layer, span.lane);
  gdn_rows const to = p.memory.row(at, p.scratch, span, i);
  if (head == p.warps_per_row() - 1) {
    prepare_gates(lane, p, row, to);
    return;
  }
  bool const is_value = head >= 2 * g.key_heads;
  int const dim = is_value ? g.value_dim : gdn_key_dim;
  std::int64_t const first =
      is_value ? 2 * g.key_channels() + (head - 2 * g.key_heads) * g.value_dim : head * gdn_key_dim;
  constexpr int per_lane = gdn_largest_head / warp_size;
  float value[per_lane] = {};
  // Tap by tap, so that the loads of a lane's channels travel together.
  auto const add_tap = [&](int tap) {
    std::int64_t const source = i - (g.kernel - 1) + tap;  // negative: from the state
    float const* const column = source >= 0 ? p.qkvz + (span.first_row + source) * p.qkvz_stride
                                            : at.conv + (source + g.kernel - 1) * g.channels();
    QPN_UNROLL
    for (int j = 0; j < per_lane; ++j) {
      if (id + warp_size * j >= dim) continue;
      std::int64_t const channel = first + id + warp_size * j;
      value[j] = lane.fma(lane.load(p.taps + channel * g.kernel + tap), lane.load(column + channel),
                          value[j]);
    }
  };
  if (g.kernel == 4) {
    QPN_UNROLL
    for (int tap = 0; tap < 4; ++tap) add_tap(tap);
  } else {
    for (int tap = 0; tap < g.kernel; ++tap) add_tap(tap);
  }
  float square = 0;
  QPN_UNROLL
  for (int j = 0; j < per_lane; ++j) {
    if (id + warp_size * j >= dim) continue;
    std::int64_t const channel = first + id + warp_size * j;
    if (span.tentative != 0) {
      lane.store(at.raw + i * g.channels() + channel,
                 lane.load(p.qkvz + row * p.qkvz_stride + channel));
    }
    value[j] = silu(lane, value[j]);
    square = lane.fma(value[j], value[j], square);
  }
  float scale = 1;
  if (!is_value) {
    bool const is_query = head < g.key_heads;
    scale = (is_query ? 1.0F / lane.sqrt(static_cast<float>(gdn_key_dim)) : 1.0F) /
            lane.sqrt(warp_sum(lane, square) + 1e-6F);
  }
  QPN_UNROLL
  for (int j = 0; j < per_lane; ++j) {
    if (id + warp_size * j >= dim) continue;
    lane.store(to.mixed + first + id + warp_size * j, value[j] * scale);
  }
}

}  // namespace qwen38::ops::cuda
