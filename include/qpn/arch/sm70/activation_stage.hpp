// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm70/gemm_shape.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"

namespace qpn::detail::sm70 {

/// The activations of the lanes that stage x together for one record: global memory -> registers ->
/// shared memory, from where they are read as fragments of operand A. They come in pieces along k:
/// while one is multiplied, the next is on its way to the registers.
template <class Operand, int RowTiles>
struct activation_stage {
  using shape = cta_shape<Operand, RowTiles>;
  using shared = shared_layout<Operand, RowTiles>;
  static constexpr int pieces = shared::pieces;
  static constexpr int chunks = shared::chunks / pieces;  ///< of one row and piece
  static constexpr int lanes = shape::stage_lanes;
  static constexpr int total = RowTiles * tile_m * chunks;  ///< of all lanes, of a piece
  static constexpr int per_lane = (total + lanes - 1) / lanes;
  static constexpr int rows_between = lanes / chunks;  ///< two chunks of a lane
  static constexpr bool all_lanes = total % lanes == 0;
  static constexpr int piece_k = 8 * chunks;

  word4 chunk[per_lane];
  std::uint16_t const* from[per_lane];  ///< the lane's chunks, in the record to load next
  int shared_offset;                    ///< of the lane's first chunk
  int held;                             ///< chunks of a piece that the lane holds

  /// The lane's first chunk is (row, 8 column). Quarter-warps load whole sectors, whole lines where
  /// a piece has them, and store without bank conflicts: their rows lie `chunks` apart.
  template <class Lane>
  QPN_HD activation_stage(Lane& lane, gemm_params const& p, std::int64_t k0) noexcept {
    int const id = lane.thread() % lanes;
    int const column = id % 8 % chunks;
    int const row = first_row(lane);
    QPN_UNROLL
    for (int i = 0; i < per_lane; ++i) from[i] = first_chunk(lane, p, i) + k0;
    held = all_lanes ? per_lane : (total - id + lanes - 1) / lanes;
    shared_offset =
        shape::stage_place(lane) * shared::x_bytes + row * shared::row_bytes + 16 * column;
  }

  /// Of the lane's first chunk, in the row block.
  template <class Lane>
  [[nodiscard]] QPN_HD static int first_row(Lane& lane) noexcept {
    int const id = lane.thread() % lanes;
    int const quarter = id / 8;
    return quarter / chunks * tile_m + quarter % chunks + chunks * (id % 8 / chunks);
  }

  /// The lane's chunk i at k = 0. A row beyond x is its last one: what comes of it is never stored.
  template <class Lane>
  [[nodiscard]] QPN_HD static std::uint16_t const* first_chunk(Lane& lane, gemm_params const& p,
                                                               int i) noexcept {
    int const row = shape::row_block(lane) * shape::block_m + first_row(lane) + i * rows_between;
    return p.x + (row < p.m ? row : p.m - 1) * p.ldx + 8 * (lane.thread() % 8 % chunks);
  }

  [[nodiscard]] QPN_HD bool holds(int i) const noexcept { return all_lanes || i < held; }
  [[nodiscard]] QPN_HD int offset(int i, int piece, int buffer = 0) const noexcept {
    return shared_offset + i * rows_between * shared::row_bytes + piece * chunks * 16 +
           buffer * shared::x_bytes;
  }

  /// Loads the chunks of a piece, all of whose k are below k, by words.
  template <class Lane>
  QPN_HD void load(Lane& lane, int piece) noexcept {
    QPN_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      if (!holds(i)) continue;
      chunk[i] = lane.load_words(reinterpret_cast<word4 const*>(from[i] + piece * piece_k));
    }
  }
  QPN_HD void next_record() noexcept {
    QPN_UNROLL
    for (std::uint16_t const*& at : from) at += Operand::record_k;
  }

  template <class Lane>
  QPN_HD void store(Lane& lane, int piece, int buffer) const noexcept {
    QPN_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      if (holds(i)) lane.shared_store(offset(i, piece, buffer), chunk[i]);
    }
  }

  /// Loads and stores all chunks of the record at k0 element by element: any alignment; beyond k
  /// they are 0.
  template <class Lane>
  QPN_HD void copy_elements(Lane& lane, gemm_params const& p, std::int64_t k0) const noexcept {
    std::int64_t const mine = p.k - k0 - 8 * (lane.thread() % 8 % chunks);
    QPN_NO_UNROLL
    for (int piece = 0; piece < pieces; ++piece) {
      QPN_UNROLL
      for (int i = 0; i < per_lane; ++i) {
        if (!holds(i)) continue;
        std::uint16_t const* const row = first_chunk(lane, p, i) + k0;
        QPN_NO_UNROLL
        for (int j = 0; j < 8; ++j) {
          int const at = piece * piece_k + j;
          std::uint16_t const value = at < mine ? lane.load(row + at) : std::uint16_t{0};
          lane.shared_store(offset(i, piece) + 2 * j, value);
        }
      }
    }
  }
};

}  // namespace qpn::detail::sm70
