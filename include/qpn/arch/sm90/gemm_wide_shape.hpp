// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"

// The GEMM for many rows on Hopper: what its programs share. A tile of y is 256 weight rows, 8
// strips of layout sm80_mma16, by `Rows` rows of x. A CTA has two consumer warpgroups, a strip to a
// warp, and a producer, which fills a ring of stages in shared memory with bulk copies. The CTAs of
// a cluster share the k of a tile.
//
// Before it another kernel writes x as the stages want it into the workspace: [steps of 64 k][rows
// of x][128 bytes]. A row is 8 chunks of 16 bytes; chunk q of row r lies at place q ^ (r % 8), the
// 128-byte swizzle of wgmma (PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout").
// The k of a row are in the order in which the lanes' registers hold the weight's.

namespace qpn::detail::sm90 {

inline constexpr int wide_step_k = 64;    ///< of a stage
inline constexpr int wide_consumers = 2;  ///< warpgroups
inline constexpr int wide_group_warps = 4;
inline constexpr int wide_group_threads = wide_group_warps * warp_lanes;
inline constexpr int wide_strips = wide_consumers * wide_group_warps;  ///< of a tile
inline constexpr int wide_consumer_threads = wide_strips * warp_lanes;
inline constexpr int wide_threads = wide_consumer_threads + wide_group_threads;
inline constexpr int wide_x_row_bytes = 2 * wide_step_k;
inline constexpr int wide_chunk_rows = 32;  ///< rows of x that a warp finishes at once
/// Registers of a thread of the producer and of the consumers, of 64 K in all.
inline constexpr int wide_producer_registers = 40;
inline constexpr int wide_consumer_registers = 232;

/// How y is stored: f16 and bf16 without a residual 8 neighbours at once; f32, with or without a
/// residual of f32 or 16 bits, 4 at once; anything else element by element.
enum class wide_output : std::uint8_t { halves, floats, elements };

struct gemm_wide_params {
  std::byte const* records = nullptr;  ///< first record of the packed weight
  int strips = 0;                      ///< of 32 weight rows
  int record_steps = 0;                ///< records of a strip
  int steps = 0;                       ///< of 64 k
  int row_tiles = 0;                   ///< of x; tiles that read the same weights are neighbours
  int first_tile = 0;                  ///< of y, of the launch
  int end_tile = 0;
  int m = 0;
  int padded_m = 0;                      ///< rows of ordered x
  std::byte const* ordered_x = nullptr;  ///< [steps][padded_m][128 bytes], 128-byte aligned
  wide_output output = wide_output::elements;
  epilogue_params epilogue;
};

struct order_params {
  std::uint16_t const* x = nullptr;  ///< f16 or bf16 [m, k]
  std::int64_t ldx = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;
  std::int64_t padded_m = 0;
  std::int64_t chunks = 0;  ///< of 16 bytes: steps * padded_m * 8
  bool x_by_pairs = false;  ///< x is 4-byte aligned and ldx even
  std::byte* ordered_x = nullptr;
};

inline constexpr int order_threads = 256;

/// The k in its step of the pair of k that word c of chunk q of a row of ordered x holds: that of
/// the registers of lane c of four for instruction q / 2.
template <class Operand>
[[nodiscard]] QPN_HD constexpr int wide_pair_k(int q, int c) noexcept {
  constexpr int instructions = Operand::record_k / 16;  // of a record
  int const instruction = q / 2;
  return instruction / instructions * Operand::record_k + c * (Operand::record_k / 4) +
         4 * (instruction % instructions) + 2 * (q % 2);
}

/// Shared memory of a CTA, in bytes: stages of x and records, the warps' epilogues, barriers.
template <class Operand, int Rows>
struct wide_shared {
  static constexpr int records = wide_step_k / Operand::record_k;  ///< of a strip in a stage
  static constexpr int x_bytes = Rows * wide_x_row_bytes;
  static constexpr int strip_bytes = records * Operand::record_bytes;
  static constexpr int stage_bytes = x_bytes + wide_strips * strip_bytes;
  static constexpr int chunk_bytes = wide_chunk_rows * 4 * (32 + 4);  ///< of a warp's epilogue
  static constexpr int most_bytes = 227 * 1024;
  static constexpr int stages_that_fit =
      (most_bytes - wide_strips * chunk_bytes - 256) / stage_bytes;
  static constexpr int stages = stages_that_fit < 8 ? stages_that_fit : 8;
  static constexpr int chunks = stages * stage_bytes;
  static constexpr int barriers = chunks + wide_strips * chunk_bytes;
  static constexpr int bytes = barriers + 16 * stages;
  // The sums of a whole tile take the place of the stages where CTAs share one.
  static constexpr int block_sum_bytes = 2 * 16 * warp_lanes;  ///< of a strip by 8 rows of x
  static constexpr int strip_sum_bytes = Rows / 8 * block_sum_bytes;

  static_assert(stages >= 3 && x_bytes % 1024 == 0 && stage_bytes % 1024 == 0);
  static_assert(wide_strips * strip_sum_bytes <= chunks && bytes <= most_bytes);

  [[nodiscard]] QPN_HD static constexpr int full(int stage) noexcept {
    return barriers + 16 * stage;
  }
  [[nodiscard]] QPN_HD static constexpr int empty(int stage) noexcept {
    return barriers + 16 * stage + 8;
  }
};

/// A stage of the ring, and the parity of its barriers' next phase.
template <int Stages>
struct wide_cursor {
  int stage = 0;
  int parity = 0;

  QPN_HD void advance() noexcept {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// A tile of y, and which of its steps a CTA of the cluster takes.
struct wide_place {
  int strip;      ///< the first of the tile's 8
  int first_row;  ///< of x
  int first_step;
  int end_step;
};

[[nodiscard]] QPN_HD inline wide_place place_of_tile(gemm_wide_params const& p, int tile, int rows,
                                                     int rank, int ranks) noexcept {
  return {tile / p.row_tiles * wide_strips, tile % p.row_tiles * rows, p.steps * rank / ranks,
          p.steps * (rank + 1) / ranks};
}

}  // namespace qpn::detail::sm90
