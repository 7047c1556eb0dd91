// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm80/gemm_sums.hpp"
#include "qpn/arch/sm80/weight_operand.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/mma16_map.hpp"
#include "qpn/dtype.hpp"
#include "qpn/x_fragments.hpp"

// The GEMM of layout sm80_mma16 as a lane program: y[m, n] = x[m, k] w[n, k]^T for 8 * RowTiles
// rows of x, a row block, in one pass over the weight.
//
// The warps of a CTA share the k of a strip of 32 weight rows, or of 16, one half of it
// (detail/slice_split.hpp). Each one reads its records straight into registers, a batch while the
// one before is multiplied, and x through L1: no barrier and no shared memory before the sums of
// the slices are added, in their order. No order depends on m, on timing or on the other rows.

namespace qpn::detail::sm80 {

/// The rows of x that a lane loads: one of each row tile. Rows beyond m are row m - 1 again; their
/// sums are never stored.
template <class Operand, int RowTiles, x_order Order = x_order::rows>
struct x_rows {
  using words = typename Operand::x_words;

  /// Elements from a record's x to that of the next one.
  static constexpr int record_stride =
      Order == x_order::fragments ? tile_m * Operand::record_k : Operand::record_k;
  // Each lane has one load of a record: x_fragments_offset.
  static_assert(Order == x_order::rows ||
                (tile_m == x_fragments_tile_rows && Operand::record_k == x_fragments_record_k &&
                 Operand::lane_k == x_fragments_lane_k && Operand::fragments == 1 &&
                 Operand::batch * Operand::record_k == x_fragments_k_unit));

  std::uint16_t const* row[RowTiles];

  /// From k on, of the lane's quarter of a record.
  QPN_HD x_rows(gemm_params const& p, int first_row, int id, std::int64_t k) noexcept {
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) {
      int const wanted = first_row + i * tile_m + id / 4;
      int const kept = wanted < p.m ? wanted : p.m - 1;
      std::int64_t const at = k + id % 4 * Operand::lane_k;
      row[i] = p.x + (Order == x_order::fragments ? x_fragments_offset(kept, at, p.k)
                                                  : kept * p.ldx + at);
    }
  }

  /// Of row tile i, fragment f of the record `records` further on.
  template <class Lane>
  [[nodiscard]] QPN_HD words load(Lane& lane, int i, int records, int f) const noexcept {
    int const at = records * record_stride + f * 4 * Operand::steps;
    if constexpr (Operand::steps == 2) {
      return lane.load_words(reinterpret_cast<word4 const*>(row[i] + at));
    } else {
      return lane.load(reinterpret_cast<word2 const*>(row[i] + at));
    }
  }

  /// The same element by element, for any alignment; what lies at and beyond `left` of the row is
  /// not read and counts as 0.
  template <class Lane>
  QPN_HD void load_elements(Lane& lane, int f, std::int64_t left,
                            words (&x)[RowTiles]) const noexcept {
    static_assert(Order == x_order::rows);
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) {
      QPN_UNROLL
      for (int j = 0; j < 2 * Operand::steps; ++j) {
        int const at = f * 4 * Operand::steps + 2 * j;
        std::uint32_t const low = at < left ? lane.load(row[i] + at) : 0u;
        std::uint32_t const high = at + 1 < left ? lane.load(row[i] + at + 1) : 0u;
        x[i].w[j] = low | high << 16;
      }
    }
  }

  QPN_HD void advance(int records) noexcept {
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) row[i] += records * record_stride;
  }
};

/// acc[half][row tile] += fragment f of the weights times x. `scale`: of the halves' tiles, used
/// where the operand has block scales.
/// @param next  next(i) is called when x[i] has been used
template <class Operand, int RowTiles, int Halves, class Lane, class Next>
QPN_HD void multiply_fragment(Lane& lane, Operand const& weights, int f,
                              typename Operand::x_words (&x)[RowTiles], float const (&scale)[2],
                              float (&acc)[Halves][RowTiles][4], Next next) noexcept {
  std::uint32_t a[Halves][Operand::steps][4];
  QPN_UNROLL
  for (int h = 0; h < Halves; ++h) weights.fragment(lane, f, h, a[h]);
  QPN_UNROLL
  for (int i = 0; i < RowTiles; ++i) {
    float part[Halves][4] = {};
    QPN_UNROLL
    for (int s = 0; s < Operand::steps; ++s) {
      QPN_UNROLL
      for (int h = 0; h < Halves; ++h) {
        std::uint32_t const b[2] = {x[i].w[2 * s], x[i].w[2 * s + 1]};
        float(&sum)[4] = Operand::block_scales ? part[h] : acc[h][i];
        if constexpr (Operand::x_type == dtype::bf16) {
          lane.mma_m16n8k16_bf16(sum, a[h][s], b);
        } else {
          lane.mma_m16n8k16(sum, a[h][s], b);
        }
      }
    }
    next(i);
    if constexpr (Operand::block_scales) {
      QPN_UNROLL
      for (int h = 0; h < Halves; ++h) {
        QPN_UNROLL
        for (int r = 0; r < 4; ++r) acc[h][i][r] = lane.fma(scale[h], part[h][r], acc[h][i][r]);
      }
    }
  }
}

