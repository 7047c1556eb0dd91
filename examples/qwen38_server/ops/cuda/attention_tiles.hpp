// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <qpn/detail/lane_types.hpp>
#include <type_traits>

#include "ops/cuda/attention_block.hpp"
#include "ops/cuda/attention_tiles_params.hpp"
#include "ops/tensor_limits.hpp"

namespace qwen38::ops::cuda {

/// Four consecutive fp16.
struct alignas(8) word2 {
  std::uint32_t w[2];
};

/// One thread of the program. Thread (g, t) of a warp has of every 16 queries g and g + 8; index
/// 2 tile + half names one of its queries.
template <class Lane, class Params>
class attention_tiles_thread {
 public:
  QPN_HD attention_tiles_thread(Lane& lane, Params const& p, attention_block const& b)
      : lane_(lane),
        p_(p),
        b_(b),
        warp_(lane.thread() / warp_size),
        g_(lane.thread() % warp_size / 4),
        t_(lane.thread() % 4) {
    QPN_UNROLL
    for (int i = 0; i < own; ++i) last_[i] = b.last_slot_of(query(i));
    clear();
  }

  QPN_HD void run() {
    std::int64_t const beyond = first_slot_of(b_.partition + b_.partitions);
    int const first = static_cast<int>(first_slot_of(b_.partition)) / tile_slots;
    int const end =
        (beyond <= b_.last_slot ? static_cast<int>(beyond) : b_.last_slot + tile_slots) /
        tile_slots;
    std::int64_t page = page_of(first);
    new_row made;
    head_weights weights;
    head_weights key_weights;
    if constexpr (Params::prepares) {
      made = find_new_row(first_slot_of(b_.partition), beyond);
      weights = load_head_weights(lane_, p_.rope);
      if (made.slot >= 0) {
        key_weights = load_head_weights(lane_, p_.store.rope);
        find_angles(made.row);
      } else if (warp_ < b_.queries) {
        find_angles(row_of(warp_));
      }
    }
    // The launch before may still write what the pass has of keys and values, but for what this one
    // makes of them.
    bool const is_there =
        made.makes || std::int64_t{first + 1} * tile_slots <= first_slot_of_span();
    if (is_there) copy_tile<false>(first, page, 0, made.makes);
    lane_.wait_previous();
    if constexpr (!Params::prepares) copy_queries();
    if (!is_there) copy_tile<false>(first, page, 0);
    lane_.commit_copies();
    copy_tile<true>(first, page, 1, made.makes);
    lane_.commit_copies();
    if constexpr (Params::prepares) {
      if (made.slot >= 0) make_new_row(key_weights, made, first);
      prepare_queries(weights);
    }
    int place = 0;  // of the tile's K
    QPN_NO_UNROLL
    for (int tile = first; tile < end; ++tile) {
      int const place_of_values = next(place);
      bool const more = tile + 1 < end;
      lane_.template wait_copies<has_spare ? 1 : 0>();
      lane_.sync_block();  // K is there, and nobody reads the V before
      if (!has_spare && tile != first) copy_tile<true>(tile, page, place_of_values);
      if (more) page = page_of(tile + 1);
      if (has_spare && more) copy_tile<false>(tile + 1, page, next(place_of_values));
      lane_.commit_copies();
      find_scores(tile, place);
      lane_.sync_block();  // the largest scores are there, and nobody reads K
      if constexpr (!has_spare) {
        if (more) copy_tile<false>(tile + 1, page, place);
        lane_.commit_copies();
      }
      weigh(tile);
      lane_.template wait_copies<1>();
      lane_.sync_block();  // weights and V are there
      if constexpr (has_spare) {
        if (more) copy_tile<true>(tile + 1, page, place);
        lane_.commit_copies();
      }
      add_values(place_of_values);
      if constexpr (has_spare) place = next(place_of_values);
      if constexpr (folds) {
        std::int64_t const next_slot = std::int64_t{tile + 1} * tile_slots;
        std::int64_t const partition = partition_of(next_slot - 1);
        if (!more || partition_of(next_slot) != partition) {
          fold_partition(static_cast<int>(first_slot_of(partition)));
        }
      }
    }
    store();
  }

