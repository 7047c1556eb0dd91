// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <qpn/detail/lane_types.hpp>

#include "ops/cuda/attention_partitions.hpp"
#include "ops/cuda/lane_math.hpp"
#include "ops/cuda/pass_view.hpp"
#include "ops/cuda/rope_kv.hpp"
#include "ops/tensor_limits.hpp"

namespace qwen38::ops::cuda {

/// Sums of a query's partitions: entry (row * heads + head) * partitions + partition.
struct attention_sums {
  float* numerators = nullptr;  ///< [entries][head_dim]
  softmax_sum* sums = nullptr;  ///< [entries]
  std::int64_t partitions = 0;  ///< places per query
  /// One CTA goes through all partitions of its queries and leaves their folded sum in the first
  /// place, instead of one CTA for each partition. No bit depends on it.
  bool folded = false;
};

/// Softmax attention over the keys of a sequence. A CTA has 16 queries of one span and kv head,
/// rows times the heads that share it, and goes through tiles of 32 slots: K to shared memory,
/// scores, softmax, V over K, numerators.
struct attention_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 2;
  static constexpr int queries_per_block = 16;
  static constexpr int tile_slots = 32;

  static constexpr int kv_row_bytes = head_dim * 2 + 64;  ///< two rows are 64 bytes apart in banks
  static constexpr int weight_row_bytes = (queries_per_block + 4) * 4;
  static constexpr int queries_at = 0;  ///< f32 [16][head_dim]
  static constexpr int tile_at = queries_at + queries_per_block * head_dim * 4;
  static constexpr int weights_at = tile_at + tile_slots * kv_row_bytes;  ///< f32 [slot][query]
  static constexpr int factors_at = weights_at + tile_slots * weight_row_bytes;  ///< f32 [2][16]
  static constexpr int shared_bytes = factors_at + 2 * queries_per_block * 4;

  pass_view pass;
  float const* queries = nullptr;  ///< [rows][heads][head_dim], scaled
  int heads = 0;
  int kv_heads = 0;
  std::uint16_t const* keys = nullptr;  ///< of the layer [page][kv head][slot][head_dim]
  std::uint16_t const* values = nullptr;
  attention_sums out;
  std::int64_t query_tiles = 0;  ///< most of any span

  /// CTAs of spans with fewer tiles or partitions have nothing to do.
  [[nodiscard]] QPN_HD std::int64_t runs() const { return out.folded ? 1 : out.partitions; }
  [[nodiscard]] std::int64_t blocks() const {
    return pass.span_count * query_tiles * runs() * kv_heads;
  }
};

static_assert(attention_params::shared_bytes <= 48 * 1024);

/// What the parts of the program share.
struct attention_block {
  span_entry span;
  int kv_head;
  int group;            ///< query heads of a kv head
  int first_query;      ///< of the span and kv head: row * group + head of the group
  int queries;          ///< of the CTA, 1 to 16
  int first_slot_held;  ///< slots before hold nothing
  int last_slot;        ///< that any of the queries sees

  /// The last slot that a query of the CTA sees; -1 for none.
  [[nodiscard]] QPN_HD int last_slot_of(int query, int slot_offset) const {
    if (query >= queries) return -1;
    return static_cast<int>(span.position) + (first_query + query) / group + slot_offset;
  }
  /// (row, head) of a query as one index.
  [[nodiscard]] QPN_HD std::int64_t row_and_head(int query, int heads) const {
    int const index = first_query + query;
    return (span.first_row + index / group) * std::int64_t{heads} + kv_head * group + index % group;
  }
};

/// 64 bytes of a tile's K or V, a quarter of what a thread moves at once.
struct tile_part {
  qpn::detail::word4 word[4];
};

/// Thread's part of 32 slots from `first`; zero where there is nothing to read.
template <class Lane>
QPN_HD void load_tile(Lane& lane, attention_params const& p, attention_block const& b,
                      std::uint16_t const* cache, int first, tile_part& part) {
  std::int64_t const page = lane.load(p.pass.pages + b.span.first_page + first / kv_page_tokens);
  std::int64_t const row =
      (page * p.kv_heads + b.kv_head) * kv_page_tokens + first % kv_page_tokens;
  QPN_UNROLL
  for (int j = 0; j < 4; ++j) {
    int const slot = lane.thread() / warp_size + 8 * j;
    bool const held = first + slot >= b.first_slot_held && first + slot <= b.last_slot;
    std::uint16_t const* const at = cache + (row + slot) * head_dim + lane.thread() % warp_size * 8;
    part.word[j] = held ? lane.load(reinterpret_cast<qpn::detail::word4 const*>(at))
                        : qpn::detail::word4{{0, 0, 0, 0}};
  }
}