/// A warp's slice of a strip: its weights, and how far it has come.
template <class Operand, int RowTiles, int Halves>
struct slice_stream {
  /// Records that are loaded at once: a batch of the layout, or a part of one.
  static constexpr int records = gemm_policy<Operand, RowTiles>::records;
  static_assert(Operand::batch % records == 0);

  std::byte const* at;  ///< of the records that are in registers, or come next
  int half;
  Operand weights[records];
  float scale[2] = {1.0f, 1.0f};

  QPN_HD slice_stream(gemm_params const& p, strip_part part, int record) noexcept
      : at(p.records + (std::int64_t{part.strip} * p.steps + record) * Operand::record_bytes),
        half(part.half) {}

  /// Record j of those that come `turns` times `records` further on.
  template <class Lane>
  QPN_HD void load(Lane& lane, int turns, int j, int id) noexcept {
    std::byte const* const from = at + (turns * records + j) * Operand::record_bytes;
    if constexpr (Halves == 1) {
      weights[j].load_half(lane, from, id, half);
    } else {
      weights[j].load(lane, from, id);
    }
  }
  template <class Lane>
  QPN_HD void load_all(Lane& lane, int id) noexcept {
    QPN_UNROLL
    for (int j = 0; j < records; ++j) load(lane, 0, j, id);
  }

  /// The block scales of a record's k in both tiles of the strip.
  template <class Lane>
  QPN_HD static void load_scales(Lane& lane, gemm_params const& p, int strip, int record,
                                 float (&to)[2]) noexcept {
    if constexpr (Operand::block_scales) {
      int const column = record * Operand::record_k / static_cast<int>(scale_block);
      float const* const from =
          p.block_scales + std::int64_t{strip} / 2 * 2 * p.scale_columns + column;
      to[0] = lane.load(from);
      to[1] = lane.load(from + p.scale_columns);
    }
  }
};

/// Multiplies the records that are in registers; unless they are the Last ones, the first x behind
/// them travels meanwhile. x is that of the first fragment.
/// @param loaded  loaded(j) is called when record j has been multiplied
template <bool Last, class Operand, int RowTiles, int Halves, x_order Order, class Lane,
          class Loaded>
QPN_HD void multiply_records(Lane& lane, slice_stream<Operand, RowTiles, Halves> const& stream,
                             x_rows<Operand, RowTiles, Order> const& rows,
                             typename Operand::x_words (&x)[RowTiles],
                             float (&acc)[Halves][RowTiles][4], Loaded loaded) noexcept {
  constexpr int records = slice_stream<Operand, RowTiles, Halves>::records;
  QPN_UNROLL
  for (int j = 0; j < records; ++j) {
    QPN_UNROLL
    for (int f = 0; f < Operand::fragments; ++f) {
      bool const ends_record = f + 1 == Operand::fragments;
      multiply_fragment(lane, stream.weights[j], f, x, stream.scale, acc, [&](int i) {
        if (Last && ends_record && j + 1 == records) return;
        x[i] = rows.load(lane, i, ends_record ? j + 1 : j, ends_record ? 0 : f + 1);
      });
    }
    loaded(j);
  }
}

/// The records [record, last + records) of a slice, of which the first ones are on their way to
/// `stream`, x by 16-byte loads. Each record's registers are loaded again when it is multiplied.
/// @param record  counted up; in place, for a copy of it costs registers that the loop has not
template <class Operand, int RowTiles, int Halves, x_order Order, class Lane>
QPN_HD void multiply_turns(Lane& lane, gemm_params const& p, int strip, int& record, int last,
                           int id, slice_stream<Operand, RowTiles, Halves>& stream,
                           x_rows<Operand, RowTiles, Order>& rows,
                           typename Operand::x_words (&x)[RowTiles],
                           float (&acc)[Halves][RowTiles][4]) noexcept {
  constexpr int records = slice_stream<Operand, RowTiles, Halves>::records;
  stream.load_scales(lane, p, strip, record, stream.scale);
  QPN_NO_UNROLL
  for (; record < last; record += records) {
    float next_scale[2] = {1.0f, 1.0f};
    stream.load_scales(lane, p, strip, record + records, next_scale);
    multiply_records<false>(lane, stream, rows, x, acc,
                            [&](int j) { stream.load(lane, 1, j, id); });
    stream.at += records * Operand::record_bytes;
    rows.advance(records);
    stream.scale[0] = next_scale[0];
    stream.scale[1] = next_scale[1];
  }
  multiply_records<true>(lane, stream, rows, x, acc, [](int) {});
  record += records;
}

