// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/lane_types.hpp>

#include "ops/cuda/gdn_chunks.hpp"
#include "ops/cuda/gdn_memory.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// The gated delta rule, row by row, over the rows of a span that are in no chunk (gdn_chunks.hpp),
/// or over the first rows of a lane's record:
///   S <- decay S;  u = beta (v - S^T k);  S <- S + k u^T;  out = S^T q
/// One warp for each span (or layer), value head and 8 * Columns columns of S, which stay in
/// registers: lane 8 h + c has of its columns every fourth group of four keys, from group h. S is
/// stored unless the span is tentative.
///
/// With one column for each lane rows are done sooner, with two S comes and goes faster, 64 bytes
/// of a key at a time: a replay of all layers, which has few rows, takes two.
template <int Columns>
struct gdn_recurrence_params {
  static constexpr int warp_columns = gdn_columns * Columns;
  static constexpr int threads = warp_size;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 2 * gdn_key_dim * 4;  ///< k, q of a row

  pass_view pass;
  gdn_memory memory;
  gdn_rows scratch;
  std::int64_t layer = 0;
  float* out = nullptr;  ///< [rows][value_channels]
  bool chunked = false;  ///< the spans' chunks are already in S and out
  /// Of a replay, which has no pass: all layers of one lane.
  bool replay = false;
  std::int64_t layers = 0;
  int lane = 0;
  int rows = 0;

  [[nodiscard]] QPN_HD std::int64_t column_blocks() const {
    return memory.sizes.value_dim / warp_columns;
  }
  [[nodiscard]] std::int64_t blocks() const {
    return (replay ? layers : pass.span_count) * memory.sizes.value_heads * column_blocks();
  }
};

/// What a row has for some columns of S.
template <int Columns>
struct gdn_column_inputs {
  float v[Columns];
  float decay;
  float beta;
};

/// The inputs of one row, a part in each lane.
template <int Columns>
struct gdn_row_part {
  float4_pack k;
  float4_pack q;
  gdn_column_inputs<Columns> own;
};

/// A lane's columns of one key or row, side by side in memory.
template <class Lane>
QPN_HD void load_columns(Lane& lane, float const* from, float (&to)[1]) {
  to[0] = lane.load(from);
}
template <class Lane>
QPN_HD void load_columns(Lane& lane, float const* from, float (&to)[2]) {
  auto const two = lane.load(reinterpret_cast<qpn::detail::float2_pair const*>(from));
  to[0] = two.low;
  to[1] = two.high;
}
template <class Lane>
QPN_HD void store_columns(Lane& lane, float* to, float const (&from)[1]) {
  lane.store(to, from[0]);
}
template <class Lane>
QPN_HD void store_columns(Lane& lane, float* to, float const (&from)[2]) {
  lane.store(reinterpret_cast<qpn::detail::float2_pair*>(to),
             qpn::detail::float2_pair{from[0], from[1]});
}

/// The key of a lane's i-th element of S.
QPN_HD constexpr int gdn_key(int share, int i) {
  return (i / 4 * gdn_shares + share) * 4 + i % 4;
}

/// The share of a column's keys that a thread has.
template <class Lane>
QPN_HD int gdn_share(Lane const& lane) {
  return lane.thread() % warp_size / gdn_columns;
}

/// The sum of four, and of the lanes that share a column, in a fixed tree.
template <class Lane>
QPN_HD float column_sum(Lane& lane, float const (&sums)[4]) {
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int mask = gdn_columns; mask < warp_size; mask *= 2) sum += shuffle(lane, sum, mask);
  return sum;
}