 private:
  static constexpr int tiles = Params::queries_per_block / 16;
  static constexpr int own = 2 * tiles;  ///< queries of the thread
  static constexpr int tile_slots = Params::tile_slots;
  static constexpr int row_bytes = Params::row_bytes;
  static constexpr int columns = head_dim / Params::warps / 8;  ///< blocks of 8 elements of a warp
  static constexpr bool folds = Params::folds;
  static constexpr bool has_spare = Params::has_spare_place;
  static_assert(tile_slots == kv_page_tokens && columns == 4);

  /// What is kept of a partition, and of all before.
  struct running_sums {
    float values[tiles][columns][4];
    float maximum[own];
    float mass[4];  ///< of the 16 queries whose number is the warp's; 0 and 2 are used
  };

  [[nodiscard]] QPN_HD static int next(int place) {
    return place + 1 < Params::places ? place + 1 : 0;
  }
  [[nodiscard]] QPN_HD int query(int i) const { return i / 2 * 16 + i % 2 * 8 + g_; }

  QPN_HD static void clear(running_sums& sums) {
    QPN_UNROLL
    for (int i = 0; i < tiles * columns * 4; ++i) {
      sums.values[i / 4 / columns][i / 4 % columns][i % 4] = 0;
    }
    QPN_UNROLL
    for (int i = 0; i < own; ++i) sums.maximum[i] = -INFINITY;
    QPN_UNROLL
    for (int i = 0; i < 4; ++i) sums.mass[i] = 0;
  }
  QPN_HD void clear() {
    clear(sums_);
    if constexpr (folds) clear(folded_);
  }

  [[nodiscard]] QPN_HD std::int64_t page_of(int tile) {
    return lane_.load(p_.pass.pages + b_.span.first_page + tile);
  }

  /// Rows of K and Q have the 16-byte pieces of odd rows exchanged by fours, those of V by the
  /// row's number over 4: whoever reads them then meets no bank twice.
  [[nodiscard]] QPN_HD static int row_place(int row, int piece) {
    return row * row_bytes + (piece ^ ((row & 1) << 2)) * 16;
  }
  [[nodiscard]] QPN_HD static int value_place(int row, int piece) {
    return row * row_bytes + (piece ^ ((row >> 2 & 3) << 1)) * 16;
  }

  QPN_HD void copy_queries() {
    int const piece = lane_.thread() % warp_size;
    QPN_UNROLL
    for (int j = 0; j < Params::queries_per_block / Params::warps; ++j) {
      int const row = warp_ + Params::warps * j;
      bool const held = row < b_.queries;
      std::int64_t const from = b_.row_and_head(held ? row : 0, p_.heads) * head_dim + piece * 8;
      lane_.copy_async(Params::queries_at + row_place(row, piece), p_.queries + from, held);
    }
  }

  // As prepare_queries_params and store_kv_params do, to shared memory; the ring's last place is
  // free yet.

  static constexpr int scratch = (Params::places - 1) * Params::tile_bytes;
  static_assert(!Params::prepares || Params::warps * rope_shared_bytes <= Params::tile_bytes);

  /// Of the span.
  [[nodiscard]] QPN_HD int row_of(int query) const { return (b_.first_query + query) / b_.group; }

  /// The warp has the angles of a row of the span.
  QPN_HD void find_angles(int row) {
    if (row == angles_.row) return;
    angles_.row = row;
    cuda::find_angles(lane_, p_.rope, b_.span.position + row, scratch);
  }
  QPN_HD void prepare_queries(head_weights const& weights) {
    int const id = lane_.thread() % warp_size;
    QPN_NO_UNROLL
    for (int query = warp_; query < Params::queries_per_block; query += Params::warps) {
      float value[values_per_lane] = {};
      if (query < b_.queries) {
        std::int64_t const index = b_.row_and_head(query, p_.heads);
        find_angles(row_of(query));
        norm_and_rotate(
            lane_, p_.rope, weights,
            p_.q_gate + index / p_.heads * p_.q_gate_stride + index % p_.heads * 2 * head_dim,
            scratch, value);
      }
      QPN_UNROLL
      for (int j = 0; j < values_per_lane; ++j) {
        int const d = id + warp_size * j;
        lane_.shared_store(Params::queries_at + row_place(query, d / 8) + d % 8 * 2,
                           saturated_half(lane_, value[j]));
      }
      lane_.sync_warp();  // the warp's scratch is read no more
    }
  }

