// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/lane_math.hpp"
#include "ops/cuda/pass_view.hpp"
#include "ops/tensor_limits.hpp"

namespace qwen38::ops::cuda {

inline constexpr int head_dim = 256;  ///< the only one that the attention kernels have

/// How heads are normed and rotated.
struct rope_params {
  float const* norm = nullptr;          ///< [head_dim], used as 1 + w
  double const* frequencies = nullptr;  ///< [half] theta^(-2 i / rotary_dim)
  int half = 0;                         ///< rotary_dim / 2, at most head_dim / 2
  float eps = 0;
};

/// One warp's shared memory: the head, then cosines and sines.
inline constexpr int rope_shared_bytes = 2 * head_dim * int{sizeof(float)};
inline constexpr int values_per_lane = head_dim / warp_size;

/// Where the warp's part of the shared memory that starts at `shared_at` has its head, its cosines
/// and its sines.
struct rope_places {
  int head;
  int cosines;
  int sines;
};
template <class Lane>
QPN_HD rope_places places_of_warp(Lane& lane, int shared_at) {
  int const own = shared_at + lane.thread() / warp_size * rope_shared_bytes;
  return {own, own + head_dim * 4, own + head_dim * 4 + head_dim / 2 * 4};
}

/// The lane's weights of the norm, 1 + w.
struct head_weights {
  float v[values_per_lane];
};
template <class Lane>
QPN_HD head_weights load_head_weights(Lane& lane, rope_params const& p) {
  head_weights weights;
  QPN_UNROLL
  for (int j = 0; j < values_per_lane; ++j) {
    weights.v[j] = 1.0F + lane.load(p.norm + lane.thread() % warp_size + warp_size * j);
  }
  return weights;
}

/// A warp leaves the cosines and sines of a position in shared memory.
template <class Lane>
QPN_HD void find_angles(Lane& lane, rope_params const& p, std::int64_t position, int shared_at) {
  rope_places const at = places_of_warp(lane, shared_at);
  for (int i = lane.thread() % warp_size; i < p.half; i += warp_size) {
    float sine = 0;
    float cosine = 0;
    lane.sine_cosine(static_cast<double>(position) * lane.load(p.frequencies + i), sine, cosine);
    lane.shared_store(at.cosines + 4 * i, cosine);
    lane.shared_store(at.sines + 4 * i, sine);
  }
}

/// A warp norms and rotates one head, behind find_angles(); value[j] is the element lane + 32 j.
template <class Lane>
QPN_HD void norm_and_rotate(Lane& lane, rope_params const& p, head_weights const& weights,
                            float const* head, int shared_at, float (&value)[values_per_lane]) {
  int const id = lane.thread() % warp_size;
  rope_places const at = places_of_warp(lane, shared_at);
  float sum = 0;
  QPN_UNROLL
  for (int j = 0; j < values_per_lane; ++j) {
    value[j] = lane.load(head + id + warp_size * j);
    sum = lane.fma(value[j], value[j], sum);
  }
  sum = warp_sum(lane, sum);
  float const scale = 1.0F / lane.sqrt(sum / static_cast<float>(head_dim) + p.eps);
  QPN_UNROLL
  for (int j = 0; j < values_per_lane; ++j) {
    int const d = id + warp_size * j;
    value[j] = value[j] * scale * weights.v[j];
    lane.shared_store(at.head + 4 * d, value[j]);
  }
  lane.sync_warp();
  QPN_UNROLL
  for (int j = 0; j < values_per_lane; ++j) {
    int const d = id + warp_size * j;
    if (d >= 2 * p.half) continue;
    bool const low = d < p.half;
    int const pair = low ? d : d - p.half;
    float const partner = lane.template shared_load<float>(at.head + 4 * (low ? d + p.half : pair));
    float const cosine = lane.template shared_load<float>(at.cosines + 4 * pair);
    float const sine = lane.template shared_load<float>(at.sines + 4 * pair);
    value[j] = lane.fma(low ? -partner : partner, sine, value[j] * cosine);
  }
}

QPN_HD inline std::int64_t position_of(span_entry const& span, std::int64_t row) {
  return span.position + row - span.first_row;
}

/// kv = [k | v] rows; k is normed and rotated; both go to the cache. One warp a row and kv head.
/// Where an element of v is no number, all of the head's k is stored as none and v as 0: whoever
/// sees the slot gets no number, and whoever does not may multiply its v by 0.
struct store_kv_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 1;
  static constexpr bool waits_itself = true;
  static constexpr int shared_bytes = threads / warp_size * rope_shared_bytes;

  pass_view pass;
  rope_params rope;
  float const* kv = nullptr;
  std::int64_t kv_stride = 0;
  std::int64_t rows = 0;
  int kv_heads = 0;
  std::uint16_t* keys = nullptr;  ///< of the layer [page][kv head][slot][head_dim]
  std::uint16_t* values = nullptr;

  [[nodiscard]] QPN_HD std::int64_t blocks() const {
    return divide_up(rows * kv_heads, threads / warp_size);
  }
};

/// What the cache gets of a row and kv head: the lane's elements lane + 64 i (low) and
/// lane + 32 + 64 i (high) of k and v.
struct kv_halves {
  static constexpr int pairs = values_per_lane / 2;
  std::uint32_t key[pairs];
  std::uint32_t value[pairs];

  /// The fp16 of element lane + 32 j.
  [[nodiscard]] QPN_HD static std::uint16_t half(std::uint32_t const (&of)[pairs], int j) {
    return static_cast<std::uint16_t>(of[j / 2] >> (j % 2 * 16));
  }
};