template <class Lane>
QPN_HD void store_tile(Lane& lane, tile_part const& part) {
  QPN_UNROLL
  for (int j = 0; j < 4; ++j) {
    int const slot = lane.thread() / warp_size + 8 * j;
    lane.shared_store(attention_params::tile_at + slot * attention_params::kv_row_bytes +
                          lane.thread() % warp_size * 16,
                      part.word[j]);
  }
}

/// Four consecutive fp16 of a row in shared memory.
template <class Lane>
QPN_HD void load_four(Lane& lane, int offset, float (&value)[4]) {
  struct alignas(8) word2 {
    std::uint32_t w[2];
  };
  word2 const bits = lane.template shared_load<word2>(offset);
  qpn::detail::float2_pair const low = lane.half_pair(bits.w[0]);
  qpn::detail::float2_pair const high = lane.half_pair(bits.w[1]);
  value[0] = low.low;
  value[1] = low.high;
  value[2] = high.low;
  value[3] = high.high;
}

/// Scores of the tile's 32 slots for the 16 queries, to the weights' place. A thread has 4 queries,
/// 4 slots and an eighth of head_dim; 8 lanes add up theirs in a fixed tree.
template <class Lane>
QPN_HD void score_tile(Lane& lane) {
  using params = attention_params;
  int const warp = lane.thread() / warp_size;
  int const id = lane.thread() % warp_size;
  int const slice = id % 8;
  int const first_query = warp / 2 * 4;
  int const first_slot = warp % 2 * 4 + id / 8;  // then every eighth
  float sums[16] = {};
  QPN_NO_UNROLL
  for (int d = slice * 4; d < head_dim; d += 32) {
    float4_pack query[4];
    QPN_UNROLL
    for (int i = 0; i < 4; ++i) {
      query[i] = lane.template shared_load<float4_pack>(params::queries_at +
                                                        ((first_query + i) * head_dim + d) * 4);
    }
    QPN_UNROLL
    for (int j = 0; j < 4; ++j) {
      float key[4];
      load_four(lane, params::tile_at + (first_slot + 8 * j) * params::kv_row_bytes + d * 2, key);
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) {
        QPN_UNROLL
        for (int e = 0; e < 4; ++e) {
          sums[i * 4 + j] = lane.fma(query[i].v[e], key[e], sums[i * 4 + j]);
        }
      }
    }
  }
  // Each step hands half of the sums over, so that every lane ends with two of them.
  int kept = 0;
  QPN_UNROLL
  for (int step = 0; step < 3; ++step) {
    int const mask = 4 >> step;
    int const half = 8 >> step;
    bool const upper = (id & mask) != 0;
    QPN_UNROLL
    for (int e = 0; e < 8; ++e) {
      if (e >= half) continue;
      float const own = upper ? sums[half + e] : sums[e];
      float const other = upper ? sums[e] : sums[half + e];
      sums[e] = own + shuffle(lane, other, mask);
    }
    kept += upper ? half : 0;
  }
  QPN_UNROLL
  for (int e = 0; e < 2; ++e) {
    int const query = first_query + (kept + e) / 4;
    int const slot = first_slot + 8 * ((kept + e) % 4);
    lane.shared_store(params::weights_at + slot * params::weight_row_bytes + query * 4, sums[e]);
  }
}

/// A warp turns the scores of its two queries into weights exp(score - maximum); sums[i] goes on,
/// and the factor of what was summed before lies in the factors' first row.
template <class Lane>
QPN_HD void weigh_tile(Lane& lane, attention_params const& p, attention_block const& b, int first,
                       softmax_sum (&sums)[2]) {
  using params = attention_params;
  int const warp = lane.thread() / warp_size;
  int const id = lane.thread() % warp_size;
  QPN_UNROLL
  for (int i = 0; i < 2; ++i) {
    int const query = 2 * warp + i;
    int const last = b.last_slot_of(query, p.pass.slot_offset);
    int const at = params::weights_at + id * params::weight_row_bytes + query * 4;
    bool const seen = first + id >= b.first_slot_held && first + id <= last;
    float const score = lane.template shared_load<float>(at);
    float const largest = warp_maximum(lane, seen ? score : -INFINITY);
    float const maximum = largest > sums[i].maximum ? largest : sums[i].maximum;
    // A tile of which the query sees nothing leaves its sums as they are.
    bool const any = first <= last && first + params::tile_slots > b.first_slot_held;
    float const weight = seen ? lane.exp(score - maximum) : 0.0F;
    float const mass = warp_sum(lane, weight);
    float const before = any ? lane.exp(sums[i].maximum - maximum) : 1.0F;
    lane.shared_store(at, weight);
    if (id == 0) lane.shared_store(params::factors_at + query * 4, before);
    if (any) {
      sums[i].mass = lane.fma(sums[i].mass, before, mass);
      sums[i].maximum = maximum;
    }
  }
}