  /// The row of the pass whose keys and values the warp makes.
  struct new_row {
    bool makes = false;  ///< the launch makes those of the pass
    int row = 0;         ///< of the span
    int slot = -1;       ///< -1: the warp has none
  };
  /// Slots from `first` to before `beyond` are the CTA's. The last warps have a row, as the first
  /// ones have queries.
  [[nodiscard]] QPN_HD new_row find_new_row(std::int64_t first, std::int64_t beyond) const {
    new_row made;
    made.makes = p_.store.kv != nullptr;
    made.row = Params::warps - 1 - warp_;
    std::int64_t const slot = first_slot_of_span() + made.row;
    bool const is_of_cta = slot >= first && slot < beyond && slot <= b_.last_slot;
    if (made.makes && made.row < b_.span.rows && is_of_cta) made.slot = static_cast<int>(slot);
    return made;
  }
  /// Behind find_angles() of the row. Every CTA whose queries see the row makes it, and puts it
  /// into the first tile, if it is there; the one that has its first query stores it, and takes it
  /// from the cache if it belongs to a later tile.
  QPN_HD void make_new_row(head_weights const& weights, new_row const& made, int first_tile) {
    std::int64_t const row = b_.span.first_row + made.row;
    kv_halves const halves = make_kv(lane_, p_.store, weights, row, b_.kv_head, scratch);
    lane_.sync_warp();  // the warp's scratch is read no more
    if (made.slot / tile_slots == first_tile) {
      int const in_tile = made.slot % tile_slots;
      QPN_UNROLL
      for (int j = 0; j < values_per_lane; ++j) {
        int const d = lane_.thread() % warp_size + warp_size * j;
        lane_.shared_store(row_place(in_tile, d / 8) + d % 8 * 2, kv_halves::half(halves.key, j));
        lane_.shared_store(Params::tile_bytes + value_place(in_tile, d / 8) + d % 8 * 2,
                           kv_halves::half(halves.value, j));
      }
    }
    int const query = made.row * b_.group - b_.first_query;
    if (query < 0 || query >= b_.queries) return;
    std::int64_t const page = page_of(made.slot / tile_slots);
    store_kv(lane_, p_.store, halves, page, b_.kv_head, made.slot);
  }
  /// The first that the pass has keys and values for.
  [[nodiscard]] QPN_HD std::int64_t first_slot_of_span() const {
    return b_.span.position + b_.first_slot_held;
  }

  /// What the cache has of a tile of K or V; zeros where nothing is held that a query sees.
  /// @param only_before  leaves out what is seen of the pass itself
  template <bool Values>
  QPN_HD void copy_tile(int tile, std::int64_t page, int place, bool only_before = false) {
    int const piece = lane_.thread() % warp_size;
    std::uint16_t const* const from =
        (Values ? p_.values : p_.keys) +
        (page * p_.kv_heads + b_.kv_head) * kv_page_tokens * head_dim + piece * 8;
    int const at = place * Params::tile_bytes;
    QPN_UNROLL
    for (int j = 0; j < tile_slots / Params::warps; ++j) {
      int const row = warp_ + Params::warps * j;
      int const slot = tile * tile_slots + row;
      bool const held = slot >= b_.first_slot_held && slot <= b_.last_slot;
      if (only_before && held && slot >= first_slot_of_span()) continue;
      int const to = at + (Values ? value_place(row, piece) : row_place(row, piece));
      lane_.copy_async(to, from + row * head_dim, held);
    }
  }

