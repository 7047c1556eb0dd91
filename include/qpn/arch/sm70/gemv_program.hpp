// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/arch/sm70/weight_operand.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_map.hpp"

// The GEMM of layout sm70_quadpair without a matrix instruction, for 1 to 3 rows of x: a lane
// multiplies its weight row, and adds in fp32, one FMA for each weight and row of x.
//
// Runs, planes, tickets and epilogue are those of gemm_program.hpp, and so are their orders. A lane
// adds up the k of its steps one after another; a row's sums are its own, so that they are the same
// for 1, 2 and 3 rows. They are not those of the matrix instruction.

namespace qpn::detail::sm70 {

/// The activations of one warp for one record, in fp32: the lanes read the same 4 at a time.
/// Shared memory holds, chunk by chunk of 8 k and row by row, the first 4 of each chunk, then the
/// other 4, so that neither store of a lane's chunk meets another lane's banks.
template <class Operand, int Rows>
struct activation_rows {
  static constexpr int chunks = Operand::record_k / 8;  ///< of one row
  static constexpr int total = Rows * chunks;           ///< of the warp; a lane has one or none
  static constexpr int other_half = 16 * total;         ///< bytes from k 0 of a chunk to k 4
  static_assert(total <= warp_lanes, "a lane copies one chunk");
  static_assert(2 * other_half <= shared_layout<Operand, 1>::x_bytes);

  word4 chunk = {};
  std::uint16_t const* from;  ///< of the lane's chunk in the record to load next

  template <class Lane>
  QPN_HD activation_rows(Lane& lane, gemm_params const& p, std::int64_t k0) noexcept {
    int const id = lane.thread() % warp_lanes;
    from = p.x + id / chunks * p.ldx + k0 + id % chunks * 8;
  }

  /// Loads the lane's chunk of the next record, all of whose k are below k.
  template <class Lane>
  QPN_HD void load(Lane& lane, int id, bool wanted) noexcept {
    if (wanted && id < total) chunk = lane.load(reinterpret_cast<word4 const*>(from));
    from += Operand::record_k;
  }

  /// Loads it element by element: any alignment, and `left` k from the record's first on; the
  /// others are 0.
  template <class Lane>
  QPN_HD void load_elements(Lane& lane, int id, std::int64_t left) noexcept {
    std::int64_t const mine = left - id % chunks * 8;
    QPN_UNROLL
    for (int i = 0; i < 4; ++i) {
      std::uint32_t word = 0;
      if (id < total && 2 * i < mine) word = lane.load(from + 2 * i);
      if (id < total && 2 * i + 1 < mine) {
        word |= static_cast<std::uint32_t>(lane.load(from + 2 * i + 1)) << 16;
      }
      chunk.w[i] = word;
    }
    from += Operand::record_k;
  }

