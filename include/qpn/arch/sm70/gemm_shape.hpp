// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/work_split.hpp"

// What the parts of the GEMM kernel agree on: the threads of a CTA, its parameters and its shared
// memory. gemm_program.hpp says how they work together.

namespace qpn::detail::sm70 {

/// Shares into which the steps of a part of a run are cut, each with an fp32 chain of its own.
inline constexpr int shares_per_part = 8;
inline constexpr int tiles_per_group = 2;
inline constexpr int group_n = 64;  ///< weight rows of a tile group
inline constexpr int tile_m = 8;    ///< rows of x of a row tile

/// The threads of a CTA: warp w of team t is its warp w * teams + t. Warps of equal place in their
/// teams are mates.
///
/// With more than four row tiles the warps of a team do not share out k but the rows: warp w has
/// the w-th quarter of them for all of k.
template <class Operand, int RowTiles>
struct cta_shape {
  static constexpr int teams = RowTiles > 2 ? 2 : 1;
  static constexpr bool cuts_rows = RowTiles > 4;
  /// Whether mates stage x together and wait for each other at every step.
  static constexpr bool syncs_pairs = teams == 2 && !cuts_rows;
  static constexpr int row_groups = cuts_rows ? 4 : 1;
  static constexpr int warp_row_tiles = RowTiles / row_groups;
  static_assert(RowTiles % row_groups == 0, "the warps of a team have as many rows each");
  /// More registers than the 128 that 8 warps of two teams leave each: with more than four row
  /// tiles, or with four and scales along k.
  static constexpr bool many_registers = RowTiles > 4 ||
                                         (RowTiles > 2 && (Operand::record::scales_per_lane > 0 ||
                                                           Operand::fp32_scales_along_k));
  /// Warps of a team: one for each share, or half as many, each with one share after the other, or
  /// all.
  static constexpr int warps = many_registers ? 4 : 8;
  static constexpr int rounds = cuts_rows ? 1 : shares_per_part / warps;
  /// Records of which a warp holds, or awaits, a part: few warps need more to have enough on the
  /// way.
  static constexpr int steps_ahead = cuts_rows ? 4 : many_registers ? 2 : 1;
  static constexpr int mates = teams * warp_lanes;  ///< lanes
  static constexpr int threads = warps * mates;
  static constexpr int stage_lanes = cuts_rows ? threads : mates;  ///< that stage x together
  static constexpr int resident_ctas = ctas_per_sm / teams;        ///< on a multiprocessor
  static constexpr int block_m = RowTiles * tile_m;                ///< rows of x of a row block
  /// Rows of a row block that a warp of a team finishes: warp, warp + warps, ...
  static constexpr int rows_per_warp = block_m / warps;
  /// More than one candidate is listed where all rows of a call lie in one row tile or two.
  static constexpr bool lists_candidates = block_m <= 16;

  template <class Lane>
  [[nodiscard]] QPN_HD static int warp(Lane& lane) noexcept {
    return lane.thread() / mates;
  }
  template <class Lane>
  [[nodiscard]] QPN_HD static int team(Lane& lane) noexcept {
    return teams == 1 ? 0 : lane.thread() / warp_lanes % teams;
  }
  /// The row block of the CTA. Launches of one row tile have one.
  template <class Lane>
  [[nodiscard]] QPN_HD static int row_block(Lane& lane) noexcept {
    return RowTiles == 1 ? 0 : lane.row_block();
  }
  /// The first of the row tiles of a warp, in the row block.
  template <class Lane>
  [[nodiscard]] QPN_HD static int first_row_tile(Lane& lane) noexcept {
    return cuts_rows ? warp(lane) * warp_row_tiles : 0;
  }
  /// Which of the places where x is staged is the warp's.
  template <class Lane>
  [[nodiscard]] QPN_HD static int stage_place(Lane& lane) noexcept {
    return cuts_rows ? 0 : warp(lane);
  }
  /// Between the lanes that stage x together.
  template <class Lane>
  QPN_HD static void sync_stage(Lane& lane) noexcept {
    if constexpr (cuts_rows) {
      lane.sync_block();
    } else if constexpr (syncs_pairs) {
      lane.sync_pair();
    } else {
      lane.sync_warp();
    }
  }
};

struct gemm_params {
  std::byte const* records = nullptr;  ///< first record of the packed weight
  work_split split;
  /// CTAs of a row block; team t of CTA c takes the run c + t * team_runs of the split.
  std::int32_t team_runs = 0;
  /// Of an operand with fp32 scales along k: [tiles][scale_columns].
  float const* k_scales = nullptr;
  int scale_columns = 0;

