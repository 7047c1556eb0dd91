// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm80/stage_ring.hpp"
#include "qpn/arch/sm80/weight_operand.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/mma16_map.hpp"
#include "qpn/detail/split_sum.hpp"
#include "qpn/detail/work_split.hpp"

// The GEMM of layout sm80_mma16 as a lane program: y[m, n] = x[m, k] w[n, k]^T for up to
// 8 * RowTiles rows of x in one pass over the weight.
//
// A CTA of 16 warps walks its run of units (detail/work_split.hpp), block by block: 4 warps side by
// side on the 128 rows of a block, 4 chains along k. Chain c of a part takes its steps c, c + 4,
// c + 8... Weights and x come through a ring of stages in shared memory (stage_ring.hpp) that runs
// ahead of the sums and across the borders of blocks. The chains' sums are added in order, then,
// where several CTAs share a block, those of the CTAs (detail/split_sum.hpp). No order depends on
// m, on timing or on the other rows.

namespace qpn::detail::sm80 {

/// acc += operand A of one half and fragment times the fragment of x at byte `x` of shared memory.
template <class Operand, class Lane>
QPN_HD void multiply_fragment(Lane& lane, std::uint32_t const (&a)[Operand::steps][4],
                              x_fragment<Operand::steps> const& b, float scale,
                              float (&acc)[4]) noexcept {
  if constexpr (Operand::block_scales) {
    float part[4] = {};
    QPN_UNROLL
    for (int s = 0; s < Operand::steps; ++s) {
      lane.mma_m16n8k16(part, a[s], {b.w[2 * s], b.w[2 * s + 1]});
    }
    QPN_UNROLL
    for (int r = 0; r < 4; ++r) acc[r] = lane.multiply_add(scale, part[r], acc[r]);
  } else {
    QPN_UNROLL
    for (int s = 0; s < Operand::steps; ++s) {
      lane.mma_m16n8k16(acc, a[s], {b.w[2 * s], b.w[2 * s + 1]});
    }
  }
}

/// acc[half][row tile][4] += the record at byte `weights` of shared memory times x at byte `x`.
template <class Operand, int RowTiles, class Lane>
QPN_HD void multiply_record(Lane& lane, int weights, int x, int x_row_bytes, int id,
                            float const (&scale)[2], float (&acc)[2][RowTiles][4]) noexcept {
  using fragment = x_fragment<Operand::steps>;
  auto const load_x = [&](int f, int i) {
    return lane.template shared_load<fragment>(x + i * (tile_m * x_row_bytes) +
                                               f * Operand::fragment_bytes);
  };
  Operand operand;
  operand.load(lane, weights, id);
  QPN_UNROLL
  for (int f = 0; f < Operand::fragments; ++f) {
    if constexpr (RowTiles > 8) {  // x is loaded twice: there are no registers for both halves
      QPN_UNROLL
      for (int h = 0; h < 2; ++h) {
        std::uint32_t a[Operand::steps][4];
        operand.fragment(lane, f, h, a);
        fragment b = load_x(f, 0);
        QPN_UNROLL
        for (int i = 0; i < RowTiles; ++i) {
          fragment const now = b;
          if (i + 1 < RowTiles) b = load_x(f, i + 1);
          multiply_fragment<Operand>(lane, a, now, scale[h], acc[h][i]);
        }
      }
    } else {
      std::uint32_t a[2][Operand::steps][4];
      QPN_UNROLL
      for (int h = 0; h < 2; ++h) operand.fragment(lane, f, h, a[h]);
      fragment b = load_x(f, 0);
      QPN_UNROLL
      for (int i = 0; i < RowTiles; ++i) {
        fragment const now = b;
        if (i + 1 < RowTiles) b = load_x(f, i + 1);
        QPN_UNROLL
        for (int h = 0; h < 2; ++h) {
          multiply_fragment<Operand>(lane, a[h], now, scale[h], acc[h][i]);
        }
      }
    }
  }
}

/// Adds up the chains' sums of row tile i in their order. Thread t gets row t / 64 of the tile,
/// columns 64 * (t / 32 % 2) + t % 32 and + 32 of the block.
/// @param buffer  byte of shared memory that no thread reads any more
template <class Layout, int RowTiles, class Lane>
[[nodiscard]] QPN_HD float2_pair add_chains(Lane& lane, int thread,
                                            float const (&acc)[2][RowTiles][4], int i,
                                            int buffer) noexcept {
  int const id = thread % warp_lanes;
  int const strip = thread / warp_lanes % mma16_strips_per_block;
  int const chain = thread / warp_lanes / mma16_strips_per_block;
  QPN_UNROLL
  for (int h = 0; h < 2; ++h) {
    QPN_UNROLL
    for (int r = 0; r < 4; ++r) {
      int const column = strip / 2 * group_n + mma16_column(strip, h, mma16_weight_row(id, r));
      int const row = chain * tile_m + mma16_x_row(id, r);
      lane.shared_store(buffer + 4 * (row * Layout::sum_row_floats + column), acc[h][i][r]);
    }
  }
  lane.sync_block();  // the sums of all chains are in shared memory
  int const row = thread / 64;
  int const column = thread / 32 % 2 * group_n + id;
  float2_pair total{};
  QPN_UNROLL
  for (int c = 0; c < chains; ++c) {
    int const at = buffer + 4 * ((c * tile_m + row) * Layout::sum_row_floats + column);
    float const low = lane.template shared_load<float>(at);
    float const high = lane.template shared_load<float>(at + 4 * static_cast<int>(tile_n));
    total = c == 0 ? float2_pair{low, high} : float2_pair{total.low + low, total.high + high};
  }
  return total;
}

/// Sums a CTA's part of a block, and finishes the block where nothing is missing.
template <class Layout, int RowTiles, class Lane>
QPN_HD void finish_part(Lane& lane, gemm_params const& p, int block, bool whole,
                        float const (&acc)[2][RowTiles][4]) noexcept {
  int const thread = lane.keep(lane.thread());  // or all that follows is kept through the loop
  int const id = thread % warp_lanes;
  int const row = thread / 64;
  int const half_block = thread / 32 % 2;
  int const group = block * (block_n / group_n) + half_block;
  std::int64_t const first_column = std::int64_t{group} * group_n + id;
  column_terms const terms[2] = {load_column_terms(lane, p.epilogue, first_column),
                                 load_column_terms(lane, p.epilogue, first_column + tile_n)};
  int const in_plane = row * block_n + half_block * group_n + id;
  auto const plane = [&](int cta) {
    return p.planes +
           std::int64_t{plane_of_part(p.runs, block, cta)} * (RowTiles * tile_m * block_n) +
           in_plane;
  };
  // Many row tiles pass through the plane even where no other CTA adds to them, so that a loop
  // finishes them: code that runs once is slow to fetch.
  bool const direct = whole && RowTiles <= 2;
  float* const mine = plane(lane.block());
  QPN_UNROLL
  for (int i = 0; i < RowTiles; ++i) {
    // The sums before these have been read. Two buffers take turns, also from part to part.
    if (Layout::sum_buffers == 1) lane.sync_block();
    float2_pair const sum = add_chains<Layout, RowTiles>(
        lane, thread, acc, i, Layout::sums + i % Layout::sum_buffers * Layout::sum_bytes);
    if (direct) {
      detail::finish_row(lane, p, group, i * tile_m + row, sum, terms);
    } else {
      lane.store(mine + i * tile_m * block_n, sum.low);
      lane.store(mine + i * tile_m * block_n + tile_n, sum.high);
    }
  }
  if (!direct) {
    int const first = p.runs.first_cta(block, lane.block());
    int const count = p.runs.last_cta(block, lane.block()) - first + 1;
    if (!whole && !detail::draw_last_ticket(lane, Layout::last_flag, p.tickets + block,
                                            static_cast<std::uint32_t>(count))) {
      return;
    }
    constexpr int tiles_at_once = RowTiles <= 4 && RowTiles > 1 ? 2 : 1;
    constexpr int planes_at_once = RowTiles <= 8 ? 4 : 2;  // their loads travel together
    QPN_NO_UNROLL
    for (int i = 0; i < RowTiles; i += tiles_at_once) {
      float2_pair sum[tiles_at_once];
      QPN_NO_UNROLL
      for (int c = 0; c < count; c += planes_at_once) {
        float2_pair part[planes_at_once][tiles_at_once];
        QPN_UNROLL
        for (int j = 0; j < planes_at_once; ++j) {
          if (c + j >= count) continue;
          float const* const from = plane(first + c + j) + i * tile_m * block_n;
          QPN_UNROLL
          for (int t = 0; t < tiles_at_once; ++t) {
            part[j][t] = {lane.load_volatile(from + t * tile_m * block_n),
                          lane.load_volatile(from + t * tile_m * block_n + tile_n)};
          }
        }
        QPN_UNROLL
        for (int j = 0; j < planes_at_once; ++j) {
          if (c + j >= count) continue;
          QPN_UNROLL
          for (int t = 0; t < tiles_at_once; ++t) {
            sum[t] = c + j == 0
                         ? part[j][t]
                         : float2_pair{sum[t].low + part[j][t].low, sum[t].high + part[j][t].high};
          }
        }
      }
      QPN_NO_UNROLL
      for (int t = 0; t < tiles_at_once; ++t) {
        detail::finish_row(lane, p, group, (i + t) * tile_m + row, sum[0], terms);
        QPN_UNROLL
        for (int j = 0; j + 1 < tiles_at_once; ++j) sum[j] = sum[j + 1];
      }
    }
  }
  if (p.epilogue.argmax) detail::finish_argmax(lane, p, p.blocks, Layout::last_flag);
}

/// The fp32 scales of the warp's records of the stage at `unit`: ahead of their use, since they
/// come from global memory.
template <class Operand, class Layout, class Lane>
QPN_HD void load_block_scales(Lane& lane, gemm_params const& p, int unit, int end, int strip,
                              int chain, float (&scale)[Layout::batch][2]) noexcept {
  if constexpr (Operand::block_scales) {
    int const block = unit / p.runs.steps;
    if (unit >= end || strip >= strips_of_block(p, block)) return;
    int const tile = block * mma16_strips_per_block + strip / 2 * 2;
    QPN_UNROLL
    for (int b = 0; b < Layout::batch; ++b) {
      int const step = unit - block * p.runs.steps + b * chains + chain;
      if (step >= p.runs.steps) continue;
      int const column = step * Operand::record_k / static_cast<int>(scale_block);
      float const* const from = p.block_scales + std::int64_t{tile} * p.scale_columns + column;
      scale[b][0] = lane.load(from);
      scale[b][1] = lane.load(from + p.scale_columns);
    }
  }
}

/// The kernel: blocks = runs.ctas, threads_per_cta threads, Layout::bytes of shared memory; Layout
/// is a ring_layout.
template <class Operand, int RowTiles, class Layout, class Lane>
QPN_HD void gemm_program(Lane& lane, gemm_params const& p) noexcept {
  int const id = lane.thread() % warp_lanes;
  int const warp = lane.thread() / warp_lanes;
  int const strip = warp % mma16_strips_per_block;
  int const chain = warp / mma16_strips_per_block;
  if (lane.thread() == 0) {
    QPN_NO_UNROLL
    for (int s = 0; s < Layout::stages; ++s) {
      lane.barrier_init(Layout::full(s), warp_lanes + 1);
      lane.barrier_init(Layout::empty(s), warps_per_cta);
    }
    lane.publish_barriers();
  }
  clear_missing_rows<RowTiles, Layout>(lane, p);
  lane.sync_block();  // the barriers are there

  // The weight does not depend on what runs before: its copies begin first.
  stage_place begin{0, 0, 0};
  if (warp < Layout::stages)
    begin = stage_run(p.runs, lane.block(), Layout::stage_steps).place(warp);
  if (begin.count > 0) fill_weights<Operand, Layout>(lane, p, begin, warp);
  if (p.overlap_previous) {
    lane.allow_next();
    lane.wait_previous();
  }
  if (begin.count > 0) {
    fill_x<Operand, Layout>(lane, p, begin, warp);
    lane.copies_arrive(Layout::full(warp));
  }

  int const my_x = Layout::x_offset + id / 4 * Layout::x_row_bytes + chain * Operand::record_k * 2 +
                   id % 4 * (Operand::record_k / 2);
  float acc[2][RowTiles][4] = {};
  float scale[Layout::batch][2] = {};
  ring_cursor ring;
  int index = 0;  // of the stage in the run
  int unit = p.runs.first_unit(lane.block());
  int const end = p.runs.first_unit(lane.block() + 1);
  load_block_scales<Operand, Layout>(lane, p, unit, end, strip, chain, scale);
  int block = unit / p.runs.steps;
  int part_first = unit;
  QPN_NO_UNROLL
  while (unit < end) {
    int const block_end = (block + 1) * p.runs.steps;
    int const part_end = block_end < end ? block_end : end;
    int const width = strips_of_block(p, block);
    // The stage before this one is filled again, by each warp in turn. Where that is in the weight
    // is known before the wait, if there are registers for it.
    bool const my_turn = index > 0 && warp == index % warps_per_cta;
    auto const refill_place = [&]() -> stage_place {
      return stage_run(p.runs, lane.keep(lane.block()), Layout::stage_steps)
          .place(index - 1 + Layout::stages);
    };
    stage_place refill{0, 0, 0};
    if (RowTiles <= 4 && my_turn) refill = refill_place();
    lane.barrier_wait(Layout::full(ring.stage), ring.parity);
    int const base = ring.stage * Layout::stage_bytes;
    if (strip < width) {
      QPN_UNROLL
      for (int b = 0; b < Layout::batch; ++b) {
        int const step = b * chains + chain;
        if (unit + step >= part_end) continue;
        multiply_record<Operand, RowTiles>(lane,
                                           base + (step * width + strip) * Operand::record_bytes,
                                           base + my_x + b * chains * Operand::record_k * 2,
                                           Layout::x_row_bytes, id, scale[b], acc);
      }
    }
    lane.sync_warp();  // all lanes have read the stage
    if (id == 0) lane.barrier_arrive(Layout::empty(ring.stage));
    if (my_turn) {
      if (RowTiles > 4) refill = refill_place();
      if (refill.count > 0) {
        ring_cursor const last = ring.previous(Layout::stages);
        lane.barrier_wait(Layout::empty(last.stage), last.parity);  // for warps that are late
        fill_stage<Operand, Layout>(lane, p, refill, last.stage);
      }
    }
    ++index;
    ring.advance(Layout::stages);
    unit = unit + Layout::stage_steps < part_end ? unit + Layout::stage_steps : part_end;
    load_block_scales<Operand, Layout>(lane, p, unit, end, strip, chain, scale);
    if (unit < part_end) continue;
    bool const whole = unit - part_first == p.runs.steps;
    finish_part<Layout, RowTiles>(lane, p, block, whole, acc);
    QPN_UNROLL
    for (int h = 0; h < 2; ++h) {
      QPN_UNROLL
      for (int i = 0; i < RowTiles; ++i) {
        QPN_UNROLL
        for (int r = 0; r < 4; ++r) acc[h][i][r] = 0.0f;
      }
    }
    part_first = unit;
    ++block;
  }
}

}  // namespace qpn::detail::sm80
