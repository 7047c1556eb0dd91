// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/quadpair_map.hpp"

// The lanes of mma.m16n8k16 as this library uses it (PTX ISA, "Matrix Fragments for mma.m16n8k16
// with floating point type"): operand A is 16 weight rows, operand B 8 rows of x. With g = lane / 4
// and t = lane % 4:
//   A: registers 0 and 2 are weight row g, 1 and 3 are row g + 8; two k each
//   B: registers 0 and 1 are x row g, the same k as registers 0 and 2 of A
//   D: fp32 register i is weight row g + 8 * (i / 2), x row 2 * t + i % 2
// Which k a register holds is free, as long as A and B agree: lane t of a record owns the quarter
// [t * record k / 4, (t + 1) * record k / 4) of its k, and each instruction takes the next 4 of it.

namespace qpn::detail {

/// The weight row, 0..15, of accumulator register i, 0..3, of a lane.
[[nodiscard]] QPN_HD constexpr int mma16_weight_row(int lane, int i) noexcept {
  return lane / 4 + 8 * (i / 2);
}

/// The row of x, 0..7, of accumulator register i, 0..3, of a lane.
[[nodiscard]] QPN_HD constexpr int mma16_x_row(int lane, int i) noexcept {
  return 2 * (lane % 4) + i % 2;
}

/// Layout sm80_mma16 deals the 64 rows of a tile group to two strips of 32: strip s has rows
/// 16 s..16 s + 15 of the even tile, its half 0, and the same rows of the odd tile, its half 1.
/// Gate and up of one column are then in one warp. `row` is the row in the weight.
[[nodiscard]] QPN_HD constexpr std::int64_t mma16_strip(std::int64_t row) noexcept {
  return row / 64 * 2 + row % 32 / 16;
}
[[nodiscard]] QPN_HD constexpr int mma16_half(std::int64_t row) noexcept {
  return static_cast<int>(row % 64 / 32);
}

/// The column, 0..63, in the tile group of row 0..15 of half 0 or 1 of strip s.
[[nodiscard]] QPN_HD constexpr int mma16_column(std::int64_t strip, int half, int row) noexcept {
  return 32 * half + 16 * static_cast<int>(strip % 2) + row;
}

/// A record of layout sm80_mma16: what one warp reads for one strip and one step of k. It has the
/// size and the sections of a quadpair_record; a half is one operand A.
///   codes   [2 halves][32 lanes][4 words]; word j of a lane: row g + 8 * (j % 2) of the half,
///           k t * record k / 4 + j / 2 * codes_per_word; word: detail/quadpair_codes.hpp
///   scales  [32 lanes][2 halves][2 rows g and g + 8], formats with block scales only: of the
///           16 k that are lane t's
/// A batch is as many records of a strip as a warp loads at once: 128 k, of dense16 64.
template <class Format>
struct mma16_record {
  using shape = quadpair_record<Format>;
  static constexpr int codes_per_word = shape::codes_per_word;
  static constexpr int words = shape::words;  ///< of one row, and of one lane
  static constexpr int k = shape::k;
  static constexpr int half_bytes = shape::half_bytes;
  static constexpr int scales_offset = shape::scales_offset;
  static constexpr int bytes = shape::bytes;
  static constexpr int batch = Format::code_bits == 4 ? 2 : 4;  ///< records
  static constexpr int batch_k = batch * k;

  static_assert(words == 8, "a quarter of a record's k are two words of a row");

  /// Byte offset in the record of word 0..7, in the order of k, of row 0..15 of a half.
  [[nodiscard]] QPN_HD static constexpr int word_offset(int half, int row, int word) noexcept {
    int const lane = 4 * (row % 8) + word / 2;
    return half * half_bytes + lane * 16 + 4 * (row / 8 + 2 * (word % 2));
  }

  /// Byte offset in the record of scale byte 0..3, in the order of k, of row 0..15 of a half.
  [[nodiscard]] QPN_HD static constexpr int scale_offset(int half, int row, int group) noexcept {
    return scales_offset + 4 * (4 * (row % 8) + group) + 2 * half + row / 8;
  }
};

}  // namespace qpn::detail
