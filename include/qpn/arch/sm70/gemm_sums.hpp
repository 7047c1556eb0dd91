// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm70/gemm_shape.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/candidate_key.hpp"
#include "qpn/detail/candidate_list.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_map.hpp"

// From the warps' accumulators to y: the sums of a team, of all runs that share a tile group, and
// the candidates. All threads of a CTA pass its barriers, whatever their team has to do.

namespace qpn::detail::sm70 {

/// Adds the sums of a team's warps, shares of one round, to those of the rounds before, in their
/// order: some row tiles at a time. Of `sum` a lane gets the rows of its warp, columns id and
/// id + 32 of the group.
template <class Operand, int RowTiles, class Lane>
QPN_HD void add_warps(
    Lane& lane, float const (&acc)[RowTiles][tiles_per_group][8], int round,
    float (&sum)[cta_shape<Operand, RowTiles>::rows_per_warp][tiles_per_group]) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  using shared = shared_layout<Operand, RowTiles>;
  constexpr int row_floats = shared::sum_row_floats;
  constexpr int rows_at_once = shared::sum_tiles * tile_m / shape::warps;  ///< of a warp
  int const id = lane.thread() % warp_lanes;
  int const warp = shape::warp(lane);
  int const sums = shape::team(lane) * shared::team_sums_bytes;
  QPN_UNROLL
  for (int first = 0; first < RowTiles; first += shared::sum_tiles) {
    lane.sync_block();  // the shared memory's last user, loop or row tiles, is done with it
    QPN_UNROLL
    for (int i = 0; i < shared::sum_tiles; ++i) {
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        QPN_UNROLL
        for (int j = 0; j < 8; j += 2) {
          int const at = (i * tile_m + accumulator_row(id, j)) * row_floats +
                         tile * static_cast<int>(tile_n) + accumulator_weight_row(id, j);
          lane.shared_store(sums + warp * shared::warp_sums_bytes + 4 * at,
                            float2_pair{acc[first + i][tile][j], acc[first + i][tile][j + 1]});
        }
      }
    }
    lane.sync_block();  // all warps' sums are in shared memory
    QPN_UNROLL
    for (int row = 0; row < rows_at_once; ++row) {
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        float& total = sum[first * tile_m / shape::warps + row][tile];
        int const at = sums + 4 * ((row * shape::warps + warp) * row_floats +
                                   tile * static_cast<int>(tile_n) + id);
        QPN_UNROLL
        for (int other = 0; other < shape::warps; ++other) {
          float const part = lane.template shared_load<float>(at + other * shared::warp_sums_bytes);
          total = other == 0 && (shape::rounds == 1 || round == 0) ? part : total + part;
        }
      }
    }
  }
}

/// Hands the sums of warps that have rows of their own over to those that finish the rows, and the
/// columns of a tile to lanes: half of the rows at a time. Of `sum` a lane gets the rows of its
/// warp, as from add_warps().
template <class Operand, int RowTiles, class Lane>
QPN_HD void spread_rows(
    Lane& lane,
    float const (&total)[cta_shape<Operand, RowTiles>::warp_row_tiles][tiles_per_group][8],
    float (&sum)[cta_shape<Operand, RowTiles>::rows_per_warp][tiles_per_group]) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  using shared = shared_layout<Operand, RowTiles>;
  constexpr int row_floats = shared::sum_row_floats;
  constexpr int rows_at_once = shared::sum_tiles * tile_m / shape::warps;  ///< of a warp
  int const id = lane.thread() % warp_lanes;
  int const sums = shape::team(lane) * shared::team_sums_bytes;
  QPN_UNROLL
  for (int first = 0; first < RowTiles; first += shared::sum_tiles) {
    lane.sync_block();  // the shared memory's last user, loop or rows, is done with it
    int const in_half = shape::first_row_tile(lane) - first;
    if (in_half >= 0 && in_half < shared::sum_tiles) {
      QPN_UNROLL
      for (int i = 0; i < shape::warp_row_tiles; ++i) {
        QPN_UNROLL
        for (int tile = 0; tile < tiles_per_group; ++tile) {
          QPN_UNROLL
          for (int j = 0; j < 8; j += 2) {
            int const at = ((in_half + i) * tile_m + accumulator_row(id, j)) * row_floats +
                           tile * static_cast<int>(tile_n) + accumulator_weight_row(id, j);
            lane.shared_store(sums + 4 * at, float2_pair{total[i][tile][j], total[i][tile][j + 1]});
          }
        }
      }
    }
    lane.sync_block();  // these rows' sums are in shared memory
    QPN_UNROLL
    for (int row = 0; row < rows_at_once; ++row) {
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        sum[first * tile_m / shape::warps + row][tile] = lane.template shared_load<float>(
            sums + 4 * ((row * shape::warps + shape::warp(lane)) * row_floats +
                        tile * static_cast<int>(tile_n) + id));
      }
    }
  }
}