/// numerators[i][e] += weight * value for the thread's 4 queries and 4 elements.
template <class Lane>
QPN_HD void add_values(Lane& lane, attention_params const& p, attention_block const& b, int first,
                       float (&numerators)[4][4]) {
  using params = attention_params;
  int const warp = lane.thread() / warp_size;
  int const first_query = warp / 2 * 4;
  int const first_element = (warp % 2 * warp_size + lane.thread() % warp_size) * 4;
  float4_pack const factor =
      lane.template shared_load<float4_pack>(params::factors_at + first_query * 4);
  int last[4];
  bool all_seen = first >= b.first_slot_held;
  QPN_UNROLL
  for (int i = 0; i < 4; ++i) {
    last[i] = b.last_slot_of(first_query + i, p.pass.slot_offset);
    all_seen = all_seen && first + params::tile_slots - 1 <= last[i];
    QPN_UNROLL
    for (int e = 0; e < 4; ++e) numerators[i][e] *= factor.v[i];
  }
  auto const step = [&](int slot, auto seen) {
    float4_pack const weight = lane.template shared_load<float4_pack>(
        params::weights_at + slot * params::weight_row_bytes + first_query * 4);
    float value[4];
    load_four(lane, params::tile_at + slot * params::kv_row_bytes + first_element * 2, value);
    QPN_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (!seen(i)) continue;
      QPN_UNROLL
      for (int e = 0; e < 4; ++e) {
        numerators[i][e] = lane.fma(weight.v[i], value[e], numerators[i][e]);
      }
    }
  };
  if (all_seen) {
    for (int slot = 0; slot < params::tile_slots; ++slot) step(slot, [](int) { return true; });
    return;
  }
  // What a query does not see is left out, not added as 0: it may be no number.
  QPN_NO_UNROLL
  for (int slot = 0; slot < params::tile_slots; ++slot) {
    int const at = first + slot;
    if (at < b.first_slot_held) continue;
    step(slot, [&](int i) { return at <= last[i]; });
  }
}

/// Sums of one partition.
template <class Lane>
QPN_HD void sum_partition(Lane& lane, attention_params const& p, attention_block const& b,
                          std::int64_t partition, softmax_sum (&sums)[2],
                          float (&numerators)[4][4]) {
  using params = attention_params;
  int const begin = static_cast<int>(first_slot_of(partition));
  int const border = static_cast<int>(first_slot_of(partition + 1));
  int const end = border <= b.last_slot ? border : b.last_slot + 1;
  tile_part part;
  load_tile(lane, p, b, p.keys, begin, part);
  QPN_NO_UNROLL
  for (int first = begin; first < end; first += params::tile_slots) {
    lane.sync_block();  // everybody is done with the tile before
    store_tile(lane, part);
    lane.sync_block();
    load_tile(lane, p, b, p.values, first, part);  // travels meanwhile
    score_tile(lane);
    lane.sync_block();
    store_tile(lane, part);
    weigh_tile(lane, p, b, first, sums);
    lane.sync_block();
    int const next = first + params::tile_slots;
    if (next < end) load_tile(lane, p, b, p.keys, next, part);
    add_values(lane, p, b, first, numerators);
  }
}

