// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/mma16_map.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/split_sum.hpp"
#include "qpn/detail/work_split.hpp"
#include "qpn/gemm_types.hpp"

// How weights and x come to a CTA: the warps take turns at filling a ring of stages in shared
// memory with asynchronous copies, which run ahead of the sums, across the borders of blocks. A
// stage is 4 * batch steps of a block of 128 weight rows: the records as they lie in the weight,
// and the x of those steps. Two barriers of every stage say that its bytes have come, and that all
// warps are done with them: the loop has no barrier of the CTA.

namespace qpn::detail::sm80 {

inline constexpr int chains = 4;  ///< warps that share the k of a strip
inline constexpr int warps_per_cta = chains * mma16_strips_per_block;
inline constexpr int threads_per_cta = warps_per_cta * warp_lanes;
inline constexpr int group_n = 64;   ///< weight rows of a tile group
inline constexpr int block_n = 128;  ///< weight rows of a block
inline constexpr int tile_m = 8;     ///< rows of x of a row tile

static_assert(2 * group_n == block_n && 32 * mma16_strips_per_block == block_n);

struct gemm_params : packed_gemm_params {
  int strips = 0;                       ///< of 32 weight rows
  int blocks = 0;                       ///< of 128
  float const* block_scales = nullptr;  ///< [tiles][scale_columns], or null
  int scale_columns = 0;
  bool overlap_previous = false;  ///< launched while the stream's last kernel may still run
};

/// Shared memory of a CTA, in bytes. Policy says how deep the ring is.
template <class Operand, int RowTiles, class Policy>
struct ring_layout {
  static constexpr int batch = Policy::template batch<RowTiles>;
  static constexpr int stages = Policy::template stages<RowTiles>;
  static constexpr int stage_steps = chains * batch;
  static constexpr int x_offset =
      stage_steps * mma16_strips_per_block * Operand::record_bytes;     ///< in a stage
  static constexpr int x_chunks = stage_steps * Operand::record_k / 8;  ///< of 16 bytes, of a row
  static constexpr int x_row_bytes = 16 * x_chunks + Operand::x_padding;
  static constexpr int stage_bytes = x_offset + RowTiles * tile_m * x_row_bytes;
  static constexpr int sums = stages * stage_bytes;
  // 4 floats of padding: the rows of x of 4 lanes then start at different banks.
  static constexpr int sum_row_floats = block_n + 4;
  static constexpr int sum_bytes = chains * tile_m * sum_row_floats * 4;
  static constexpr int sum_buffers = Policy::template sum_buffers<RowTiles>;
  static_assert(sum_buffers == 1 || RowTiles % 2 == 0);  // buffers take turns from part to part
  static constexpr int last_flag = sums + sum_buffers * sum_bytes;
  static constexpr int barriers = last_flag + 16;  ///< [stages][full, empty], 8 bytes each
  static constexpr int bytes = barriers + 16 * stages;

  static_assert(stages >= 2 && stages <= warps_per_cta);
  static_assert(bytes <= mma16_shared_bytes(Policy::arch, method_of(RowTiles* tile_m)));

  [[nodiscard]] QPN_HD static constexpr int full(int stage) noexcept {
    return barriers + 16 * stage;
  }
  [[nodiscard]] QPN_HD static constexpr int empty(int stage) noexcept {
    return barriers + 16 * stage + 8;
  }
};

/// Steps of one stage: [step, step + count) of a block; count 0 behind the run's last stage.
struct stage_place {
  int block;
  int step;
  int count;
};

/// A CTA's run of units, cut at the borders of blocks into parts, and each part into stages, of
/// which its last may be short.
struct stage_run {
  int steps;       ///< of a block
  int most;        ///< steps of a stage
  int first;       ///< unit
  int end;         ///< unit behind the last
  int first_part;  ///< stages of the first part

  QPN_HD stage_run(unit_runs const& runs, int cta, int most_steps) noexcept
      : steps(runs.steps),
        most(most_steps),
        first(runs.first_unit(cta)),
        end(runs.first_unit(cta + 1)) {
    int const to_border = steps - first % steps;
    first_part = (to_border + most - 1) / most;
  }

  [[nodiscard]] QPN_HD stage_place place(int stage) const noexcept {
    int const per_block = (steps + most - 1) / most;
    int const behind = stage - first_part;  // stages behind the first part
    int block = first / steps;
    int step = first % steps + stage * most;
    if (behind >= 0) {
      int const blocks = behind / per_block;
      block += 1 + blocks;
      step = (behind - blocks * per_block) * most;
    }
    int const unit = block * steps + step;
    int const in_block = steps - step < end - unit ? steps - step : end - unit;
    return {block, step, in_block < 0 ? 0 : in_block < most ? in_block : most};
  }
};

/// A stage of the ring, and in which of its uses: the parity of its barriers' next phase.
struct ring_cursor {
  int stage = 0;
  int parity = 0;