/// Whether this team draws one of `parties` tickets, and it is the last: it then sees what all who
/// drew one have stored before.
template <class Operand, int RowTiles, class Lane>
[[nodiscard]] QPN_HD bool draw_last_ticket(Lane& lane, bool draws, std::uint32_t* ticket,
                                           std::uint32_t parties) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  int const flag = shared_layout<Operand, RowTiles>::last_flags + 4 * shape::team(lane);
  lane.fence_device();
  lane.sync_block();  // the stores of all threads are fenced; the last flag is free
  if (shape::warp(lane) == 0 && lane.thread() % warp_lanes == 0) {
    bool const last = draws && lane.atomic_add(ticket, 1u) == parties - 1;
    if (last) lane.store(ticket, 0u);  // for the next launch
    lane.shared_store(flag, last ? 1u : 0u);
  }
  lane.sync_block();  // the team's first thread has the answer
  lane.fence_device();
  return lane.template shared_load<std::uint32_t>(flag) != 0;
}

/// Where a run keeps the best candidates of a row among the groups that it has finished.
template <class Operand, int RowTiles>
[[nodiscard]] QPN_HD std::uint64_t* candidate_list_of(gemm_params const& p, std::int64_t run,
                                                      int row) noexcept {
  return p.candidate_lists +
         (run * cta_shape<Operand, RowTiles>::block_m + row) * p.epilogue.candidates;
}

template <class Operand, int RowTiles, class Lane>
QPN_HD void clear_candidates(Lane& lane, gemm_params const& p) noexcept {
  int const thread = lane.keep(lane.thread());
  int const id = thread % warp_lanes;
  for (int row = thread / warp_lanes; row < p.m; row += cta_shape<Operand, RowTiles>::warps) {
    clear_list(lane, id, p.epilogue.candidates,
               candidate_list_of<Operand, RowTiles>(p, lane.block(), row));
  }
}

/// Stores the finished sums of a tile group, and offers each row's candidates.
template <class Operand, int RowTiles, class Lane>
QPN_HD void finish_group(
    Lane& lane, gemm_params const& p, column_factors const& factors, int group,
    float const (&sum)[cta_shape<Operand, RowTiles>::rows_per_warp][tiles_per_group]) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  constexpr int listed_rows = shape::lists_candidates ? shape::rows_per_warp : 1;
  // Kept here, or what follows from it occupies registers through the loop over k.
  int const thread = lane.keep(lane.thread());
  int const id = thread % warp_lanes;
  int const first = shape::row_block(lane) * shape::block_m + thread / shape::mates;
  std::uint64_t key[listed_rows][2] = {};
  QPN_UNROLL
  for (int i = 0; i < shape::rows_per_warp; ++i) {
    int const row = first + i * shape::warps;
    if (row >= p.m) continue;  // the whole warp
    auto& mine = key[shape::lists_candidates ? i : 0];
    finish_columns(lane, p.epilogue, factors, group, row, id, sum[i][0], sum[i][1], mine);
    if (p.epilogue.candidates != 1) continue;
    std::uint64_t const best = warp_max(lane, mine[0] > mine[1] ? mine[0] : mine[1]);
    if (id == 0) lane.atomic_max(p.best_keys + row, best);
  }
  if constexpr (shape::lists_candidates) {
    if (p.epilogue.candidates <= 1) return;
    QPN_NO_UNROLL
    for (int row = first; row < p.m; row += shape::warps) {
      std::uint64_t offered[2] = {key[0][0], key[0][1]};
      offer_keys(lane, id, p.epilogue.candidates,
                 candidate_list_of<Operand, RowTiles>(p, lane.block(), row), offered);
      QPN_UNROLL
      for (int i = 1; i < listed_rows; ++i) {
        QPN_UNROLL
        for (int r = 0; r < 2; ++r) key[i - 1][r] = key[i][r];
      }
    }
  }
}

template <class Lane>
QPN_HD void store_candidate(Lane& lane, gemm_params const& p, int row, int place,
                            std::uint64_t key) noexcept {
  int const at = row * p.epilogue.candidates + place;
  lane.store(p.candidate_ids + at, candidate_id(key));
  if (p.candidate_values != nullptr) lane.store(p.candidate_values + at, candidate_value(key));
}