  /// scores_[tile] = the warp's 8 slots, times log2(e) / 16, -infinity where they are not seen; the
  /// largest of each query go to shared memory. The order of head_dim is that in which 16 bytes
  /// serve two products; even and odd ones are summed apart.
  QPN_HD void find_scores(int tile, int place) {
    using qpn::detail::word4;
    float odd[tiles][4] = {};
    QPN_UNROLL
    for (int i = 0; i < tiles * 4; ++i) scores_[i / 4][i % 4] = 0;
    // row_place(g, 4 step + t) for even and odd steps; what else there is to an address is
    // constant.
    int const parts[2] = {row_place(g_, t_), row_place(g_, 4 + t_)};
    int const key = place * Params::tile_bytes + 8 * warp_ * row_bytes;
    QPN_UNROLL
    for (int step = 0; step < head_dim / 32; ++step) {
      int const part = parts[step % 2] + step / 2 * 128;
      word4 const k = lane_.template shared_load<word4>(key + part);
      std::uint32_t const even_k[2] = {k.w[0], k.w[1]};
      std::uint32_t const odd_k[2] = {k.w[2], k.w[3]};
      QPN_UNROLL
      for (int i = 0; i < tiles; ++i) {
        int const at = Params::queries_at + 16 * i * row_bytes + part;
        word4 const low = lane_.template shared_load<word4>(at);
        word4 const high = lane_.template shared_load<word4>(at + 8 * row_bytes);
        std::uint32_t const even_q[4] = {low.w[0], high.w[0], low.w[1], high.w[1]};
        std::uint32_t const odd_q[4] = {low.w[2], high.w[2], low.w[3], high.w[3]};
        lane_.mma_m16n8k16(scores_[i], even_q, even_k);
        lane_.mma_m16n8k16(odd[i], odd_q, odd_k);
      }
    }
    constexpr float scale = 0.0901684400555602F;  // log2(e) / sqrt(head_dim)
    int const first = tile * tile_slots + 8 * warp_ + 2 * t_;
    QPN_UNROLL
    for (int i = 0; i < own; ++i) {
      float largest = -INFINITY;
      QPN_UNROLL
      for (int e = 0; e < 2; ++e) {
        float& score = scores_[i / 2][i % 2 * 2 + e];
        bool const seen = first + e >= b_.first_slot_held && first + e <= last_[i];
        score = seen ? (score + odd[i / 2][i % 2 * 2 + e]) * scale : -INFINITY;
        largest = score > largest ? score : largest;
      }
      for (int mask = 1; mask < 4; mask *= 2) {
        float const other = shuffle(lane_, largest, mask);
        largest = other > largest ? other : largest;
      }
      if (t_ == 0) {
        lane_.shared_store(Params::maxima_at + (query(i) * Params::warps + warp_) * 4, largest);
      }
    }
  }

  /// The scores become fp16 weights 2^(score - maximum) in shared memory; what was summed before is
  /// brought to the new maximum.
  QPN_HD void weigh(int tile) {
    int const first = tile * tile_slots;
    QPN_UNROLL
    for (int i = 0; i < own; ++i) {
      float largest = sums_.maximum[i];
      QPN_UNROLL
      for (int four = 0; four < Params::warps / 4; ++four) {
        float4_pack const part = lane_.template shared_load<float4_pack>(
            Params::maxima_at + (query(i) * Params::warps + 4 * four) * 4);
        QPN_UNROLL
        for (int e = 0; e < 4; ++e) largest = part.v[e] > largest ? part.v[e] : largest;
      }
      // A tile of which the query sees nothing leaves its sums as they are.
      bool const any = first <= last_[i] && first + tile_slots > b_.first_slot_held;
      float const factor = any ? lane_.exp2(sums_.maximum[i] - largest) : 1.0F;
      float weight[2];
      QPN_UNROLL
      for (int e = 0; e < 2; ++e) {
        float const score = scores_[i / 2][i % 2 * 2 + e];
        weight[e] = score == -INFINITY ? 0.0F : lane_.exp2(score - largest);
      }
      lane_.shared_store(
          Params::weights_at + query(i) * Params::weight_row_bytes + (8 * warp_ + 2 * t_) * 2,
          lane_.convert_half2(weight[0], weight[1]));
      if (any) sums_.maximum[i] = largest;
      QPN_UNROLL
      for (int j = 0; j < columns; ++j) {
        QPN_UNROLL
        for (int e = 0; e < 2; ++e) sums_.values[i / 2][j][i % 2 * 2 + e] *= factor;
      }
      if (warp_ == i / 2) sums_.mass[i % 2 * 2] *= factor;
    }
  }

