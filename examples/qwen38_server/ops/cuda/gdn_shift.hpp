// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/gdn_memory.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// The convolution's state becomes the last kernel - 1 columns of [its columns, the rows]: of a
/// pass's final spans in one layer, or of a lane's record in all layers. One thread a channel.
struct gdn_shift_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  pass_view pass;
  gdn_memory memory;
  std::int64_t layer = 0;
  float const* qkvz = nullptr;
  std::int64_t qkvz_stride = 0;
  /// As in gdn_recurrence_params.
  bool replay = false;
  std::int64_t layers = 0;
  int lane = 0;
  int rows = 0;

  [[nodiscard]] QPN_HD std::int64_t blocks_per_span() const {
    return divide_up(memory.sizes.channels(), threads);
  }
  [[nodiscard]] std::int64_t blocks() const {
    return (replay ? layers : pass.span_count) * blocks_per_span();
  }
};

/// One channel's columns of the state become the last ones of [the columns, the rows], which start
/// at `rows`.
template <class Lane>
QPN_HD void shift_channel(Lane& lane, gdn_sizes const& g, float* conv, float const* rows,
                          std::int64_t stride, int row_count, std::int64_t channel) {
  int const kept = g.kernel - 1;
  auto const source_of = [&](int j) {
    int const from = j + row_count;  // in [columns, rows]
    return (from < kept ? conv + from * g.channels() : rows + (from - kept) * stride) + channel;
  };
  constexpr int batch = 3;  // loads that travel together; a source is not below its target
  for (int first = 0; first < kept; first += batch) {
    float column[batch];
    QPN_UNROLL
    for (int j = 0; j < batch; ++j) {
      if (first + j < kept) column[j] = lane.load(source_of(first + j));
    }
    QPN_UNROLL
    for (int j = 0; j < batch; ++j) {
      if (first + j < kept) lane.store(conv + (first + j) * g.channels() + channel, column[j]);
    }
  }
}

template <class Lane>
QPN_HD void run_program(Lane& lane, gdn_shift_params const& p) {
  gdn_sizes const& g = p.memory.sizes;
  std::int64_t const outer = lane.block() / p.blocks_per_span();
  std::int64_t const channel =
      lane.block() % p.blocks_per_span() * gdn_shift_params::threads + lane.thread();
  if (channel >= g.channels()) return;
  span_entry span;
  span.lane = p.lane;
  span.rows = p.rows;
  if (!p.replay) span = lane.load(p.pass.spans + outer);
  if (span.tentative != 0) return;
  gdn_lane const at = p.memory.at(p.replay ? outer : p.layer, span.lane);
  float const* const rows = p.replay ? at.raw : p.qkvz + span.first_row * p.qkvz_stride;
  std::int64_t const stride = p.replay ? g.channels() : p.qkvz_stride;
  shift_channel(lane, g, at.conv, rows, stride, span.rows, channel);
}

}  // namespace qwen38::ops::cuda
