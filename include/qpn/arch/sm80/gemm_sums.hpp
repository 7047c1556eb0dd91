// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/candidate_key.hpp"
#include "qpn/detail/candidate_list.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/mma16_map.hpp"
#include "qpn/detail/slice_split.hpp"

// From the accumulators of the slices to y, and the candidates.

namespace qpn::detail::sm80 {

inline constexpr int tile_m = 8;  ///< rows of x of a row tile

/// Whether calls with more than one candidate run with so many row tiles: gemm_candidates_max_m.
template <int RowTiles>
inline constexpr bool lists_candidates = RowTiles <= 2;

/// The weight rows of a CTA: a strip, or half `half` of it.
struct strip_part {
  int strip;
  int half = 0;
};

/// In the order of first use: a launch reads its parameters 64 bytes at a time, and the first
/// weights wait for those that say where they are.
struct gemm_params {
  std::byte const* records = nullptr;  ///< first record of the packed weight
  int steps = 0;                       ///< records of a strip
  slice_split split;
  int word_batches = 0;  ///< whole batches that 16-byte loads of x serve: 0 where x is not aligned
  int m = 0;
  bool overlap_previous = false;     ///< launched while the stream's last kernel may still run
  bool beside_previous = false;      ///< and waits for it at the end, not for x
  bool starts_with_two = false;      ///< batches, where it overlaps and has registers for them
  std::uint16_t const* x = nullptr;  ///< f16 or bf16 [m, k]

  std::int64_t ldx = 0;
  std::int64_t k = 0;
  int strips = 0;  ///< of 32 weight rows
  int ctas = 0;    ///< for each row block; without candidates as many as strips, or halves of them

  float const* block_scales = nullptr;  ///< [tiles][scale_columns], or null
  int scale_columns = 0;

  // Workspace. Ticket and keys are 0 before and after every launch.
  std::uint32_t* candidate_ticket = nullptr;  ///< [row blocks]
  std::uint64_t* best_keys = nullptr;         ///< [rows of x]
  std::uint64_t* candidate_lists = nullptr;   ///< [ctas][rows of a row block][candidates]
  std::int32_t* candidate_ids = nullptr;
  float* candidate_values = nullptr;
  epilogue_params epilogue;
};

/// Shared memory: the sums of some row tiles of all slices. 4 floats of padding, and rows that 16
/// lanes read at once are 4 apart: both keep the banks apart.
template <int RowTiles>
struct shared_layout {
  static constexpr int sum_tiles = RowTiles < 2 ? RowTiles : 2;  ///< row tiles at a time
  static constexpr int row_bytes = 4 * 36;
  static constexpr int slice_bytes = sum_tiles * tile_m * row_bytes;
  static constexpr int last_flag = 0;  ///< when the sums are read

