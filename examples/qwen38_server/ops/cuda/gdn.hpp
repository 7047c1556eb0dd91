// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/lane_math.hpp"
#include "ops/cuda/pass_view.hpp"

namespace qwen38::ops::cuda {

inline constexpr int gdn_key_dim = 128;  ///< the only one that the recurrence has
inline constexpr int gdn_columns = 8;    ///< of S that a warp advances
inline constexpr int gdn_shares = warp_size / gdn_columns;  ///< of a column's keys, one a lane
inline constexpr int gdn_lane_keys = gdn_key_dim / gdn_shares;
inline constexpr int gdn_largest_head = 256;  ///< elements of a head that a warp can norm

struct gdn_sizes {
  int key_heads = 0;
  int value_heads = 0;
  int value_dim = 0;
  int kernel = 0;  ///< taps of the convolution
  float eps = 0;

  [[nodiscard]] QPN_HD std::int64_t key_channels() const {
    return std::int64_t{key_heads} * gdn_key_dim;
  }
  [[nodiscard]] QPN_HD std::int64_t value_channels() const {
    return std::int64_t{value_heads} * value_dim;
  }
  [[nodiscard]] QPN_HD std::int64_t channels() const {
    return 2 * key_channels() + value_channels();
  }
};

/// Convolved, normed q | k | v and gates of some rows.
struct gdn_rows {
  float* mixed = nullptr;  ///< [row][channels]
  float* decay = nullptr;  ///< [row][value head]
  float* beta = nullptr;   ///< [row][value head]
};

/// State and record of one layer and lane.
struct gdn_lane {
  float* s = nullptr;     ///< [value head][key_dim][value_dim]
  float* conv = nullptr;  ///< [kernel - 1][channels], raw, oldest first
  float* raw = nullptr;   ///< record [row][channels]: what entered the convolution
  gdn_rows record;
};

/// All of them, index layer * lanes + lane.
struct gdn_memory {
  gdn_sizes sizes;
  int lanes = 0;
  int record_rows = 0;
  gdn_lane first;

  [[nodiscard]] QPN_HD std::int64_t s_values() const {
    return sizes.value_channels() * gdn_key_dim;
  }
  [[nodiscard]] QPN_HD std::int64_t conv_values() const {
    return (sizes.kernel - 1) * sizes.channels();
  }
  [[nodiscard]] QPN_HD gdn_lane at(std::int64_t layer, std::int64_t lane) const {
    std::int64_t const i = layer * lanes + lane;
    std::int64_t const record = i * record_rows;
    gdn_lane found;
    found.s = first.s + i * s_values();
    found.conv = first.conv + i * conv_values();
    found.raw = first.raw + record * sizes.channels();
    found.record = {first.record.mixed + record * sizes.channels(),
                    first.record.decay + record * sizes.value_heads,
                    first.record.beta + record * sizes.value_heads};
    return found;
  }
  /// Where the row of a pass, the i-th of its span, has its values: in the record of a tentative
  /// span, else in scratch.
  [[nodiscard]] QPN_HD gdn_rows row(gdn_lane const& at, gdn_rows const& scratch,
                                    span_entry const& span, std::int64_t i) const {
    gdn_rows const& from = span.tentative != 0 ? at.record : scratch;
    std::int64_t const index = span.tentative != 0 ? i : span.first_row + i;
    return {from.mixed + index * sizes.channels(), from.decay + index * sizes.value_heads,
            from.beta + index * sizes.value_heads};
  }
};

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
  float value[per_lane];
  float square = 0;
  QPN_UNROLL
  for (int j = 0; j < per_lane; ++j) {
    if (id + warp_size * j >= dim) continue;
    std::int64_t const channel = first + id + warp_size * j;
    float sum = 0;
    for (int tap = 0; tap < g.kernel; ++tap) {
      std::int64_t const source = i - (g.kernel - 1) + tap;  // negative: from the state
      float const x = source >= 0
                          ? lane.load(p.qkvz + (span.first_row + source) * p.qkvz_stride + channel)
                          : lane.load(at.conv + (source + g.kernel - 1) * g.channels() + channel);
      sum = lane.fma(lane.load(p.taps + channel * g.kernel + tap), x, sum);
    }
    if (span.tentative != 0) {
      lane.store(at.raw + i * g.channels() + channel,
                 lane.load(p.qkvz + row * p.qkvz_stride + channel));
    }
    value[j] = silu(lane, sum);
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

/// The gated delta rule over the rows of a span, or over the first rows of a lane's record:
///   S <- decay S;  u = beta (v - S^T k);  S <- S + k u^T;  out = S^T q
/// One warp for each span (or layer), value head and 8 columns of S, which stay in registers: lane
/// 8 h + c has of column c every fourth group of four keys, from group h. S is stored unless the
/// span is tentative.
struct gdn_recurrence_params {
  static constexpr int threads = warp_size;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 2 * gdn_key_dim * 4;  ///< k, q of a row

  pass_view pass;
  gdn_memory memory;
  gdn_rows scratch;
  std::int64_t layer = 0;
  float* out = nullptr;  ///< [rows][value_channels]
  /// Of a replay, which has no pass: all layers of one lane.
  bool replay = false;
  std::int64_t layers = 0;
  int lane = 0;
  int rows = 0;

  [[nodiscard]] QPN_HD std::int64_t column_blocks() const {
    return memory.sizes.value_dim / gdn_columns;
  }
  [[nodiscard]] std::int64_t blocks() const {
    return (replay ? layers : pass.span_count) * memory.sizes.value_heads * column_blocks();
  }
};

/// The inputs of one row, a part in each lane.
struct gdn_row_part {
  float4_pack k;
  float4_pack q;
  float v;
  float decay;
  float beta;
};

/// The key of a lane's i-th element of S.
QPN_HD constexpr int gdn_key(int share, int i) {
  return (i / 4 * gdn_shares + share) * 4 + i % 4;
}

/// The sum of four, and of the lanes that share a column, in a fixed tree.
template <class Lane>
QPN_HD float column_sum(Lane& lane, float const (&sums)[4]) {
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int mask = gdn_columns; mask < warp_size; mask *= 2) sum += shuffle(lane, sum, mask);
  return sum;
}

template <class Lane>
QPN_HD float advance_column(Lane& lane, gdn_row_part const& row, float (&s)[gdn_lane_keys]) {
  int const share = lane.thread() / gdn_columns;
  float recalled[4] = {};
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; i += 4) {
    float4_pack const k = lane.template shared_load<float4_pack>(gdn_key(share, i) * 4);
    QPN_UNROLL
    for (int e = 0; e < 4; ++e) {
      s[i + e] *= row.decay;
      recalled[e] = lane.fma(s[i + e], k.v[e], recalled[e]);
    }
  }
  float const u = (row.v - column_sum(lane, recalled)) * row.beta;
  float sums[4] = {};
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; i += 4) {
    float4_pack const k = lane.template shared_load<float4_pack>(gdn_key(share, i) * 4);
    float4_pack const q =
        lane.template shared_load<float4_pack>((gdn_key_dim + gdn_key(share, i)) * 4);
    QPN_UNROLL
    for (int e = 0; e < 4; ++e) {
      s[i + e] = lane.fma(k.v[e], u, s[i + e]);
      sums[e] = lane.fma(s[i + e], q.v[e], sums[e]);
    }
  }
  return column_sum(lane, sums);
}

