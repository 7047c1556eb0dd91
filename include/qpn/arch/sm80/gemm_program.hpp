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

// The GEMM of layout sm80_mma16 as a lane program: y[m, n] = x[m, k] w[n, k]^T for 8 * RowTiles
// rows of x, a row block, in one pass over the weight.
//
// The warps of a CTA share the k of a strip of 32 weight rows (detail/slice_split.hpp). Each one
// reads its records straight into registers, a batch while the one before is multiplied, and x
// through L1: no barrier and no shared memory before the sums of the slices are added, in their
// order. No order depends on m, on timing or on the other rows.

namespace qpn::detail::sm80 {

/// The rows of x that a lane loads: one of each row tile. Rows beyond m are row m - 1 again; their
/// sums are never stored.
template <class Operand, int RowTiles>
struct x_rows {
  using words = typename Operand::x_words;

  std::uint16_t const* row[RowTiles];

  /// From k on, of the lane's quarter of a record.
  QPN_HD x_rows(gemm_params const& p, int first_row, int id, std::int64_t k) noexcept {
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) {
      int const wanted = first_row + i * tile_m + id / 4;
      int const kept = wanted < p.m ? wanted : p.m - 1;
      row[i] = p.x + kept * p.ldx + k + id % 4 * Operand::lane_k;
    }
  }

  /// Of row tile i, fragment f of the record `records` further on.
  template <class Lane>
  [[nodiscard]] QPN_HD words load(Lane& lane, int i, int records, int f) const noexcept {
    int const at = records * Operand::record_k + f * 4 * Operand::steps;
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
    for (int i = 0; i < RowTiles; ++i) row[i] += records * Operand::record_k;
  }
};

