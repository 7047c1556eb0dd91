// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/gdn_memory.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// From projections to what the recurrence takes. One warp for each head of q, k and v of a row, or
/// of several rows one after another, and one for the row's gates.
struct gdn_prepare_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 3;
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
  /// Of a warp: where there are many, it loads its taps once, and columns of the rows before find
  /// their way from L1.
  [[nodiscard]] QPN_HD int rows_together() const { return rows >= 128 ? 8 : 1; }
  [[nodiscard]] std::int64_t blocks() const {
    return divide_up(divide_up(rows, rows_together()) * warps_per_row(), threads / warp_size);
  }
};

struct gdn_gates {
  float decay;
  float beta;
};

/// What a value head's gates are made with.
struct gdn_gate_constants {
  float a_log = 0;
  float dt_bias = 0;
};

// Params names the inputs as gdn_prepare_params does.

template <class Lane, class Params>
QPN_HD gdn_gate_constants gate_constants_of(Lane& lane, Params const& p, int head) {
  return {lane.load(p.a_log + head), lane.load(p.dt_bias + head)};
}

/// The gates of a row and value head: beta = sigmoid(b), decay = exp(-exp(a_log) softplus(a +
/// dt_bias)).
template <class Lane, class Params>
QPN_HD gdn_gates gates_of(Lane& lane, Params const& p, std::int64_t row, int head,
                          gdn_gate_constants const& constants) {
  float const* const b = p.ba + row * p.ba_stride + head;
  float const x = lane.load(b + p.memory.sizes.value_heads) + constants.dt_bias;
  float const softplus = x > 20.0F ? x : lane.log1p(lane.exp(x));
  float const beta = sigmoid(lane, lane.load(b));
  return {lane.exp(-lane.exp(constants.a_log) * softplus), beta};
}

/// What a head of q or k is multiplied by, a lane's part of its sum of squares given.
template <class Lane>
QPN_HD float scale_of_keys(Lane& lane, bool is_query, float square) {
  return (is_query ? 1.0F / lane.sqrt(static_cast<float>(gdn_key_dim)) : 1.0F) /
         lane.sqrt(warp_sum(lane, square) + 1e-6F);
}

template <class Lane>
QPN_HD void prepare_gates(Lane& lane, gdn_prepare_params const& p, std::int64_t row,
                          gdn_rows const& to) {
  for (int h = lane.thread() % warp_size; h < p.memory.sizes.value_heads; h += warp_size) {
    gdn_gates const gates = gates_of(lane, p, row, h, gate_constants_of(lane, p, h));
    lane.store(to.beta + h, gates.beta);
    lane.store(to.decay + h, gates.decay);
  }
}

/// A warp's head of q, k or v, of up to PerLane channels a lane, and their taps where the
/// convolution has four.
template <class Lane, int PerLane>
class gdn_prepare_head {
 public:
  QPN_HD gdn_prepare_head(Lane& lane, gdn_prepare_params const& p, std::int64_t head)
      : lane_(lane), p_(p), id_(lane.thread() % warp_size) {
    gdn_sizes const& g = p.memory.sizes;
    is_value_ = head >= 2 * g.key_heads;
    is_query_ = head < g.key_heads;
    dim_ = is_value_ ? g.value_dim : gdn_key_dim;
    first_ = is_value_ ? 2 * g.key_channels() + (head - 2 * g.key_heads) * g.value_dim
                       : head * gdn_key_dim;
    if (g.kernel != 4) return;
    QPN_UNROLL
    for (int j = 0; j < PerLane; ++j) {
      if (id_ + warp_size * j >= dim_) continue;
      auto const four = lane.load(reinterpret_cast<float4_pack const*>(p.taps + channel(j) * 4));
      QPN_UNROLL
      for (int tap = 0; tap < 4; ++tap) taps_[tap][j] = four.v[tap];
    }
  }