/// A warp makes them, behind find_angles() of the row's position.
template <class Lane>
QPN_HD kv_halves make_kv(Lane& lane, store_kv_params const& p, head_weights const& weights,
                         std::int64_t row, int head, int shared_at) {
  float const* const source = p.kv + row * p.kv_stride;
  int const id = lane.thread() % warp_size;
  float key[values_per_lane];
  norm_and_rotate(lane, p.rope, weights, source + head * head_dim, shared_at, key);
  float value[values_per_lane];
  bool is_number = true;
  QPN_UNROLL
  for (int j = 0; j < values_per_lane; ++j) {
    value[j] = lane.load(source + (p.kv_heads + head) * head_dim + id + warp_size * j);
    is_number = is_number && value[j] == value[j];
  }
  bool const all_numbers = !lane.any(!is_number);
  constexpr std::uint32_t no_numbers = 0x7fff7fff;
  kv_halves halves;
  QPN_UNROLL
  for (int i = 0; i < kv_halves::pairs; ++i) {
    auto const pair = [&](float low, float high) {
      return saturated_half(lane, low) | std::uint32_t{saturated_half(lane, high)} << 16;
    };
    halves.key[i] = all_numbers ? pair(key[2 * i], key[2 * i + 1]) : no_numbers;
    halves.value[i] = all_numbers ? pair(value[2 * i], value[2 * i + 1]) : 0;
  }
  return halves;
}

/// A warp writes them to their slot of the cache, in `page`.
template <class Lane>
QPN_HD void store_kv(Lane& lane, store_kv_params const& p, kv_halves const& halves,
                     std::int64_t page, int head, std::int64_t slot) {
  std::int64_t const target =
      ((page * p.kv_heads + head) * kv_page_tokens + slot % kv_page_tokens) * head_dim +
      lane.thread() % warp_size;
  QPN_UNROLL
  for (int j = 0; j < values_per_lane; ++j) {
    lane.store(p.keys + target + warp_size * j, kv_halves::half(halves.key, j));
    lane.store(p.values + target + warp_size * j, kv_halves::half(halves.value, j));
  }
}

template <class Lane>
QPN_HD void run_program(Lane& lane, store_kv_params const& p) {
  constexpr int warps = store_kv_params::threads / warp_size;
  std::int64_t const task = std::int64_t{lane.block()} * warps + lane.thread() / warp_size;
  std::int64_t const row = task / p.kv_heads;
  int const head = static_cast<int>(task % p.kv_heads);
  if (row >= p.rows) {
    lane.wait_previous();
    return;
  }
  span_entry const span = lane.load(p.pass.spans + lane.load(p.pass.row_spans + row));
  std::int64_t const slot = position_of(span, row) + p.pass.slot_offset;
  std::int64_t const page = lane.load(p.pass.pages + span.first_page + slot / kv_page_tokens);
  head_weights const weights = load_head_weights(lane, p.rope);
  find_angles(lane, p.rope, position_of(span, row), 0);
  lane.wait_previous();
  store_kv(lane, p, make_kv(lane, p, weights, row, head, 0), page, head, slot);
}

/// queries[row, head, :] = the normed and rotated query times `scale`. One warp a row and head.
struct prepare_queries_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 1;
  static constexpr bool waits_itself = true;
  static constexpr int shared_bytes = threads / warp_size * rope_shared_bytes;

  pass_view pass;
  rope_params rope;
  float const* q_gate = nullptr;  ///< per head query, gate
  std::int64_t q_gate_stride = 0;
  std::int64_t rows = 0;
  int heads = 0;
  output_rows queries;  ///< [rows][heads * head_dim]
  float scale = 1;

  [[nodiscard]] std::int64_t blocks() const { return divide_up(rows * heads, threads / warp_size); }
};

/// @param block  of the program's own
template <class Lane>
QPN_HD void prepare_queries(Lane& lane, prepare_queries_params const& p, std::int64_t block) {
  constexpr int warps = prepare_queries_params::threads / warp_size;
  int const id = lane.thread() % warp_size;
  std::int64_t const task = block * warps + lane.thread() / warp_size;
  std::int64_t const row = task / p.heads;
  if (row >= p.rows) {
    lane.wait_previous();
    return;
  }
  span_entry const span = lane.load(p.pass.spans + lane.load(p.pass.row_spans + row));
  head_weights const weights = load_head_weights(lane, p.rope);
  find_angles(lane, p.rope, position_of(span, row), 0);
  lane.wait_previous();
  float query[values_per_lane];
  norm_and_rotate(lane, p.rope, weights,
                  p.q_gate + row * p.q_gate_stride + task % p.heads * 2 * head_dim, 0, query);
  QPN_UNROLL
  for (int j = 0; j < values_per_lane; ++j) {
    store_value(lane, p.queries, row, task % p.heads * head_dim + id + warp_size * j,
                query[j] * p.scale);
  }
}

template <class Lane>
QPN_HD void run_program(Lane& lane, prepare_queries_params const& p) {
  prepare_queries(lane, p, lane.block());
}

/// Both of these, in one launch.
struct prepare_heads_params {
  static constexpr int threads = store_kv_params::threads;
  static constexpr int min_blocks = 1;
  static constexpr bool waits_itself = true;
  static constexpr int shared_bytes = store_kv_params::shared_bytes;
  static_assert(prepare_queries_params::threads == threads &&
                prepare_queries_params::shared_bytes == shared_bytes);

  store_kv_params kv;
  prepare_queries_params queries;

  [[nodiscard]] std::int64_t blocks() const { return kv.blocks() + queries.blocks(); }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, prepare_heads_params const& p) {
  std::int64_t const first_of_queries = p.kv.blocks();
  if (lane.block() < first_of_queries) {
    run_program(lane, p.kv);
  } else {
    prepare_queries(lane, p.queries, lane.block() - first_of_queries);
  }
}

}  // namespace qwen38::ops::cuda