/// The same with registers for two batches: the one in `next` travels while the one in `now` is
/// multiplied. It sets out once `now` has come, for the compiler waits for all loads at once.
/// @param loads  `next` is not on its way yet
template <bool Last, class Operand, int RowTiles, int Halves, x_order Order, class Lane>
QPN_HD void multiply_turn_ahead(Lane& lane, gemm_params const& p, int id, bool loads,
                                slice_stream<Operand, RowTiles, Halves>& now,
                                slice_stream<Operand, RowTiles, Halves>& next,
                                x_rows<Operand, RowTiles, Order>& rows,
                                typename Operand::x_words (&x)[RowTiles],
                                float (&acc)[Halves][RowTiles][4]) noexcept {
  constexpr int records = slice_stream<Operand, RowTiles, Halves>::records;
  if (!Last && loads) {
    // 0, since m is not negative: what the compiler does not know.
    std::uint32_t const behind_now =
        now.weights[records - 1].half[Halves - 1].w[3] & (static_cast<std::uint32_t>(p.m) >> 31);
    next.at = now.at + records * Operand::record_bytes + behind_now;
    next.load_all(lane, id);
  }
  multiply_records<Last>(lane, now, rows, x, acc, [](int) {});
  rows.advance(records);
}

/// @param both  the batch in `second` is on its way, too
template <class Operand, int RowTiles, int Halves, x_order Order, class Lane>
QPN_HD void multiply_turns_ahead(Lane& lane, gemm_params const& p, int& record, int last, int id,
                                 bool both, slice_stream<Operand, RowTiles, Halves>& first,
                                 slice_stream<Operand, RowTiles, Halves>& second,
                                 x_rows<Operand, RowTiles, Order>& rows,
                                 typename Operand::x_words (&x)[RowTiles],
                                 float (&acc)[Halves][RowTiles][4]) noexcept {
  static_assert(!Operand::block_scales);
  constexpr int records = slice_stream<Operand, RowTiles, Halves>::records;
  bool loads = !both;
  QPN_NO_UNROLL
  for (;;) {
    if (record >= last) {
      multiply_turn_ahead<true>(lane, p, id, false, first, second, rows, x, acc);
      break;
    }
    multiply_turn_ahead<false>(lane, p, id, loads, first, second, rows, x, acc);
    loads = true;
    record += records;
    if (record >= last) {
      multiply_turn_ahead<true>(lane, p, id, false, second, first, rows, x, acc);
      break;
    }
    multiply_turn_ahead<false>(lane, p, id, true, second, first, rows, x, acc);
    record += records;
  }
  record += records;
}

/// What 16-byte loads of x cannot serve, the end of k or all of it: the records [record, end).
template <class Operand, int RowTiles, int Halves, class Lane>
QPN_HD void multiply_edge(Lane& lane, gemm_params const& p, strip_part part, int first_row,
                          int record, int end, float (&acc)[Halves][RowTiles][4]) noexcept {
  // Kept, or what follows from it occupies registers through the loop before.
  int const id = lane.keep(lane.thread()) % warp_lanes;
  QPN_NO_UNROLL
  for (; record < end; ++record) {
    slice_stream<Operand, RowTiles, Halves> stream(p, part, record);
    stream.load_scales(lane, p, part.strip, record, stream.scale);
    stream.load(lane, 0, 0, id);
    std::int64_t const k = std::int64_t{record} * Operand::record_k;
    x_rows<Operand, RowTiles> const rows(p, first_row, id, k);
    QPN_UNROLL
    for (int f = 0; f < Operand::fragments; ++f) {
      typename Operand::x_words x[RowTiles];
      rows.load_elements(lane, f, p.k - k - id % 4 * Operand::lane_k, x);
      multiply_fragment(lane, stream.weights[0], f, x, stream.scale, acc, [](int) {});
    }
  }
}

/// acc[half][row tile][4] = x w^T over this warp's slice of a strip.
/// @param begin  called once the first weights are on their way and before anything else is read
template <class Operand, int RowTiles, int Batches, x_order Order, int Halves, class Lane,
          class Begin>