  std::uint16_t const* x = nullptr;  ///< f16 [m, k]
  std::int64_t ldx = 0;
  std::int64_t k = 0;
  int m = 0;
  /// Steps of a tile group whose x is loaded 16 bytes at a time: those that end at k or before,
  /// where x is 16-byte aligned and ldx a multiple of 8, else none.
  int word_steps = 0;

  // Workspace. Tickets and keys are 0 before and after every launch.
  float* planes = nullptr;                    ///< [row blocks][runs][2][block_m][64]
  std::uint32_t* tickets = nullptr;           ///< [row blocks][tile groups]
  std::uint32_t* candidate_ticket = nullptr;  ///< [row blocks]
  std::uint64_t* best_keys = nullptr;         ///< [row blocks][block_m]; with one candidate
  std::uint64_t* candidate_lists = nullptr;   ///< [runs][block_m][candidates]; with more

  std::int32_t* candidate_ids = nullptr;  ///< [m][candidates]
  float* candidate_values = nullptr;      ///< [m][candidates], or null
  epilogue_params epilogue;
};

/// The part of a run that lies in one tile group. Each warp keeps its own in shared memory while
/// the loop over k has the registers.
struct alignas(16) run_part {
  int group;
  int first;  ///< step of the group
  int count;  ///< steps
  int left;   ///< steps of the run from here on, these included
};

/// Shared memory of a CTA, in bytes. The activations of the loop and the sums after it take turns
/// in the first part.
template <class Operand, int RowTiles>
struct shared_layout {
  using shape = cta_shape<Operand, RowTiles>;
  static constexpr int chunks = Operand::record_k / 8;  ///< of 16 bytes, of one row and record
  /// In which x is staged, along k: two where registers are short, a half has whole sectors and all
  /// lanes have as much of it. With fp32 scales along k a whole record is multiplied at once.
  static constexpr int pieces = RowTiles > 2 && !shape::cuts_rows && chunks > 2 &&
                                        !Operand::fp32_scales_along_k &&
                                        RowTiles * tile_m * chunks / 2 % shape::mates == 0
                                    ? 2
                                    : 1;
  // One chunk of padding: 8 rows then start at 8 different 16-byte columns of the banks.
  static constexpr int row_bytes = (chunks + 1) * 16;
  static constexpr int x_bytes = RowTiles * tile_m * row_bytes;  ///< of those who stage it together
  /// Copies of it: with two a step needs one barrier.
  static constexpr int x_buffers = shape::cuts_rows ? 2 : 1;
  static constexpr int sum_row_floats = group_n + 4;
  /// Row tiles whose sums are in shared memory at once: two where they fit 48 KB, which a kernel
  /// has without asking for more.
  static constexpr int sum_tiles = shape::cuts_rows                                  ? RowTiles / 2
                                   : RowTiles > 1 && shape::teams* shape::warps <= 8 ? 2
                                                                                     : 1;
  static constexpr int warp_sums_bytes = sum_tiles * tile_m * sum_row_floats * 4;
  static constexpr int team_sums_bytes = (shape::cuts_rows ? 1 : shape::warps) * warp_sums_bytes;
  static constexpr int all_x_bytes = (shape::cuts_rows ? 1 : shape::warps) * x_buffers * x_bytes;
  static constexpr int all_sums_bytes = shape::teams * team_sums_bytes;
  static constexpr int main_bytes = all_x_bytes > all_sums_bytes ? all_x_bytes : all_sums_bytes;
  static constexpr int last_flags = main_bytes;  ///< u32 of each team: it drew the last ticket
  static constexpr int parts = main_bytes + 16;  ///< run_part of each warp
  static constexpr int bytes = parts + 16 * shape::warps * shape::teams;
};

}  // namespace qpn::detail::sm70