template <class Lane>
QPN_HD void run_program(Lane& lane, attention_params const& p) {
  using params = attention_params;
  std::int64_t index = lane.block();
  attention_block b{};
  b.kv_head = static_cast<int>(index % p.kv_heads);
  index /= p.kv_heads;
  std::int64_t const run = index % p.runs();
  index /= p.runs();
  std::int64_t const query_tile = index % p.query_tiles;
  b.span = lane.load(p.pass.spans + index / p.query_tiles);
  b.group = p.heads / p.kv_heads;
  b.first_query = static_cast<int>(query_tile) * params::queries_per_block;
  int const queries_left = b.span.rows * b.group - b.first_query;
  if (queries_left <= 0) return;
  b.queries = queries_left < params::queries_per_block ? queries_left : params::queries_per_block;
  b.first_slot_held = p.pass.slot_offset;
  b.last_slot = b.last_slot_of(b.queries - 1, p.pass.slot_offset);
  std::int64_t const partitions = partition_of(b.last_slot) + 1;
  if (run >= partitions) return;

  int const warp = lane.thread() / warp_size;
  int const id = lane.thread() % warp_size;
  QPN_UNROLL
  for (int j = 0; j < 4; ++j) {  // four times four elements of one query
    int const query = lane.thread() / 16;
    int const d = lane.thread() % 16 * 4 + 64 * j;
    float4_pack values{};
    if (query < b.queries) {
      values = lane.load(reinterpret_cast<float4_pack const*>(
          p.queries + b.row_and_head(query, p.heads) * head_dim + d));
    }
    lane.shared_store(params::queries_at + (query * head_dim + d) * 4, values);
  }

  int const first_query = warp / 2 * 4;
  int const first_element = (warp % 2 * warp_size + id) * 4;
  softmax_sum folded[2] = {{-INFINITY, 0.0F}, {-INFINITY, 0.0F}};
  float total[4][4] = {};
  std::int64_t const begin = p.out.folded ? 0 : run;
  std::int64_t const end = p.out.folded ? partitions : run + 1;
  QPN_NO_UNROLL
  for (std::int64_t partition = begin; partition < end; ++partition) {
    softmax_sum sums[2] = {{-INFINITY, 0.0F}, {-INFINITY, 0.0F}};
    float numerators[4][4] = {};
    sum_partition(lane, p, b, partition, sums, numerators);
    if (!p.out.folded) {
      for (int i = 0; i < 2; ++i) folded[i] = sums[i];
      for (int i = 0; i < 4; ++i) {
        for (int e = 0; e < 4; ++e) total[i][e] = numerators[i][e];
      }
      continue;
    }
    lane.sync_block();  // the factors are still in use
    int const first = static_cast<int>(first_slot_of(partition));
    QPN_UNROLL
    for (int i = 0; i < 2; ++i) {
      int const query = 2 * warp + i;
      if (first > b.last_slot_of(query, p.pass.slot_offset)) continue;
      fold_factors const factors = fold(lane, folded[i], sums[i]);
      if (id != 0) continue;
      lane.shared_store(params::factors_at + query * 4, factors.before);
      lane.shared_store(params::factors_at + (params::queries_per_block + query) * 4, factors.next);
    }
    lane.sync_block();
    QPN_UNROLL
    for (int i = 0; i < 4; ++i) {
      int const query = first_query + i;
      if (first > b.last_slot_of(query, p.pass.slot_offset)) continue;
      float const before = lane.template shared_load<float>(params::factors_at + query * 4);
      float const next = lane.template shared_load<float>(params::factors_at +
                                                          (params::queries_per_block + query) * 4);
      QPN_UNROLL
      for (int e = 0; e < 4; ++e) {
        total[i][e] = lane.fma(numerators[i][e], next, total[i][e] * before);
      }
    }
  }

  auto const entry = [&](int query) {
    return b.row_and_head(query, p.heads) * p.out.partitions + (p.out.folded ? 0 : run);
  };
  auto const has_part = [&](int query) {
    return first_slot_of(begin) <= b.last_slot_of(query, p.pass.slot_offset);
  };
  QPN_UNROLL
  for (int i = 0; i < 2; ++i) {
    int const query = 2 * warp + i;
    if (id == 0 && has_part(query)) lane.store(p.out.sums + entry(query), folded[i]);
  }
  QPN_UNROLL
  for (int i = 0; i < 4; ++i) {
    int const query = first_query + i;
    if (!has_part(query)) continue;
    float4_pack const values{{total[i][0], total[i][1], total[i][2], total[i][3]}};
    lane.store(
        reinterpret_cast<float4_pack*>(p.out.numerators + entry(query) * head_dim + first_element),
        values);
  }
}

/// out[row, head, :] = the folded partitions, divided by their mass, times sigmoid(gate). One CTA a
/// row and head.
struct attention_output_params {
  static constexpr int threads = head_dim;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  pass_view pass;
  attention_sums in;
  float const* q_gate = nullptr;
  std::int64_t q_gate_stride = 0;
  output_rows out;
  std::int64_t rows = 0;
  int heads = 0;

  [[nodiscard]] std::int64_t blocks() const { return rows * heads; }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, attention_output_params const& p) {
  std::int64_t const row = lane.block() / p.heads;
  std::int64_t const head = lane.block() % p.heads;
  int const d = lane.thread();
  span_entry const span = lane.load(p.pass.spans + lane.load(p.pass.row_spans + row));
  std::int64_t const slot = position_of(span, row) + p.pass.slot_offset;
  std::int64_t const partitions = p.in.folded ? 1 : partition_of(slot) + 1;
  std::int64_t const entry = lane.block() * p.in.partitions;
  softmax_sum folded{-INFINITY, 0.0F};
  float sum = 0;
  for (std::int64_t i = 0; i < partitions; ++i) {
    fold_factors const factors = fold(lane, folded, lane.load(p.in.sums + entry + i));
    sum = lane.fma(lane.load(p.in.numerators + (entry + i) * head_dim + d), factors.next,
                   sum * factors.before);
  }
  float const gate = lane.load(p.q_gate + row * p.q_gate_stride + (2 * head + 1) * head_dim + d);
  store_value(lane, p.out, row, head * head_dim + d, sum / folded.mass * sigmoid(lane, gate));
}

}  // namespace qwen38::ops::cuda
