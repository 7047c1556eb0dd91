// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "qpn/arch/sm70/activation_stage.hpp"
#include "qpn/arch/sm70/gemm_shape.hpp"
#include "qpn/arch/sm70/gemm_sums.hpp"
#include "qpn/arch/sm70/share_sums.hpp"
#include "qpn/arch/sm70/weight_operand.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/work_split.hpp"

// The GEMM of layout sm70_quadpair as a lane program: y[m, n] = x[m, k] w[n, k]^T for up to
// 8 * RowTiles rows of x, a row block, in one pass over the weight. Row blocks are independent.
//
// A team of warps walks a run of units (detail/work_split.hpp), tile group by tile group. The part
// of the run that lies in a tile group is cut into 8 shares of its steps of k. A warp sums a share
// in its registers, then the team adds the shares up in shared memory in their order. Where several
// runs share a tile group, each team leaves its sums in a plane of the workspace and draws a
// ticket; the one with the last ticket adds the planes in the order of the runs. No order depends
// on m, on timing or on the other rows.
//
// With more than four row tiles the warps of a team do not take shares: each has all of k for a
// quarter of the rows, and adds one share after the other in its registers. Four warps then read
// the same weights at the same step.
//
// With one or two row tiles a CTA is a team. With more it is two teams, whose runs lie half the
// weight apart and are at the same k all the way: mates need the same x, and stage it together.
// Weights whose runs do not come in such pairs have row blocks of two row tiles at most.
//
// fp32 scales along k multiply the sums of each record on their way to those of the share.

namespace qpn::detail::sm70 {

/// A share of a part: a run of steps that x serves by words, then one by elements.
struct step_share {
  int group;
  int first;
  int by_words;
  int by_elements;
};

/// The fp32 scales along k of a warp's two tiles, loaded a step ahead of their use.
template <class Operand, bool = Operand::fp32_scales_along_k>
struct k_factors {
  QPN_HD k_factors(gemm_params const&, int /*group*/, int /*step*/) noexcept {}
  template <class Lane>
  QPN_HD void load(Lane&) noexcept {}
};

template <class Operand>
struct k_factors<Operand, true> {
  float of_step[tiles_per_group] = {};
  float loaded[tiles_per_group] = {};
  float const* from;
  std::int64_t columns;  ///< from one tile to the next
  int step;              ///< to load next, of the tile group

  QPN_HD k_factors(gemm_params const& p, int group, int first) noexcept
      : from(p.k_scales + std::int64_t{group} * tiles_per_group * p.scale_columns),
        columns(p.scale_columns),
        step(first) {}

  template <class Lane>
  QPN_HD void load(Lane& lane) noexcept {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      loaded[tile] = lane.load(from + tile * columns + step / Operand::records_per_scale);
    }
    ++step;
  }
  /// What was loaded last becomes the step's.
  template <class Lane>
  QPN_HD void next(Lane& lane, bool loads) noexcept {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) of_step[tile] = loaded[tile];
    if (loads) load(lane);
  }
};

/// For warps that add no shares in their registers.
struct nothing_after_step {
  QPN_HD void operator()() const noexcept {}
};

/// acc[row tile][tile][8] += x w^T over the steps [first, first + count) of a tile group, for one
/// warp, which calls after_step() behind each. ByWords: x is loaded 16 bytes at a time, so no step
/// may reach beyond k, and x and weights travel while others are multiplied.
template <bool ByWords, class Operand, int RowTiles, class Lane,
          class AfterStep = nothing_after_step>