QPN_HD void multiply_slice(Lane& lane, gemm_params const& p, strip_part part, int first_row,
                           float (&acc)[Halves][RowTiles][4], Begin begin) noexcept {
  using stream_type = slice_stream<Operand, RowTiles, Halves>;
  constexpr int records = stream_type::records;
  int const id = lane.thread() % warp_lanes;
  int const slice = lane.thread() / warp_lanes;
  int record = p.split.first(slice) * Operand::batch;
  int const slice_end = p.split.first(slice + 1) * Operand::batch;
  int const end = slice_end < p.steps ? slice_end : p.steps;
  int const word_end = p.word_batches * Operand::batch;
  int const last = (word_end < end ? word_end : end) - records;  // of 16-byte loads of x

  stream_type stream(p, part, record);
  if (record <= last) stream.load_all(lane, id);
  // While the launch before still runs there is time for two batches, unless all are so many that
  // it waits for them. Alone, a launch whose warps all wait for two and then multiply one leaves
  // memory idle.
  bool const both = Batches == 2 && p.overlap_previous && p.starts_with_two && record < last;
  stream_type second(p, part, record + records);
  if (both) second.load_all(lane, id);
  begin();
  if (record <= last) {
    x_rows<Operand, RowTiles, Order> rows(p, first_row, id,
                                          std::int64_t{record} * Operand::record_k);
    typename Operand::x_words x[RowTiles];
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) x[i] = rows.load(lane, i, 0, 0);
    if constexpr (Batches == 2) {
      multiply_turns_ahead(lane, p, record, last, id, both, stream, second, rows, x, acc);
    } else {
      multiply_turns(lane, p, part.strip, record, last, id, stream, rows, x, acc);
    }
  }
  // In fragment order k is whole batches.
  if constexpr (Order == x_order::rows) {
    multiply_edge<Operand>(lane, p, part, first_row, record, end, acc);
  }
}

/// The sums of a strip, and what becomes of them.
/// @param first  of the CTA's strips
template <class Operand, int RowTiles, bool Candidates, int Batches, int Halves, x_order Order,
          class Lane>
QPN_HD void run_strip(Lane& lane, gemm_params const& p, strip_part part, int first_row,
                      bool first) noexcept {
  float acc[Halves][RowTiles][4] = {};
  column_factors factors;
  multiply_slice<Operand, RowTiles, Batches, Order>(lane, p, part, first_row, acc, [&] {
    if (first && p.overlap_previous) {
      if (!p.beside_previous) lane.wait_previous();
      lane.allow_next();  // behind the wait: what x was is there for a launch beside this one
    }
    if constexpr (Candidates && lists_candidates<RowTiles>) {
      if (first && p.epilogue.candidates > 1) clear_candidates<RowTiles>(lane, p);
    }
    factors = load_strip_factors<Halves>(lane, p, part);
  });
  finish_strip<RowTiles, Candidates>(lane, p, part, first_row, first, factors, acc);
}

/// The kernel: p.ctas CTAs for each row block of 8 * RowTiles rows, a warp for each slice,
/// shared_layout::bytes of shared memory. With Candidates CTA c has the strips c, c + p.ctas, ...;
/// without, each CTA has one, or one half of it: a loop would let the compiler compute all that any
/// strip needs at its end before the first weights are loaded, which takes a microsecond.
/// @tparam Batches  that a warp has registers for
/// @tparam Halves   of a strip that a CTA has; 1 without Candidates and silu_gate alone
/// @tparam Order    of x; fragments without Candidates alone
template <class Operand, int RowTiles, bool Candidates, int Batches, int Halves,
          x_order Order = x_order::rows, class Lane>
QPN_HD void gemm_program(Lane& lane, gemm_params const& p) noexcept {
  static_assert(Batches == 1 || Batches == 2);
  static_assert(Halves == 2 || (Halves == 1 && !Candidates));
  static_assert(Order == x_order::rows || !Candidates);
  int const first_row = lane.row_block() * RowTiles * tile_m;
  if constexpr (Candidates) {
    bool first = true;
    QPN_NO_UNROLL
    for (int strip = lane.block(); strip < p.strips; strip += p.ctas) {
      run_strip<Operand, RowTiles, true, Batches, Halves, Order>(lane, p, {strip}, first_row,
                                                                 first);
      first = false;
    }
    finish_candidates<RowTiles>(lane, p, first_row);
  } else {
    strip_part const part =
        Halves == 2 ? strip_part{lane.block()} : strip_part{lane.block() / 2, lane.block() % 2};
    run_strip<Operand, RowTiles, false, Batches, Halves, Order>(lane, p, part, first_row, true);
  }
  // The next launch waits for this one, and so for the one before.
  if (p.overlap_previous && p.beside_previous) lane.wait_previous();
}

}  // namespace qpn::detail::sm80