  QPN_HD void advance(int stages) noexcept {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  [[nodiscard]] QPN_HD ring_cursor previous(int stages) const noexcept {
    return stage == 0 ? ring_cursor{stages - 1, parity ^ 1} : ring_cursor{stage - 1, parity};
  }
};

/// Strips of a block: 4, or 2 in the last one.
[[nodiscard]] QPN_HD inline int strips_of_block(gemm_params const& p, int block) noexcept {
  int const left = p.strips - block * mma16_strips_per_block;
  return left < mma16_strips_per_block ? left : mma16_strips_per_block;
}

/// Begins the copies of the records of a place.
template <class Operand, class Layout, class Lane>
QPN_HD void fill_weights(Lane& lane, gemm_params const& p, stage_place const& at,
                         int stage) noexcept {
  int const width = strips_of_block(p, at.block);
  std::int64_t const record =
      std::int64_t{at.block} * mma16_strips_per_block * p.runs.steps + at.step * width;
  lane.fill_stream(stage * Layout::stage_bytes, p.records + record * Operand::record_bytes,
                   at.count * width * Operand::record_bytes, Layout::full(stage));
}

/// Begins the copies of the x of the same steps.
template <class Operand, class Layout, class Lane>
QPN_HD void fill_x(Lane& lane, gemm_params const& p, stage_place const& at, int stage) noexcept {
  constexpr int lanes_per_row = Layout::x_chunks < warp_lanes ? Layout::x_chunks : warp_lanes;
  constexpr int rows_at_once = warp_lanes / lanes_per_row;
  int const id = lane.keep(lane.thread()) % warp_lanes;
  int const columns = at.count * Operand::record_k;
  std::int64_t const k0 = std::int64_t{at.step} * Operand::record_k;
  std::int64_t const left = p.k - k0;
  int const to = stage * Layout::stage_bytes + Layout::x_offset;
  if (p.x_by_words && columns <= left) {
    int row = id / lanes_per_row;
    int const column = 8 * (id % lanes_per_row);
    std::uint16_t const* from = p.x + row * p.ldx + k0 + column;
    int at_shared = to + row * Layout::x_row_bytes + 2 * column;
    QPN_UNROLL_BY_4
    for (; row < p.m; row += rows_at_once) {
      QPN_UNROLL
      for (int c = 0; c < Layout::x_chunks / lanes_per_row; ++c) {
        if (column + c * 8 * lanes_per_row < columns) {
          lane.copy(at_shared + c * 16 * lanes_per_row,
                    reinterpret_cast<word4 const*>(from + c * 8 * lanes_per_row));
        }
      }
      from += rows_at_once * p.ldx;
      at_shared += rows_at_once * Layout::x_row_bytes;
    }
    return;
  }
  // Any alignment, element by element; what lies beyond k is 0.
  QPN_NO_UNROLL
  for (int row = 0; row < p.m; ++row) {
    QPN_NO_UNROLL
    for (int column = id; column < columns; column += warp_lanes) {
      std::uint16_t const value =
          column < left ? lane.load(p.x + row * p.ldx + k0 + column) : std::uint16_t{0};
      lane.shared_store(to + row * Layout::x_row_bytes + 2 * column, value);
    }
  }
}

/// Begins the copies of a stage, by all lanes of a warp.
template <class Operand, class Layout, class Lane>
QPN_HD void fill_stage(Lane& lane, gemm_params const& p, stage_place const& at,
                       int stage) noexcept {
  fill_weights<Operand, Layout>(lane, p, at, stage);
  fill_x<Operand, Layout>(lane, p, at, stage);
  lane.copies_arrive(Layout::full(stage));
}

/// Rows of x at and beyond m are 0 in every stage, once and for all: no copy ever writes them.
template <int RowTiles, class Layout, class Lane>
QPN_HD void clear_missing_rows(Lane& lane, gemm_params const& p) noexcept {
  constexpr int chunks = Layout::x_row_bytes / 16;
  int const missing = (RowTiles * tile_m - p.m) * chunks;
  QPN_NO_UNROLL
  for (int i = lane.thread(); i < missing; i += threads_per_cta) {
    QPN_NO_UNROLL
    for (int stage = 0; stage < Layout::stages; ++stage) {
      lane.shared_store(
          stage * Layout::stage_bytes + Layout::x_offset + p.m * Layout::x_row_bytes + 16 * i,
          word4{});
    }
  }
}

}  // namespace qpn::detail::sm80