QPN_HD void multiply_steps(Lane& lane, gemm_params const& p, int group, int first, int count,
                           warp_sums<Operand, RowTiles>& acc,
                           AfterStep const& after_step = {}) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  using shared = shared_layout<Operand, RowTiles>;
  using stage = activation_stage<Operand, RowTiles>;
  constexpr int fragments_per_piece = Operand::fragments / stage::pieces;
  constexpr int unit_bytes = tiles_per_group * Operand::record_bytes;
  constexpr int ahead = ByWords ? shape::steps_ahead : 1;
  if (count <= 0) return;
  int const id = lane.thread() % warp_lanes;
  int const fragment_offset =
      lane.keep(shape::stage_place(lane) * shared::x_bytes +
                (shape::first_row_tile(lane) * tile_m + position_of_lane(id)) * shared::row_bytes);

  // The records of the group's tiles lie side by side, so that one pointer serves both.
  std::byte const* const unit =
      p.records + (std::int64_t{group} * p.split.steps + first) * unit_bytes;
  std::byte const* codes = unit + 16 * id;
  std::byte const* scales = unit + Operand::record::scales_offset + 4 * id;
  Operand weights[ahead][tiles_per_group];  // of step s: [s % ahead]
  weight_reader<Lane, shape::cuts_rows> reader{lane};
  auto const load_scales = [&](int of_step, Operand(&to)[tiles_per_group]) {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      to[tile].load_scales(reader, scales + of_step * unit_bytes + tile * Operand::record_bytes);
    }
  };
  auto const load_half = [&](int of_step, int half, Operand(&to)[tiles_per_group]) {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      to[tile].load_half(reader, codes + of_step * unit_bytes + tile * Operand::record_bytes, half);
    }
  };
  std::int64_t const k0 = std::int64_t{first} * Operand::record_k;
  stage x(lane, p, k0);
  k_factors<Operand> factors(p, group, first);
  auto const load_a = [&](int i, int f, int buffer) {  // (8 rows, 8 k)
    return lane.template shared_load<word4>(fragment_offset + i * tile_m * shared::row_bytes +
                                            16 * f + buffer * shared::x_bytes);
  };
  auto const stage_piece = [&](int piece, int buffer, bool loads_next) {
    x.store(lane, piece, buffer);
    shape::sync_stage(lane);  // all chunks of the piece are in shared memory
    if (piece + 1 == stage::pieces) x.next_record();
    if (loads_next || piece + 1 < stage::pieces) x.load(lane, (piece + 1) % stage::pieces);
  };

  // The step whose number is `at` modulo `ahead`, with fp32 scales along k: tile by tile, so that
  // the fragments of one only are decoded at a time. It loads all of step + ahead where there is
  // such a step, and the next x.
  auto const scaled_step = [&](auto at, auto& of_k, bool loads_step, bool loads_x) {
    constexpr int mine = decltype(at)::value;
    if (ByWords) stage_piece(0, 0, loads_x);
    of_k.next(lane, loads_x);
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      Operand& of_tile = weights[mine][tile];
      std::uint32_t b[Operand::fragments][4];
      QPN_UNROLL
      for (int f = 0; f < Operand::fragments; ++f) of_tile.fragment(lane, f, b[f]);
      if (loads_step) {
        std::byte const* const from = codes + ahead * unit_bytes + tile * Operand::record_bytes;
        of_tile.load_half(lane, from, 0);
        of_tile.load_half(lane, from, 1);
      }
      QPN_UNROLL
      for (int i = 0; i < RowTiles; ++i) {
        float sum[8] = {};
        QPN_UNROLL
        for (int f = 0; f < Operand::fragments; ++f) {
          word4 const a = load_a(i, f, 0);
          lane.mma_m8n8k4(sum, {a.w[0], a.w[1]}, {b[f][0], b[f][1]});
          lane.mma_m8n8k4(sum, {a.w[2], a.w[3]}, {b[f][2], b[f][3]});
        }
        QPN_UNROLL
        for (int j = 0; j < 8; ++j) {
          acc[i][tile][j] = lane.fma(sum[j], of_k.of_step[tile], acc[i][tile][j]);
        }
      }
    }
    codes += unit_bytes;
    shape::sync_stage(lane);  // all have read the chunks before they are overwritten
  };

  // The step whose number is `at` modulo `ahead`. It loads half 1 of step + ahead - 1 and the rest
  // of step + ahead where there are such steps, and the next x.
  auto const plain_step = [&](auto at, bool loads_half_1, bool loads_half_0, bool loads_x) {
    constexpr int mine = decltype(at)::value;
    constexpr int buffer = mine % shared::x_buffers;
    QPN_UNROLL
    for (int f = 0; f < Operand::fragments; ++f) {
      if (ByWords && f % fragments_per_piece == 0) {
        stage_piece(f / fragments_per_piece, buffer, loads_x);
      }
      // Loads come behind a barrier, where the compiler cannot move them up to what still has their
      // registers.
      if (f == 0) {
        if (loads_half_1) load_half(ahead - 1, 1, weights[(mine + ahead - 1) % ahead]);
        QPN_UNROLL
        for (Operand& of_tile : weights[mine]) of_tile.begin_record();
      }
      if (loads_half_0 && f == Operand::fragments_per_half) load_half(ahead, 0, weights[mine]);
      if (loads_half_0 && f == Operand::fragments - 2) load_scales(ahead, weights[mine]);
      std::uint32_t b[tiles_per_group][4];
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        weights[mine][tile].fragment(lane, f, b[tile]);
      }
      QPN_UNROLL
      for (int i = 0; i < shape::warp_row_tiles; ++i) {
        word4 const a = load_a(i, f, buffer);
        QPN_UNROLL
        for (int tile = 0; tile < tiles_per_group; ++tile) {
          lane.mma_m8n8k4(acc[i][tile], {a.w[0], a.w[1]}, {b[tile][0], b[tile][1]});
          lane.mma_m8n8k4(acc[i][tile], {a.w[2], a.w[3]}, {b[tile][2], b[tile][3]});
        }
      }
    }
    codes += unit_bytes;
    scales += unit_bytes;
    // All have read the chunks before they are overwritten. Of several pieces or buffers each waits
    // for the barrier of another.
    if (shared::x_buffers == 1 && (!ByWords || stage::pieces == 1)) shape::sync_stage(lane);
  };
  auto const step = [&](auto at, bool loads_half_1, bool loads_half_0, bool loads_x) {
    if constexpr (Operand::fp32_scales_along_k) {
      scaled_step(at, factors, loads_half_0, loads_x);
    } else {
      plain_step(at, loads_half_1, loads_half_0, loads_x);
    }
    after_step();
  };

  using first_step = std::integral_constant<int, 0>;
  if constexpr (!ByWords) {
    QPN_NO_UNROLL
    for (int i = 0; i < count; ++i) {
      if (shared::x_buffers > 1) shape::sync_stage(lane);  // the chunks before have been read
      x.copy_elements(lane, p, k0 + std::int64_t{i} * Operand::record_k);
      shape::sync_stage(lane);  // all chunks are in shared memory
      load_scales(0, weights[0]);
      load_half(0, 0, weights[0]);
      load_half(0, 1, weights[0]);
      factors.load(lane);
      step(first_step{}, false, false, false);
    }
  } else {
    load_scales(0, weights[0]);
    load_half(0, 0, weights[0]);
    x.load(lane, 0);
    factors.load(lane);
    if constexpr (ahead == 1) {
      if (Operand::fp32_scales_along_k) load_half(0, 1, weights[0]);
      // The last step apart: loads without a condition need no copies of their registers.
      QPN_NO_UNROLL
      for (int left = count; left > 1; --left) step(first_step{}, true, true, true);
      step(first_step{}, true, false, false);
    } else if constexpr (ahead == 2) {
      load_half(0, 1, weights[0]);
      if (count > 1) {
        load_scales(1, weights[1]);
        load_half(1, 0, weights[1]);
        if (Operand::fp32_scales_along_k) load_half(1, 1, weights[1]);
      }
      QPN_NO_UNROLL
      for (int left = count;;) {
        step(first_step{}, left > 1, left > 2, left > 1);
        if (--left == 0) break;
        step(std::integral_constant<int, 1>{}, left > 1, left > 2, left > 1);
        if (--left == 0) break;
      }
    } else {
      static_assert(ahead == 4 && !Operand::fp32_scales_along_k);
      // All of the first steps but half 1 of the last of them.
      QPN_UNROLL
      for (int s = 0; s < ahead; ++s) {
        if (s >= count) continue;
        if (s > 0) {
          load_scales(s, weights[s]);
          load_half(s, 0, weights[s]);
        }
        if (s + 1 < ahead) load_half(s, 1, weights[s]);
      }
      int left = count;
      auto const next_step = [&](auto at) {
        step(at, left >= ahead, left > ahead, left > 1);
        return --left > 0;
      };
      QPN_NO_UNROLL
      while (next_step(first_step{}) && next_step(std::integral_constant<int, 1>{}) &&
             next_step(std::integral_constant<int, 2>{}) &&
             next_step(std::integral_constant<int, 3>{})) {
      }
    }
    if (stage::pieces > 1) shape::sync_stage(lane);  // the last piece has been read, too
  }
}

