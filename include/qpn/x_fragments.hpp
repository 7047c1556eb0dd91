// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"

// The orders in which x of qpn::gemm may lie in memory, and where its elements are in fragment
// order. Host and device code: whoever computes x may write it where the GEMM wants it.

namespace qpn {

enum class x_order : std::uint8_t {
  rows,       ///< row-major
  fragments,  ///< as x_fragments_offset says: for fp8 weights and few rows, see gemm_args::order
};

/// Most rows of x in fragment order.
inline constexpr std::int64_t x_fragments_max_m = 16;
/// What its k is a multiple of.
inline constexpr std::int64_t x_fragments_k_unit = 128;
/// Rows of a row tile, k of a record, and k of one row that are 16 contiguous bytes.
inline constexpr std::int64_t x_fragments_tile_rows = 8;
inline constexpr std::int64_t x_fragments_record_k = 32;
inline constexpr std::int64_t x_fragments_lane_k = 8;

/// x f16 [m, k] in fragment order is
///   [row tiles of 8 rows][k / 32 records][32 lanes][8 k]
/// where lane 4 * (row % 8) + t of record r has k 32 r + 8 t to 32 r + 8 t + 7 of its row: what
/// lane 4 g + t of a warp holds as operand B of two instructions mma.m16n8k16, the row of x g
/// (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"; which k a lane has is
/// free, detail/mma16_map.hpp). A warp then loads a record's x as 512 contiguous bytes, four lines
/// of L1, where eight rows are eight lines.
///
/// Aligned to 16 bytes. Elements of rows beyond m need no value: they are never read.
/// @param row  0..m - 1
/// @param at   0..k - 1
/// @param k    a multiple of x_fragments_k_unit
/// @return     in elements
[[nodiscard]] QPN_HD constexpr std::int64_t x_fragments_offset(std::int64_t row, std::int64_t at,
                                                               std::int64_t k) noexcept {
  std::int64_t const in_tile = row & (x_fragments_tile_rows - 1);
  std::int64_t const in_record = at & (x_fragments_record_k - 1);
  return (row - in_tile) * k + (at - in_record) * x_fragments_tile_rows +
         in_tile * x_fragments_record_k + in_record;
}

/// The elements that m rows take: whole row tiles.
[[nodiscard]] QPN_HD constexpr std::int64_t x_fragments_count(std::int64_t m,
                                                              std::int64_t k) noexcept {
  return (m + x_fragments_tile_rows - 1) / x_fragments_tile_rows * x_fragments_tile_rows * k;
}

}  // namespace qpn
