// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/attention_partitions.hpp"
#include "ops/cuda/lane_math.hpp"
#include "ops/cuda/pass_view.hpp"
#include "ops/cuda/rope_kv.hpp"

namespace qwen38::ops::cuda {

/// Sums of a query's partitions: entry ((row - first_row) * heads + head) * partitions + partition.
struct attention_sums {
  float* numerators = nullptr;  ///< [entries][head_dim]
  softmax_sum* sums = nullptr;  ///< [entries]
  std::int64_t partitions = 0;  ///< places per query
  int first_row = 0;            ///< of the pass, that has a place
  int rows = 0;                 ///< that have one
  /// One CTA goes through all partitions of its queries and leaves their folded sum in the first
  /// place, instead of one CTA for each partition. No bit depends on it.
  bool folded = false;

  [[nodiscard]] QPN_HD bool holds(std::int64_t row) const {
    return row >= first_row && row < first_row + rows;
  }
  [[nodiscard]] QPN_HD std::int64_t entry(std::int64_t row_and_head, int heads) const {
    return (row_and_head - first_row * std::int64_t{heads}) * partitions;
  }
};

/// What every attention kernel takes. A CTA has queries of one span and kv head, rows times the
/// heads that share it, and goes through the slots of one partition or of all.
struct attention_args {
  pass_view pass;
  int heads = 0;
  int kv_heads = 0;
  std::uint16_t const* keys = nullptr;  ///< of the layer [page][kv head][slot][head_dim]
  std::uint16_t const* values = nullptr;
  attention_sums out;
  std::int64_t query_tiles = 0;  ///< most of any span

  [[nodiscard]] QPN_HD std::int64_t runs() const { return out.folded ? 1 : out.partitions; }
  /// CTAs of spans with fewer tiles or partitions have nothing to do.
  [[nodiscard]] std::int64_t blocks() const {
    return pass.span_count * query_tiles * runs() * kv_heads;
  }
};

/// A CTA's part of the work.
struct attention_block {
  span_entry span;
  int kv_head;
  int group;                  ///< query heads of a kv head
  int first_query;            ///< of the span and kv head: row * group + head of the group
  int queries;                ///< of the CTA, 1 or more
  int first_slot_held;        ///< slots before hold nothing
  int last_slot;              ///< that any of the queries sees
  std::int64_t partition;     ///< the first
  std::int64_t partitions;    ///< of the CTA
  attention_sums const* out;  ///< where its sums go

  /// The last slot that a query of the CTA sees; -1 for none.
  [[nodiscard]] QPN_HD int last_slot_of(int query) const {
    if (query >= queries) return -1;
    return static_cast<int>(span.position) + (first_query + query) / group + first_slot_held;
  }
  /// (row, head) of a query as one index.
  [[nodiscard]] QPN_HD std::int64_t row_and_head(int query, int heads) const {
    int const index = first_query + query;
    return (span.first_row + index / group) * std::int64_t{heads} + kv_head * group + index % group;
  }
  /// Where the query's sums go; -1 for nowhere.
  [[nodiscard]] QPN_HD std::int64_t entry(int query, int heads) const {
    bool const any = first_slot_of(partition) <= last_slot_of(query);
    if (!any || !out->holds(span.first_row + (first_query + query) / group)) return -1;
    return out->entry(row_and_head(query, heads), heads) + (out->folded ? 0 : partition);
  }
};

/// The CTA's part, of `queries_per_block` queries at most; false where it has none. CTAs of the
/// last partitions, which are the longest, come first.
template <class Lane>
QPN_HD bool find_block(Lane& lane, attention_args const& p, int queries_per_block,
                       attention_block& b) {
  std::int64_t index = lane.block();
  b.kv_head = static_cast<int>(index % p.kv_heads);
  index /= p.kv_heads;
  b.partition = p.runs() - 1 - index % p.runs();
  index /= p.runs();
  b.span = lane.load(p.pass.spans + index / p.query_tiles);
  b.group = p.heads / p.kv_heads;
  b.first_query = static_cast<int>(index % p.query_tiles) * queries_per_block;
  b.first_slot_held = p.pass.slot_offset;
  b.out = &p.out;
  int const left = b.span.rows * b.group - b.first_query;
  if (left <= 0) return false;
  b.queries = left < queries_per_block ? left : queries_per_block;
  int const first_row = b.span.first_row + b.first_query / b.group;
  int const last_row = b.span.first_row + (b.first_query + b.queries - 1) / b.group;
  if (last_row < p.out.first_row || first_row >= p.out.first_row + p.out.rows) return false;
  b.last_slot = b.last_slot_of(b.queries - 1);
  std::int64_t const partitions = partition_of(b.last_slot) + 1;
  b.partitions = p.out.folded ? partitions : 1;
  return b.partition < partitions;
}

}  // namespace qwen38::ops::cuda