/// The warp's share of a part in a round, or all of it: multiply(by_words, group, first step,
/// steps), by words, a bool_constant, where the alignment of x and k allow it.
template <class Operand, int RowTiles, class Lane, class Multiply>
QPN_HD void multiply_part(Lane& lane, gemm_params const& p, int round,
                          Multiply const& multiply) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  using shared = shared_layout<Operand, RowTiles>;
  auto const my_share = [&]() -> step_share {
    run_part const part =
        lane.template shared_load<run_part>(shared::parts + lane.thread() / warp_lanes * 16);
    int const share = shape::cuts_rows ? 0 : round * shape::warps + shape::warp(lane);
    int const shares = shape::cuts_rows ? shares_per_part : 1;
    int const first = part.first + part.count * share / shares_per_part;
    int const end = part.first + part.count * (share + shares) / shares_per_part;
    int const middle = p.word_steps < first ? first : p.word_steps < end ? p.word_steps : end;
    return {part.group, first, middle - first, end - middle};
  };
  step_share const words = my_share();
  multiply(std::true_type{}, words.group, words.first, words.by_words);
  step_share const rest = my_share();
  multiply(std::false_type{}, rest.group, rest.first + rest.by_words, rest.by_elements);
}

/// A team's run, part by part. sum_part(sum) adds up the part that the warps find in shared memory;
/// of `sum` a lane gets the rows of its warp, columns id and id + 32 of the group.
template <class Operand, int RowTiles, class Lane, class SumPart>
QPN_HD void walk_run(Lane& lane, gemm_params const& p, SumPart const& sum_part) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  using shared = shared_layout<Operand, RowTiles>;
  int const slot = shared::parts + lane.thread() / warp_lanes * 16;
  int const steps = static_cast<int>(p.split.steps);
  auto const run = [&]() -> std::int32_t {
    return lane.keep(lane.block()) + shape::team(lane) * p.team_runs;
  };
  int const first_unit = static_cast<int>(p.split.first_unit(run()));
  run_part part{first_unit / steps, first_unit % steps, 0,
                static_cast<int>(p.split.last_unit(run())) - first_unit};
  if constexpr (shape::lists_candidates) {
    if (p.epilogue.candidates > 1) clear_candidates<Operand, RowTiles>(lane, p);
  }
  QPN_NO_UNROLL
  while (part.left > 0) {
    part.count = part.left < steps - part.first ? part.left : steps - part.first;
    if (lane.thread() % warp_lanes == 0) lane.shared_store(slot, part);
    lane.sync_warp();  // the part is in shared memory
    float sum[shape::rows_per_warp][tiles_per_group] = {};
    sum_part(sum);

    part = lane.template shared_load<run_part>(slot);
    // On their way while planes and tickets are.
    column_factors const factors =
        load_column_factors(lane, p.epilogue, part.group, lane.thread() % warp_lanes);
    bool const whole = part.count == steps;
    bool const finished = whole || add_planes<Operand, RowTiles>(lane, p, run(), part.group, sum);
    if (finished) finish_group<Operand, RowTiles>(lane, p, factors, part.group, sum);
    // Another team of the CTA may have finished its group: all come to the barriers.
    if (p.epilogue.candidates != 0 && (shape::teams > 1 || finished)) {
      finish_candidates<Operand, RowTiles>(lane, p, finished);
    }
    // The sums in shared memory are read before the next part's activations are written; a ticket
    // has waited for that already.
    if (whole) lane.sync_block();
    part = lane.template shared_load<run_part>(slot);
    part = {part.group + 1, 0, 0, part.left - part.count};
    lane.sync_warp();  // every lane has read the part before it is overwritten
  }
}