/// One row's step of a lane's parts of some columns; the row's k and then its q lie in shared
/// memory from `row_at` on. Each column's sums are the same however many a lane has.
template <int Columns, class Lane>
QPN_HD void advance_columns(Lane& lane, int row_at, gdn_column_inputs<Columns> const& own,
                            float (&s)[gdn_lane_keys][Columns], float (&out)[Columns]) {
  int const share = gdn_share(lane);
  auto const key_at = [=](int i) { return row_at + gdn_key(share, i) * 4; };
  float recalled[Columns][4] = {};
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; i += 4) {
    float4_pack const k = lane.template shared_load<float4_pack>(key_at(i));
    QPN_UNROLL
    for (int e = 0; e < 4; ++e) {
      QPN_UNROLL
      for (int c = 0; c < Columns; ++c) {
        s[i + e][c] *= own.decay;
        recalled[c][e] = lane.fma(s[i + e][c], k.v[e], recalled[c][e]);
      }
    }
  }
  float u[Columns];
  QPN_UNROLL
  for (int c = 0; c < Columns; ++c) {
    u[c] = (own.v[c] - column_sum(lane, recalled[c])) * own.beta;
  }
  // With several columns k is loaded once more: registers do not hold it beside them.
  if constexpr (Columns > 1) lane.sync_warp();
  float sums[Columns][4] = {};
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; i += 4) {
    float4_pack const k = lane.template shared_load<float4_pack>(key_at(i));
    float4_pack const q = lane.template shared_load<float4_pack>(key_at(i) + gdn_key_dim * 4);
    QPN_UNROLL
    for (int e = 0; e < 4; ++e) {
      QPN_UNROLL
      for (int c = 0; c < Columns; ++c) {
        s[i + e][c] = lane.fma(k.v[e], u[c], s[i + e][c]);
        sums[c][e] = lane.fma(s[i + e][c], q.v[e], sums[c][e]);
      }
    }
  }
  QPN_UNROLL
  for (int c = 0; c < Columns; ++c) out[c] = column_sum(lane, sums[c]);
}

template <class Lane, int Columns>
QPN_HD void run_program(Lane& lane, gdn_recurrence_params<Columns> const& p) {
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
  std::int64_t const column = column_block * p.warp_columns + lane.thread() % gdn_columns * Columns;
  int const share = gdn_share(lane);
  float* const state = at.s + head * gdn_key_dim * g.value_dim + column;
  float const* const mixed = first.mixed;
  auto const load_row = [&](std::int64_t t) {
    float const* const row = mixed + t * g.channels();
    auto const four = [&](float const* of_head) {
      return lane.load(reinterpret_cast<float4_pack const*>(of_head + lane.thread() * 4));
    };
    gdn_row_part<Columns> part;
    part.q = four(row + key_head * gdn_key_dim);
    part.k = four(row + g.key_channels() + key_head * gdn_key_dim);
    load_columns(lane, row + 2 * g.key_channels() + head * g.value_dim + column, part.own.v);
    part.own.decay = lane.load(first.decay + t * g.value_heads + head);
    part.own.beta = lane.load(first.beta + t * g.value_heads + head);
    return part;
  };
  int const first_row = p.chunked ? gdn_chunks_of(span) * gdn_chunk : 0;
  if (first_row >= span.rows) return;

  gdn_row_part<Columns> next = load_row(first_row);
  float s[gdn_lane_keys][Columns];
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; ++i) {
    load_columns(lane, state + gdn_key(share, i) * g.value_dim, s[i]);
  }
  QPN_NO_UNROLL
  for (int t = first_row; t < span.rows; ++t) {
    gdn_row_part<Columns> const row = next;
    lane.sync_warp();  // the row before is no longer read
    lane.shared_store(lane.thread() * 16, row.k);
    lane.shared_store(gdn_key_dim * 4 + lane.thread() * 16, row.q);
    lane.sync_warp();
    if (t + 1 < span.rows) next = load_row(t + 1);
    float out[Columns];
    advance_columns(lane, 0, row.own, s, out);
    if (!p.replay && share == 0) {
      store_columns(lane,
                    p.out + (span.first_row + t) * g.value_channels() + head * g.value_dim + column,
                    out);
    }
  }
  if (span.tentative != 0 && !p.replay) return;
  QPN_UNROLL
  for (int i = 0; i < gdn_lane_keys; ++i) {
    store_columns(lane, state + gdn_key(share, i) * g.value_dim, s[i]);
  }
}

}  // namespace qwen38::ops::cuda