/// Writes the candidates of each row of the row block once every tile group is finished:
/// `finished`, by this team one more.
template <class Operand, int RowTiles, class Lane>
QPN_HD void finish_candidates(Lane& lane, gemm_params const& p, bool finished) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  int const block = shape::row_block(lane);
  auto const groups = static_cast<std::uint32_t>(p.split.tile_groups);
  if (!draw_last_ticket<Operand, RowTiles>(lane, finished, p.candidate_ticket + block, groups)) {
    return;
  }
  if (!shape::lists_candidates || p.epilogue.candidates == 1) {
    int const in_block = shape::warp(lane) * warp_lanes + lane.thread() % warp_lanes;
    int const row = block * shape::block_m + in_block;
    if (in_block >= shape::block_m || row >= p.m) return;
    std::uint64_t const key = lane.atomic_max(p.best_keys + row, 0u);  // reads past L1
    lane.store(p.best_keys + row, std::uint64_t{0});
    store_candidate(lane, p, row, 0, key);
    return;
  }
  int const thread = lane.keep(lane.thread());
  int const id = thread % warp_lanes;
  for (int row = thread / warp_lanes; row < p.m; row += shape::warps) {
    std::uint64_t best[2];
    merge_lists(lane, id, p.epilogue.candidates, candidate_list_of<Operand, RowTiles>(p, 0, row),
                std::int64_t{shape::block_m} * p.epilogue.candidates, p.split.ctas, best);
    QPN_UNROLL
    for (int r = 0; r < 2; ++r) {
      int const place = id + r * warp_lanes;
      if (place < p.epilogue.candidates) store_candidate(lane, p, row, place, best[r]);
    }
  }
}

/// Planes that a lane loads at once: more would not fit its registers.
template <class Operand, int RowTiles>
inline constexpr int planes_at_once = cta_shape<Operand, RowTiles>::rows_per_warp > 16 ? 2 : 4;

/// Leaves this team's part of a tile group that several runs share. True where it comes last: then
/// `sum` is of all of them.
template <class Operand, int RowTiles, class Lane>
[[nodiscard]] QPN_HD bool add_planes(
    Lane& lane, gemm_params const& p, std::int32_t run, int group,
    float (&sum)[cta_shape<Operand, RowTiles>::rows_per_warp][tiles_per_group]) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  int const id = lane.thread() % warp_lanes;
  int const block = shape::row_block(lane);
  std::int32_t const first = p.split.first_cta(group);
  std::int32_t const count = p.split.cta_count(group);
  // A run has two planes: one for the group that it begins in, one for a group that it enters from
  // an earlier one; all groups between them are its own. Only the first run of a group can have
  // come from an earlier one.
  bool const first_enters = p.split.first_unit(first) < group * p.split.steps;
  auto const place = [&](std::int32_t c) {
    std::int64_t const of_block = std::int64_t{block} * p.split.ctas + c;
    std::int64_t const plane = 2 * of_block + (c == first && first_enters ? 1 : 0);
    return p.planes + (plane * shape::block_m + shape::warp(lane)) * group_n + id;
  };
  auto const within = [](int i, int tile) { return i * shape::warps * group_n + tile * 32; };
  float* const mine = place(run);
  QPN_UNROLL
  for (int i = 0; i < shape::rows_per_warp; ++i) {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      lane.store(mine + within(i, tile), sum[i][tile]);
    }
  }
  std::uint32_t* const ticket = p.tickets + block * p.split.tile_groups + group;
  if (!draw_last_ticket<Operand, RowTiles>(lane, true, ticket, static_cast<std::uint32_t>(count))) {
    return false;
  }
  constexpr int at_once = planes_at_once<Operand, RowTiles>;  // whose loads wait for each other
  QPN_NO_UNROLL
  for (std::int32_t c = 0; c < count; c += at_once) {
    float part[at_once][shape::rows_per_warp][tiles_per_group] = {};
    QPN_UNROLL
    for (int j = 0; j < at_once; ++j) {
      if (c + j >= count) continue;
      float const* const other = place(first + c + j);
      QPN_UNROLL
      for (int i = 0; i < shape::rows_per_warp; ++i) {
        QPN_UNROLL
        for (int tile = 0; tile < tiles_per_group; ++tile) {
          part[j][i][tile] = lane.load_volatile(other + within(i, tile));
        }
      }
    }
    QPN_UNROLL
    for (int j = 0; j < at_once; ++j) {
      if (c + j >= count) continue;
      QPN_UNROLL
      for (int i = 0; i < shape::rows_per_warp; ++i) {
        QPN_UNROLL
        for (int tile = 0; tile < tiles_per_group; ++tile) {
          sum[i][tile] = c + j == 0 ? part[j][i][tile] : sum[i][tile] + part[j][i][tile];
        }
      }
    }
  }
  return true;
}

}  // namespace qpn::detail::sm70