template <class Lane>
QPN_HD void run_program(Lane& lane, gdn_recurrence_params const& p) {
  gdn_sizes const& g = p.memory.sizes;
  std::int64_t const column_block = lane.block() % p.column_blocks();
  std::int64_t const head = lane.block() / p.column_blocks() % g.value_heads;
  std::int64_t const outer = lane.block() / p.column_blocks() / g.value_heads;
  span_entry span;
  if (p.replay) {
    span.lane = p.lane;
    span.rows = p.rows;
    span.tentative = 1;  // its rows are the record's
  } else {
    span = lane.load(p.pass.spans + outer);
  }
  gdn_lane const at = p.memory.at(p.replay ? outer : p.layer, span.lane);
  gdn_rows const first = p.memory.row(at, p.scratch, span, 0);
  std::int64_t const key_head = head / (g.value_heads / g.key_heads);
  std::int64_t const column = column_block * gdn_columns + lane.thread() % gdn_columns;
  int const share = lane.thread() / gdn_columns;
  float* const state = at.s + head * gdn_key_dim * g.value_dim + column;
  float const* const mixed = first.mixed;
  auto const load_row = [&](std::int64_t t) {
    float const* const row = mixed + t * g.channels();
    auto const four = [&](float const* of_head) {
      return lane.load(reinterpret_cast<float4_pack const*>(of_head + lane.thread() * 4));
    };
    gdn_row_part part;
    part.q = four(row + key_head * gdn_key_dim);
    part.k = four(row + g.key_channels() + key_head * gdn_key_dim);
    part.v = lane.load(row + 2 * g.key_channels() + head * g.value_dim + column);
    part.decay = lane.load(first.decay + t * g.value_heads + head);
    part.beta = lane.load(first.beta + t * g.value_heads + head);
    return part;
  };
  if (span.rows <= 0) return;

  gdn_row_part next = load_row(0);
  float s[gdn_lane_keys];
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; ++i) {
    s[i] = lane.load(state + gdn_key(share, i) * g.value_dim);
  }
  QPN_NO_UNROLL
  for (int t = 0; t < span.rows; ++t) {
    gdn_row_part const row = next;
    lane.sync_warp();  // the row before is no longer read
    lane.shared_store(lane.thread() * 16, row.k);
    lane.shared_store(gdn_key_dim * 4 + lane.thread() * 16, row.q);
    lane.sync_warp();
    if (t + 1 < span.rows) next = load_row(t + 1);
    float const out = advance_column(lane, row, s);
    if (!p.replay && share == 0) {
      lane.store(p.out + (span.first_row + t) * g.value_channels() + head * g.value_dim + column,
                 out);
    }
  }
  if (span.tentative != 0 && !p.replay) return;
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; ++i) {
    lane.store(state + gdn_key(share, i) * g.value_dim, s[i]);
  }
}

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
  float square = 0;
  QPN_UNROLL
  for (int j = 0; j < per_lane; ++j) {
    int const d = id + warp_size * j;
    if (d >= g.value_dim) continue;
    value[j] = lane.load(p.o + row * g.value_channels() + first + d);
    square = lane.fma(value[j], value[j], square);
  }
  float const mean = warp_sum(lane, square) / static_cast<float>(g.value_dim);
  float const scale = 1.0F / lane.sqrt(mean + g.eps);
  QPN_UNROLL
  for (int j = 0; j < per_lane; ++j) {
    int const d = id + warp_size * j;
    if (d >= g.value_dim) continue;
    float const gate = silu(lane, lane.load(p.z + row * p.z_stride + first + d));
    store_value(lane, p.out, row, first + d, value[j] * scale * lane.load(p.w + d) * gate);
  }
}

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
  int const kept = g.kernel - 1;
  for (int j = 0; j < kept; ++j) {
    int const from = j + span.rows;  // in [columns, rows]; not below j, so nothing is lost
    float const* const source =
        from < kept ? at.conv + from * g.channels() : rows + (from - kept) * stride;
    lane.store(at.conv + j * g.channels() + channel, lane.load(source + channel));
  }
}

}  // namespace qwen38::ops::cuda