/// Sums a part, of which the warps have rows.
template <class Operand, int RowTiles, class Lane>
QPN_HD void sum_rows(
    Lane& lane, gemm_params const& p,
    float (&sum)[cta_shape<Operand, RowTiles>::rows_per_warp][tiles_per_group]) noexcept {
  using shared = shared_layout<Operand, RowTiles>;
  warp_sums<Operand, RowTiles> acc = {};
  warp_sums<Operand, RowTiles> total = {};
  share_sums<Operand, RowTiles> shares{
      acc, total,
      lane.template shared_load<run_part>(shared::parts + lane.thread() / warp_lanes * 16).count};
  shares.next_share();
  multiply_part<Operand, RowTiles>(lane, p, 0, [&](auto by_words, int group, int first, int count) {
    multiply_steps<decltype(by_words)::value, Operand, RowTiles>(lane, p, group, first, count, acc,
                                                                 [&shares] { shares.step(); });
  });
  spread_rows<Operand, RowTiles>(lane, total, sum);
}

/// The kernel. Grid: row blocks (1 with one row tile) x team_runs; cta_shape::threads threads,
/// shared_layout::bytes of shared memory. CTAs that read the same weights are neighbours.
template <class Operand, int RowTiles, class Lane>
QPN_HD void gemm_program(Lane& lane, gemm_params const& p) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  using sums = float[shape::rows_per_warp][tiles_per_group];
  walk_run<Operand, RowTiles>(lane, p, [&](sums& sum) {
    if constexpr (shape::cuts_rows) {
      sum_rows<Operand, RowTiles>(lane, p, sum);
    } else {
      QPN_NO_UNROLL
      for (int round = 0; round < shape::rounds; ++round) {
        if (round > 0) lane.sync_block();  // the sums are read before activations overwrite them
        warp_sums<Operand, RowTiles> acc = {};
        multiply_part<Operand, RowTiles>(
            lane, p, round, [&](auto by_words, int group, int first, int count) {
              multiply_steps<decltype(by_words)::value, Operand, RowTiles>(lane, p, group, first,
                                                                           count, acc);
            });
        add_warps<Operand, RowTiles>(lane, acc, round, sum);
      }
    }
  });
}

}  // namespace qpn::detail::sm70