  [[nodiscard]] QPN_HD static constexpr int bytes(int slices) noexcept {
    return slices * slice_bytes;
  }
};

/// Where a CTA keeps the best candidates of a row among the strips that it has finished.
template <int RowTiles>
[[nodiscard]] QPN_HD std::uint64_t* candidate_list_of(gemm_params const& p, int cta,
                                                      int row) noexcept {
  return p.candidate_lists + (std::int64_t{cta} * RowTiles * tile_m + row) * p.epilogue.candidates;
}

template <int RowTiles, class Lane>
QPN_HD void clear_candidates(Lane& lane, gemm_params const& p) noexcept {
  int const id = lane.thread() % warp_lanes;
  for (int row = lane.thread() / warp_lanes; row < p.m; row += p.split.slices) {
    clear_list(lane, id, p.epilogue.candidates, candidate_list_of<RowTiles>(p, lane.block(), row));
  }
}

/// Offers a row the keys of those lanes that have columns of it.
template <int RowTiles, class Lane>
QPN_HD void offer_row(Lane& lane, gemm_params const& p, int row, bool mine,
                      std::uint64_t const (&key)[2]) noexcept {
  std::uint64_t offered[2] = {mine ? key[0] : no_candidate, mine ? key[1] : no_candidate};
  offer_keys(lane, lane.thread() % warp_lanes, p.epilogue.candidates,
             candidate_list_of<RowTiles>(p, lane.block(), row), offered);
}

/// What the lane needs to finish its columns: before the sums are known, nothing waits for it. Of a
/// half those of its column come first.
template <int Halves, class Lane>
[[nodiscard]] QPN_HD column_factors load_strip_factors(Lane& lane, gemm_params const& p,
                                                       strip_part part) noexcept {
  int const column = mma16_column(part.strip, part.half, lane.thread() % 16);
  if constexpr (Halves == 2) return load_column_factors(lane, p.epilogue, part.strip / 2, column);
  column_factors factors;
  load_column_factor(lane, p.epilogue, part.strip / 2 * 2 * tile_n + column, factors.scale[0],
                     factors.bias[0]);
  return factors;
}

/// Adds the sums of the slices of a strip, or of half of one, in their order and finishes them: y
/// and candidates.
/// @param fresh    no thread has read shared memory before
/// @param factors  from load_strip_factors
template <int RowTiles, bool Candidates, int Halves, class Lane>
QPN_HD void finish_strip(Lane& lane, gemm_params const& p, strip_part part, int first_row,
                         bool fresh, column_factors const& factors,
                         float const (&acc)[Halves][RowTiles][4]) noexcept {
  using shared = shared_layout<RowTiles>;
  int const thread = lane.keep(lane.thread());  // or all that follows is kept through the loop
  int const id = thread % warp_lanes;
  int const slice = thread / warp_lanes;
  int const group = part.strip / 2;
  int const column =
      mma16_column(part.strip, part.half, id % 16);  // of two also + 32, in the group
  QPN_UNROLL
  for (int first = 0; first < RowTiles; first += shared::sum_tiles) {
    if (first != 0 || !fresh) lane.sync_block();  // the sums before these have been read
    QPN_UNROLL
    for (int i = 0; i < shared::sum_tiles; ++i) {
      QPN_UNROLL
      for (int h = 0; h < Halves; ++h) {
        QPN_UNROLL
        for (int r = 0; r < 4; ++r) {
          int const row = i * tile_m + mma16_x_row(id, r);
          lane.shared_store(slice * shared::slice_bytes + row * shared::row_bytes +
                                4 * (16 * h + mma16_weight_row(id, r)),
                            acc[h][first + i][r]);
        }
      }
    }
    lane.sync_block();  // the sums of all slices are in shared memory
    QPN_NO_UNROLL
    for (int pair = slice; pair < shared::sum_tiles * tile_m / 2; pair += p.split.slices) {
      int const upper = pair / 4 * tile_m + pair % 4;  // and 4 further on
      int const in_sums = upper + id / 16 * 4;
      int const block_row = first_row + first * tile_m;
      if (block_row + upper >= p.m) continue;  // the whole warp
      int const at = in_sums * shared::row_bytes + 4 * (id % 16);
      float sum[Halves];
      QPN_UNROLL
      for (int h = 0; h < Halves; ++h) sum[h] = lane.template shared_load<float>(at + 64 * h);
      QPN_UNROLL_BY_4
      for (int s = 1; s < p.split.slices; ++s) {
        QPN_UNROLL
        for (int h = 0; h < Halves; ++h) {
          sum[h] += lane.template shared_load<float>(at + s * shared::slice_bytes + 64 * h);
        }
      }
      int const row = block_row + in_sums;
      std::uint64_t key[2] = {no_candidate, no_candidate};
      std::int64_t const first_column = std::int64_t{group} * 2 * tile_n + column;
      if (row < p.m && first_column < p.epilogue.n) {
        if constexpr (Halves == 2) {
          finish_columns(lane, p.epilogue, factors, group, row, column, sum[0], sum[1], key);
        } else {
          finish_column(lane, p.epilogue, factors, 0, row, first_column, sum[0], key[0]);
        }
      }
      if constexpr (Candidates) {
        if (p.epilogue.candidates == 1) {
          std::uint64_t best = key[0] > key[1] ? key[0] : key[1];
          for (int mask = 8; mask > 0; mask /= 2) {
            std::uint64_t const other = shuffle_key(lane, best, mask);
            best = other > best ? other : best;
          }
          if (id % 16 == 0 && row < p.m) lane.atomic_max(p.best_keys + row, best);
        }
      }
      if constexpr (Candidates && lists_candidates<RowTiles>) {
        if (p.epilogue.candidates <= 1) continue;
        offer_row<RowTiles>(lane, p, block_row + upper, id < 16, key);
        if (block_row + upper + 4 < p.m) {
          offer_row<RowTiles>(lane, p, block_row + upper + 4, id >= 16, key);
        }
      }
    }
  }
}

template <class Lane>
QPN_HD void store_candidate(Lane& lane, gemm_params const& p, int row, int place,
                            std::uint64_t key) noexcept {
  std::int64_t const at = std::int64_t{row} * p.epilogue.candidates + place;
  lane.store(p.candidate_ids + at, candidate_id(key));
  if (p.candidate_values != nullptr) lane.store(p.candidate_values + at, candidate_value(key));
}

/// Writes the candidates of each row of the row block once every CTA has finished its strips.
template <int RowTiles, class Lane>
QPN_HD void finish_candidates(Lane& lane, gemm_params const& p, int first_row) noexcept {
  using shared = shared_layout<RowTiles>;
  std::uint32_t* const ticket = p.candidate_ticket + lane.row_block();
  lane.fence_device();
  lane.sync_block();  // the stores of all threads are fenced; the sums have been read
  if (lane.thread() == 0) {
    bool const last = lane.atomic_add(ticket, 1u) == static_cast<std::uint32_t>(p.ctas) - 1;
    if (last) lane.store(ticket, 0u);  // for the next launch
    lane.shared_store(shared::last_flag, last ? 1u : 0u);
  }
  lane.sync_block();  // thread 0 has the answer
  lane.fence_device();
  if (lane.template shared_load<std::uint32_t>(shared::last_flag) == 0) return;
  if (!lists_candidates<RowTiles> || p.epilogue.candidates == 1) {
    for (int i = lane.thread(); i < RowTiles * tile_m; i += p.split.slices * warp_lanes) {
      int const row = first_row + i;
      if (row >= p.m) return;
      std::uint64_t const key = lane.atomic_max(p.best_keys + row, 0u);  // reads past L1
      lane.store(p.best_keys + row, std::uint64_t{0});
      store_candidate(lane, p, row, 0, key);
    }
    return;
  }
  int const id = lane.thread() % warp_lanes;
  for (int row = lane.thread() / warp_lanes; row < p.m; row += p.split.slices) {
    std::uint64_t best[2];
    merge_lists(lane, id, p.epilogue.candidates, candidate_list_of<RowTiles>(p, 0, row),
                std::int64_t{RowTiles} * tile_m * p.epilogue.candidates, p.ctas, best);
    QPN_UNROLL
    for (int r = 0; r < 2; ++r) {
      int const place = id + r * warp_lanes;
      if (place < p.epilogue.candidates) store_candidate(lane, p, row, place, best[r]);
    }
  }
}

}  // namespace qpn::detail::sm80