  /// values += weights V; mass += weights. A thread's column j of 8 has of its warp's 32 elements
  /// those of 4 n + j, n = 0..7.
  QPN_HD void add_values(int place) {
    // Rows 16 step + 4 t + i have their pieces exchanged alike.
    int const value =
        place * Params::tile_bytes + value_place(4 * t_, 4 * warp_ + g_ / 2) + g_ % 2 * 8;
    QPN_UNROLL
    for (int step = 0; step < tile_slots / 16; ++step) {
      int const slot = 16 * step + 4 * t_;
      word2 four[4];
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) {
        four[i] = lane_.template shared_load<word2>(value + (16 * step + i) * row_bytes);
      }
      std::uint32_t v[columns][2];
      QPN_UNROLL
      for (int j = 0; j < columns; ++j) {
        std::uint32_t const halves = j % 2 == 0 ? 0x5410U : 0x7632U;
        v[j][0] = lane_.byte_permute(four[0].w[j / 2], four[1].w[j / 2], halves);
        v[j][1] = lane_.byte_permute(four[2].w[j / 2], four[3].w[j / 2], halves);
      }
      QPN_UNROLL
      for (int i = 0; i < tiles; ++i) {
        int const at = Params::weights_at + (16 * i + g_) * Params::weight_row_bytes + slot * 2;
        word2 const low = lane_.template shared_load<word2>(at);
        word2 const high = lane_.template shared_load<word2>(at + 8 * Params::weight_row_bytes);
        std::uint32_t const weight[4] = {low.w[0], high.w[0], low.w[1], high.w[1]};
        QPN_UNROLL
        for (int j = 0; j < columns; ++j) {
          lane_.mma_m16n8k16(sums_.values[i][j], weight, v[j]);
        }
        if (warp_ == i) {
          std::uint32_t const ones[2] = {0x3c003c00U, 0x3c003c00U};
          lane_.mma_m16n8k16(sums_.mass, weight, ones);
        }
      }
    }
  }

  /// Adds the partition that starts at `first` to those before and starts the next.
  QPN_HD void fold_partition(int first) {
    QPN_UNROLL
    for (int i = 0; i < own; ++i) {
      if (first > last_[i]) continue;
      fold_factors const factors = factors_of(lane_, folded_.maximum[i], sums_.maximum[i]);
      if (sums_.maximum[i] > folded_.maximum[i]) folded_.maximum[i] = sums_.maximum[i];
      QPN_UNROLL
      for (int j = 0; j < columns; ++j) {
        QPN_UNROLL
        for (int e = i % 2 * 2; e < i % 2 * 2 + 2; ++e) {
          float& sum = folded_.values[i / 2][j][e];
          sum = lane_.fma(sums_.values[i / 2][j][e], factors.next, sum * factors.before);
        }
      }
      float& mass = folded_.mass[i % 2 * 2];
      if (warp_ == i / 2) {
        mass = lane_.fma(sums_.mass[i % 2 * 2], factors.next, mass * factors.before);
      }
    }
    clear(sums_);
  }

  QPN_HD void store() {
    running_sums const& all = result();
    QPN_UNROLL
    for (int i = 0; i < own; ++i) {
      std::int64_t const entry = b_.entry(query(i), p_.heads);
      if (entry < 0) continue;
      if (warp_ == i / 2 && t_ == 0) {
        lane_.store(p_.out.sums + entry, softmax_sum{all.maximum[i], all.mass[i % 2 * 2]});
      }
      QPN_UNROLL
      for (int n = 0; n < 2; ++n) {
        float4_pack four;
        QPN_UNROLL
        for (int j = 0; j < columns; ++j) four.v[j] = all.values[i / 2][j][i % 2 * 2 + n];
        lane_.store(reinterpret_cast<float4_pack*>(p_.out.numerators + entry * head_dim +
                                                   32 * warp_ + 8 * t_ + 4 * n),
                    four);
      }
    }
  }
  [[nodiscard]] QPN_HD running_sums const& result() const {
    if constexpr (folds) {
      return folded_;
    } else {
      return sums_;
    }
  }

  struct row_angles {
    int row = -1;  ///< of the span, that the warp's scratch has the angles of
  };
  struct nothing {};

  Lane& lane_;
  Params const& p_;
  attention_block const& b_;
  int warp_;
  int g_;
  int t_;
  int last_[own];
  float scores_[tiles][4];
  running_sums sums_;
  std::conditional_t<folds, running_sums, nothing> folded_;
  std::conditional_t<Params::prepares, row_angles, nothing> angles_;
};

template <class Lane, int Tiles, bool Folds>
QPN_HD void run_program(Lane& lane, attention_tiles_params<Tiles, Folds> const& p) {
  using params = attention_tiles_params<Tiles, Folds>;
  attention_block b{};
  if (!find_block(lane, p, params::queries_per_block, b)) {
    lane.wait_previous();
    return;
  }
  attention_tiles_thread<Lane, params>(lane, p, b).run();
}

}  // namespace qwen38::ops::cuda
