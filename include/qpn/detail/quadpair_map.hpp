// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"

// The lanes of mma.m8n8k4 as this library uses it (PTX ISA, "Matrix Fragments for mma.m8n8k4"): the
// four quad-pairs of a warp multiply the same 8 activation rows (operand A, row-major) by the 32
// weight rows of one tile (operand B, column-major; the columns of B are weight rows).
//   A: a lane holds activation row position_of_lane, 4 consecutive k in 2 registers, low half first
//   B: a lane holds weight row weight_row_of_lane of the tile, the same 4 k in 2 registers
//   D: fp32 register i of a lane is (accumulator_row, weight row accumulator_weight_row)

namespace qpn::detail {

inline constexpr int warp_lanes = 32;

/// The quad-pair, 0..3, of a lane, 0..31.
[[nodiscard]] QPN_HD constexpr int quadpair_of_lane(int lane) noexcept {
  return lane >> 2 & 3;
}

/// The position, 0..7, of a lane in its quad-pair: its row of A and its column of B.
[[nodiscard]] QPN_HD constexpr int position_of_lane(int lane) noexcept {
  return (lane & 3) + 4 * (lane >> 4);
}

/// The row, 0..31, of a tile whose weights a lane holds.
[[nodiscard]] QPN_HD constexpr int weight_row_of_lane(int lane) noexcept {
  return 8 * quadpair_of_lane(lane) + position_of_lane(lane);
}

/// The lane that holds a row, 0..31, of a tile: the inverse of weight_row_of_lane.
[[nodiscard]] QPN_HD constexpr int lane_of_weight_row(int row) noexcept {
  return (row & 3) + 4 * (row >> 3) + 16 * (row >> 2 & 1);
}

/// The activation row, 0..7, of accumulator register i, 0..7, of a lane.
[[nodiscard]] QPN_HD constexpr int accumulator_row(int lane, int i) noexcept {
  return (lane & 1) + (i & 2) + 4 * (lane >> 4);
}

/// The column of D, 0..7, in the lane's quad-pair, of accumulator register i, 0..7, of a lane.
[[nodiscard]] QPN_HD constexpr int accumulator_column(int lane, int i) noexcept {
  return (i & 4) + (lane & 2) + (i & 1);
}

/// The row, 0..31, of the weight tile that accumulator register i, 0..7, of a lane belongs to.
[[nodiscard]] QPN_HD constexpr int accumulator_weight_row(int lane, int i) noexcept {
  return 8 * quadpair_of_lane(lane) + accumulator_column(lane, i);
}

/// A record of layout sm70_quadpair: what one warp reads for one tile of 32 weight rows and one
/// step of k, contiguous and lane-major, so that every load of the warp is coalesced.
///   codes   [2 halves][32 lanes][4 words], words in the order of k; word:
///   detail/quadpair_codes.hpp scales  [32 lanes][4 bytes], formats with block scales only: the
///   lane's row, groups in order
/// k of word j of half h within the record: codes_per_word * (4 * h + j).
template <class Format>
struct quadpair_record {
  static constexpr int codes_per_word = 32 / Format::code_bits;
  static constexpr int words = 8;  ///< of one lane
  static constexpr int k = words * codes_per_word;
  static constexpr int half_bytes = warp_lanes * 16;
  static constexpr int scales_offset = 2 * half_bytes;
  static constexpr int scales_per_lane = Format::group_k == 0 ? 0 : 4;
  static constexpr int bytes = scales_offset + warp_lanes * scales_per_lane;

  static_assert(Format::group_k == 0 || Format::group_k * scales_per_lane == k,
                "a record holds whole groups");
  static_assert(bytes % 128 == 0, "records keep the alignment of their section");

  /// Byte offset in the record of word 0..7 of a lane.
  [[nodiscard]] QPN_HD static constexpr int word_offset(int lane, int word) noexcept {
    return word / 4 * half_bytes + lane * 16 + word % 4 * 4;
  }

  /// Byte offset in the record of scale byte 0..3 of a lane.
  [[nodiscard]] QPN_HD static constexpr int scale_offset(int lane, int group) noexcept {
    return scales_offset + lane * scales_per_lane + group;
  }
};

}  // namespace qpn::detail