  QPN_HD void run(std::int64_t row, span_entry const& span, gdn_lane const& at,
                  gdn_rows const& to) {
    gdn_sizes const& g = p_.memory.sizes;
    std::int64_t const i = row - span.first_row;
    float value[PerLane] = {};
    // Tap by tap, so that the loads of a lane's channels travel together.
    auto const add_tap = [&](int tap, auto const& weight_of) {
      std::int64_t const source = i - (g.kernel - 1) + tap;  // negative: from the state
      float const* const column = source >= 0 ? p_.qkvz + (span.first_row + source) * p_.qkvz_stride
                                              : at.conv + (source + g.kernel - 1) * g.channels();
      QPN_UNROLL
      for (int j = 0; j < PerLane; ++j) {
        if (id_ + warp_size * j >= dim_) continue;
        value[j] = lane_.fma(weight_of(j), lane_.load(column + channel(j)), value[j]);
      }
    };
    if (g.kernel == 4) {
      QPN_UNROLL
      for (int tap = 0; tap < 4; ++tap) add_tap(tap, [&](int j) { return taps_[tap][j]; });
    } else {
      for (int tap = 0; tap < g.kernel; ++tap) {
        add_tap(tap, [&](int j) { return lane_.load(p_.taps + channel(j) * g.kernel + tap); });
      }
    }
    float square = 0;
    QPN_UNROLL
    for (int j = 0; j < PerLane; ++j) {
      if (id_ + warp_size * j >= dim_) continue;
      if (span.tentative != 0) {
        lane_.store(at.raw + i * g.channels() + channel(j),
                    lane_.load(p_.qkvz + row * p_.qkvz_stride + channel(j)));
      }
      value[j] = silu(lane_, value[j]);
      square = lane_.fma(value[j], value[j], square);
    }
    float const scale = is_value_ ? 1.0F : scale_of_keys(lane_, is_query_, square);
    QPN_UNROLL
    for (int j = 0; j < PerLane; ++j) {
      if (id_ + warp_size * j >= dim_) continue;
      lane_.store(to.mixed + channel(j), value[j] * scale);
    }
  }

 private:
  [[nodiscard]] QPN_HD std::int64_t channel(int j) const { return first_ + id_ + warp_size * j; }

  Lane& lane_;
  gdn_prepare_params const& p_;
  int id_;
  bool is_value_;
  bool is_query_;
  int dim_;
  std::int64_t first_;  ///< channel
  float taps_[4][PerLane] = {};
};

template <class Lane>
QPN_HD void run_program(Lane& lane, gdn_prepare_params const& p) {
  std::int64_t const task = std::int64_t{lane.block()} * (gdn_prepare_params::threads / warp_size) +
                            lane.thread() / warp_size;
  std::int64_t const first = task / p.warps_per_row() * p.rows_together();
  std::int64_t const head = task % p.warps_per_row();
  if (first >= p.rows) return;
  std::int64_t const left = p.rows - first;
  int const rows = left < p.rows_together() ? static_cast<int>(left) : p.rows_together();
  bool const is_gates = head == p.warps_per_row() - 1;
  auto const each_row = [&](auto const& run) {
    QPN_NO_UNROLL
    for (std::int64_t row = first; row < first + rows; ++row) {
      span_entry const span = lane.load(p.pass.spans + lane.load(p.pass.row_spans + row));
      gdn_lane const at = p.memory.at(p.layer, span.lane);
      run(row, span, at, p.memory.row(at, p.scratch, span, row - span.first_row));
    }
  };
  if (is_gates) {
    each_row([&](std::int64_t row, span_entry const&, gdn_lane const&, gdn_rows const& to) {
      prepare_gates(lane, p, row, to);
    });
    return;
  }
  auto const prepare = [&](auto own) {
    each_row([&](std::int64_t row, span_entry const& span, gdn_lane const& at, gdn_rows const& to) {
      own.run(row, span, at, to);
    });
  };
  constexpr int most = gdn_largest_head / warp_size;
  if (p.memory.sizes.value_dim <= gdn_largest_head / 2) {  // as key_dim is
    prepare(gdn_prepare_head<Lane, most / 2>(lane, p, head));
  } else {
    prepare(gdn_prepare_head<Lane, most>(lane, p, head));
  }
}

}  // namespace qwen38::ops::cuda
