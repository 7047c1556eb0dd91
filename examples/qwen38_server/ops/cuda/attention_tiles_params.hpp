// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/attention_block.hpp"

namespace qwen38::ops::cuda {

/// Softmax attention on tensor cores (m16n8k16), for sm_80 and newer. A CTA of 8 warps has `Tiles`
/// times 16 queries and goes through tiles of 64 slots, one page each. For the scores a warp has 8
/// slots of the tile, for the products with V 32 elements of head_dim; weights go from one to the
/// other through shared memory. K and V of the tiles lie by turns in a ring of three places, two of
/// which travel while one is read. Where the queries leave no room for two such CTAs on a
/// multiprocessor there are two places, one for K and one for V, and one travels: what a CTA waits
/// for the other one hides.
///
/// Queries and weights are fp16: a score is off by at most 2^-11 |q| |k| / 16, a weight by 2^-11 of
/// itself or 2^-25; sums are fp32, and the mass is that of the rounded weights. The row of a query
/// in its tile, the other rows and `Tiles` change no bit: each of a row's products is added up in
/// the order of the slots alone.
template <int Tiles, bool Folds>
struct attention_tiles_params : attention_args {
  static constexpr bool folds = Folds;
  static constexpr int warps = 8;
  static constexpr int threads = warps * warp_size;
  static constexpr int min_blocks = Tiles > 1 && Folds ? 1 : 2;
  static constexpr bool waits_itself = true;
  static constexpr int queries_per_block = 16 * Tiles;
  static constexpr int tile_slots = 64;
  static constexpr int row_bytes = head_dim * 2;
  static constexpr bool has_spare_place = Tiles == 1 || Folds;
  static constexpr int places = has_spare_place ? 3 : 2;

  static constexpr int tile_bytes = tile_slots * row_bytes;
  static constexpr int queries_at = places * tile_bytes;        ///< f16 [query][head_dim]
  static constexpr int weight_row_bytes = tile_slots * 2 + 32;  ///< no bank conflicts
  static constexpr int weights_at = queries_at + queries_per_block * row_bytes;
  static constexpr int maxima_at = weights_at + queries_per_block * weight_row_bytes;
  static constexpr int shared_bytes = maxima_at + queries_per_block * warps * 4;

  /// With few queries each CTA norms and rotates its own while K and V travel, and so it does with
  /// the keys of up to `most_stored` rows of the pass, which need no launch before then.
  static constexpr bool prepares = Tiles == 1 && !Folds;
  static constexpr int most_stored = warps;

  std::uint16_t const* queries = nullptr;  ///< f16 [rows][heads][head_dim], where not `prepares`
  rope_params rope;
  float const* q_gate = nullptr;  ///< per head query, gate
  std::int64_t q_gate_stride = 0;
  /// What the pass has of keys and values, of spans of `most_stored` rows at most, where `prepares`
  /// and no launch before has stored it; else `kv` is null. All rows of the pass have a place for
  /// their sums then, and if a partition has several tiles, all queries of a span and kv head are
  /// in one CTA: one that made a row for its first tile alone could not take it from the cache.
  store_kv_params store;
};

using attention_few_params = attention_tiles_params<1, false>;
using attention_pair_params = attention_tiles_params<2, false>;
using attention_some_params = attention_tiles_params<3, false>;
using attention_few_folded_params = attention_tiles_params<1, true>;
using attention_some_folded_params = attention_tiles_params<3, true>;
using attention_many_folded_params = attention_tiles_params<4, true>;

}  // namespace qwen38::ops::cuda