  template <class Lane>
  QPN_HD void store(Lane& lane, int id, int warp_offset) const noexcept {
    if (id >= total) return;
    QPN_UNROLL
    for (int h = 0; h < 2; ++h) {
      word4 values;
      QPN_UNROLL
      for (int i = 0; i < 2; ++i) {
        values.w[2 * i] = float_bits(lane.widen_low(chunk.w[2 * h + i]));
        values.w[2 * i + 1] = float_bits(lane.widen_high(chunk.w[2 * h + i]));
      }
      lane.shared_store(warp_offset + h * other_half + 16 * id, values);
    }
  }
};

/// acc[row][tile] += the lane's weight row times x over the steps [first, first + count) of a tile
/// group. ByWords: x is loaded 16 bytes at a time, so no step may reach beyond k.
template <bool ByWords, class Operand, int Rows, class Lane>
QPN_HD void multiply_rows(Lane& lane, gemm_params const& p, int group, int first, int count,
                          float (&acc)[Rows][tiles_per_group]) noexcept {
  using activations = activation_rows<Operand, Rows>;
  if (count <= 0) return;
  int const id = lane.thread() % warp_lanes;
  int const warp_offset =
      lane.keep(lane.thread() / warp_lanes * shared_layout<Operand, 1>::x_bytes);

  // The records of the group's tiles lie side by side, so that one pointer serves both.
  std::byte const* const unit = p.records + (std::int64_t{group} * p.split.steps + first) *
                                                (tiles_per_group * Operand::record_bytes);
  std::byte const* codes = unit + 16 * id;
  std::byte const* scales = unit + Operand::record::scales_offset + 4 * id;
  Operand weights[tiles_per_group];
  QPN_UNROLL
  for (int tile = 0; tile < tiles_per_group; ++tile) {
    weights[tile].load_scales(lane, scales + tile * Operand::record_bytes);
    weights[tile].load_half(lane, codes + tile * Operand::record_bytes, 0);
    weights[tile].load_half(lane, codes + tile * Operand::record_bytes, 1);
  }
  std::int64_t const k0 = std::int64_t{first} * Operand::record_k;
  activations x(lane, p, k0);
  std::int64_t k_left = p.k - k0;
  if constexpr (ByWords) x.load(lane, id, true);

  QPN_NO_UNROLL
  for (int left = count; left > 0; --left) {
    bool const more = left > 1;
    if constexpr (!ByWords) {
      x.load_elements(lane, id, k_left);
      k_left -= Operand::record_k;
    }
    x.store(lane, id, warp_offset);
    lane.sync_warp();  // every lane's chunk is in shared memory
    if constexpr (ByWords) x.load(lane, id, more);
    codes += tiles_per_group * Operand::record_bytes;
    scales += tiles_per_group * Operand::record_bytes;
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      weights[tile].begin_record();
      if (more) weights[tile].load_scales(lane, scales + tile * Operand::record_bytes);
    }
    QPN_UNROLL
    for (int f = 0; f < Operand::fragments; ++f) {
      word4 a[Rows][2];  // 8 k of each row
      QPN_UNROLL
      for (int i = 0; i < Rows; ++i) {
        QPN_UNROLL
        for (int h = 0; h < 2; ++h) {
          a[i][h] = lane.template shared_load<word4>(warp_offset + h * activations::other_half +
                                                     16 * (i * activations::chunks + f));
        }
      }
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        std::uint32_t b[4];
        weights[tile].fragment(lane, f, b);
        QPN_UNROLL
        for (int j = 0; j < 4; ++j) {
          float const even = lane.widen_low(b[j]);
          float const odd = lane.widen_high(b[j]);
          QPN_UNROLL
          for (int i = 0; i < Rows; ++i) {
            float& sum = acc[i][tile];
            sum = lane.fma(bits_float(a[i][j / 2].w[j % 2 * 2]), even, sum);
            sum = lane.fma(bits_float(a[i][j / 2].w[j % 2 * 2 + 1]), odd, sum);
          }
        }
      }
      if (f % Operand::fragments_per_half == Operand::fragments_per_half - 1 && more) {
        QPN_UNROLL
        for (int tile = 0; tile < tiles_per_group; ++tile) {
          weights[tile].load_half(lane, codes + tile * Operand::record_bytes,
                                  f / Operand::fragments_per_half);
        }
      }
    }
    lane.sync_warp();  // every lane has read the chunks before they are overwritten
  }
}

/// Adds up the warps' sums in the order of the warps. Warp i gets row i, columns id and id + 32 of
/// the group; the other warps get 0.
template <class Operand, int Rows, class Lane>
QPN_HD void add_warps_of_rows(Lane& lane, float const (&acc)[Rows][tiles_per_group],
                              float (&sum)[tiles_per_group]) noexcept {
  using shared = shared_layout<Operand, 1>;
  int const id = lane.thread() % warp_lanes;
  int const warp = lane.thread() / warp_lanes;
  auto const place = [](int of_warp, int row, int tile, int column) {
    return of_warp * shared::warp_sums_bytes +
           4 * (row * shared::sum_row_floats + tile * static_cast<int>(tile_n) + column);
  };
  lane.sync_block();  // the loop's last user of the shared memory is done with it
  QPN_UNROLL
  for (int i = 0; i < Rows; ++i) {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      lane.shared_store(place(warp, i, tile, weight_row_of_lane(id)), acc[i][tile]);
    }
  }
  lane.sync_block();  // all warps' sums are in shared memory
  QPN_UNROLL
  for (int tile = 0; tile < tiles_per_group; ++tile) {
    sum[tile] = 0.0f;
    if (warp >= Rows) continue;
    sum[tile] = lane.template shared_load<float>(place(0, warp, tile, id));
    QPN_UNROLL
    for (int other = 1; other < cta_shape<Operand, 1>::warps; ++other) {
      sum[tile] += lane.template shared_load<float>(place(other, warp, tile, id));
    }
  }
}

/// The kernel for m = Rows: the grid, the threads and the shared memory of one row tile.
template <class Operand, int Rows, class Lane>
QPN_HD void gemv_program(Lane& lane, gemm_params const& p) noexcept {
  walk_run<Operand, 1>(lane, p, [&](float(&sum)[1][tiles_per_group]) {
    float acc[Rows][tiles_per_group] = {};
    multiply_part<Operand, 1>(lane, p, 0, [&](auto by_words, int group, int first, int count) {
      multiply_rows<decltype(by_words)::value, Operand>(lane, p, group, first, count, acc);
    });
    add_warps_of_rows<Operand>(lane, acc, sum[0]);
  });
}

}  // namespace qpn::detail::sm70