/// acc[half][row tile] += fragment f of the weights times x. `scale`: of the halves' tiles, used
/// where the operand has block scales.
/// @param next  next(i) is called when x[i] has been used
template <class Operand, int RowTiles, class Lane, class Next>
QPN_HD void multiply_fragment(Lane& lane, Operand const& weights, int f,
                              typename Operand::x_words (&x)[RowTiles], float const (&scale)[2],
                              float (&acc)[2][RowTiles][4], Next next) noexcept {
  std::uint32_t a[2][Operand::steps][4];
  QPN_UNROLL
  for (int h = 0; h < 2; ++h) weights.fragment(lane, f, h, a[h]);
  QPN_UNROLL
  for (int i = 0; i < RowTiles; ++i) {
    float part[2][4] = {};
    QPN_UNROLL
    for (int s = 0; s < Operand::steps; ++s) {
      QPN_UNROLL
      for (int h = 0; h < 2; ++h) {
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
      for (int h = 0; h < 2; ++h) {
        QPN_UNROLL
        for (int r = 0; r < 4; ++r) acc[h][i][r] = lane.fma(scale[h], part[h][r], acc[h][i][r]);
      }
    }
  }
}

/// A warp's slice of a strip: its weights, and how far it has come.
template <class Operand, int RowTiles>
struct slice_stream {
  /// Records that are loaded at once: a batch of the layout, or a part of one.
  static constexpr int records = gemm_policy<Operand, RowTiles>::records;
  static_assert(Operand::batch % records == 0);

  std::byte const* at;  ///< of the records that are in registers, or come next
  Operand weights[records];
  float scale[2] = {1.0f, 1.0f};

  QPN_HD slice_stream(gemm_params const& p, int strip, int record) noexcept
      : at(p.records + (std::int64_t{strip} * p.steps + record) * Operand::record_bytes) {}

  /// Record j of those that come `turns` times `records` further on.
  template <class Lane>
  QPN_HD void load(Lane& lane, int turns, int j, int id) noexcept {
    weights[j].load(lane, at + (turns * records + j) * Operand::record_bytes, id);
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

/// Multiplies the records that are in registers; unless they are the Last ones, the next ones
/// travel meanwhile, and their first x. x is that of the first fragment.
template <bool Last, class Operand, int RowTiles, class Lane>
QPN_HD void multiply_records(Lane& lane, slice_stream<Operand, RowTiles>& stream,
                             x_rows<Operand, RowTiles> const& rows, int id,
                             typename Operand::x_words (&x)[RowTiles],
                             float (&acc)[2][RowTiles][4]) noexcept {
  constexpr int records = slice_stream<Operand, RowTiles>::records;
  QPN_UNROLL
  for (int j = 0; j < records; ++j) {
    QPN_UNROLL
    for (int f = 0; f < Operand::fragments; ++f) {
      bool const ends_record = f + 1 == Operand::fragments;
      multiply_fragment<Operand, RowTiles>(
          lane, stream.weights[j], f, x, stream.scale, acc, [&](int i) {
            if (Last && ends_record && j + 1 == records) return;
            x[i] = rows.load(lane, i, ends_record ? j + 1 : j, ends_record ? 0 : f + 1);
          });
    }
    if (!Last) stream.load(lane, 1, j, id);
  }
}

/// What 16-byte loads of x cannot serve, the end of k or all of it: the records [record, end).
template <class Operand, int RowTiles, class Lane>
QPN_HD void multiply_edge(Lane& lane, gemm_params const& p, int strip, int first_row, int record,
                          int end, float (&acc)[2][RowTiles][4]) noexcept {
  // Kept, or what follows from it occupies registers through the loop before.
  int const id = lane.keep(lane.thread()) % warp_lanes;
  QPN_NO_UNROLL
  for (; record < end; ++record) {
    slice_stream<Operand, RowTiles> stream(p, strip, record);
    stream.load_scales(lane, p, strip, record, stream.scale);
    stream.load(lane, 0, 0, id);
    std::int64_t const k = std::int64_t{record} * Operand::record_k;
    x_rows<Operand, RowTiles> const rows(p, first_row, id, k);
    QPN_UNROLL
    for (int f = 0; f < Operand::fragments; ++f) {
      typename Operand::x_words x[RowTiles];
      rows.load_elements(lane, f, p.k - k - id % 4 * Operand::lane_k, x);
      multiply_fragment<Operand, RowTiles>(lane, stream.weights[0], f, x, stream.scale, acc,
                                           [](int) {});
    }
  }
}

/// acc[half][row tile][4] = x w^T over this warp's slice of a strip.
/// @param begin  called once the first weights are on their way and before anything else is read
template <class Operand, int RowTiles, class Lane, class Begin>
QPN_HD void multiply_slice(Lane& lane, gemm_params const& p, int strip, int first_row,
                           float (&acc)[2][RowTiles][4], Begin begin) noexcept {
  using stream_type = slice_stream<Operand, RowTiles>;
  using words = typename Operand::x_words;
  constexpr int records = stream_type::records;
  int const id = lane.thread() % warp_lanes;
  int const slice = lane.thread() / warp_lanes;
  int record = p.split.first(slice) * Operand::batch;
  int const slice_end = p.split.first(slice + 1) * Operand::batch;
  int const end = slice_end < p.steps ? slice_end : p.steps;
  int const word_end = p.word_batches * Operand::batch;
  int const last = (word_end < end ? word_end : end) - records;  // of 16-byte loads of x

  stream_type stream(p, strip, record);
  if (record <= last) {
    QPN_UNROLL
    for (int j = 0; j < records; ++j) stream.load(lane, 0, j, id);
  }
  begin();
  x_rows<Operand, RowTiles> rows(p, first_row, id, std::int64_t{record} * Operand::record_k);
  if (record <= last) {
    words x[RowTiles];
    stream.load_scales(lane, p, strip, record, stream.scale);
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) x[i] = rows.load(lane, i, 0, 0);
    QPN_NO_UNROLL
    for (; record < last; record += records) {
      float next_scale[2] = {1.0f, 1.0f};
      stream.load_scales(lane, p, strip, record + records, next_scale);
      multiply_records<false, Operand, RowTiles>(lane, stream, rows, id, x, acc);
      stream.at += records * Operand::record_bytes;
      rows.advance(records);
      stream.scale[0] = next_scale[0];
      stream.scale[1] = next_scale[1];
    }
    multiply_records<true, Operand, RowTiles>(lane, stream, rows, id, x, acc);
    record += records;
  }
  multiply_edge<Operand, RowTiles>(lane, p, strip, first_row, record, end, acc);
}

/// The sums of a strip, and what becomes of them.
/// @param first  of the CTA's strips
template <class Operand, int RowTiles, bool Candidates, class Lane>
QPN_HD void run_strip(Lane& lane, gemm_params const& p, int strip, int first_row,
                      bool first) noexcept {
  float acc[2][RowTiles][4] = {};
  column_factors factors;
  multiply_slice<Operand, RowTiles>(lane, p, strip, first_row, acc, [&] {
    if (first && p.overlap_previous) {
      lane.allow_next();
      lane.wait_previous();
    }
    if constexpr (Candidates && lists_candidates<RowTiles>) {
      if (first && p.epilogue.candidates > 1) clear_candidates<RowTiles>(lane, p);
    }
    factors = load_strip_factors(lane, p, strip);
  });
  finish_strip<RowTiles, Candidates>(lane, p, strip, first_row, first, factors, acc);
}

/// The kernel: p.ctas CTAs for each row block of 8 * RowTiles rows, a warp for each slice,
/// shared_layout::bytes of shared memory. With Candidates CTA c has the strips c, c + p.ctas, ...;
/// without, each CTA has one: a loop would let the compiler compute all that any strip needs at its
/// end before the first weights are loaded, which takes a microsecond.
template <class Operand, int RowTiles, bool Candidates, class Lane>
QPN_HD void gemm_program(Lane& lane, gemm_params const& p) noexcept {
  int const first_row = lane.row_block() * RowTiles * tile_m;
  if constexpr (Candidates) {
    bool first = true;
    QPN_NO_UNROLL
    for (int strip = lane.block(); strip < p.strips; strip += p.ctas) {
      run_strip<Operand, RowTiles, true>(lane, p, strip, first_row, first);
      first = false;
    }
    finish_candidates<RowTiles>(lane, p, first_row);
  } else {
    run_strip<Operand, RowTiles, false>(lane, p, lane.block(), first_row, true);
  }
}

}  // namespace qpn::detail::sm80
