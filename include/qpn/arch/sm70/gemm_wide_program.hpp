// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/arch/sm70/weight_operand.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/packed_weight.hpp"

// The GEMM of layout sm70_quadpair for many rows as a lane program: y[m, n] = x[m, k] w[n, k]^T for
// any m.
//
// A CTA of 4 warps owns 8 * RowTiles rows of x and 256 weight rows, over all of k: each warp takes
// one tile group (64 weight rows), whose records it decodes from global memory straight into
// operand B, for all rows of the CTA. The warps share the rows of x, which lie in shared memory in
// two buffers of one step of 32 k each. Every sum runs through k in ascending order on one warp, so
// its bits depend on nothing but its row of x and its weight row.

namespace qpn::detail::sm70 {

inline constexpr int wide_warps = 4;
inline constexpr int wide_threads = wide_warps * warp_lanes;
inline constexpr int wide_step_k = 32;
inline constexpr int wide_fragments = wide_step_k / 8;  ///< of 8 k, of one step
/// Rows of x between two chunks of 8 k that a thread copies.
inline constexpr int wide_rows_between = wide_threads / wide_fragments;

struct gemm_wide_params {
  std::byte const* records = nullptr;  ///< first record of the packed weight
  int tile_groups = 0;
  int record_steps = 0;  ///< records of one tile

  std::uint16_t const* x = nullptr;  ///< f16 [m, k]
  std::int64_t ldx = 0;
  std::int64_t x_step = 0;  ///< elements between two chunks of a thread: wide_rows_between * ldx
  std::int64_t k = 0;
  std::int64_t m = 0;
  int row_blocks = 0;  ///< of 8 * RowTiles rows; CTAs that read the same weights are neighbours
  bool x_by_words = false;  ///< x is 16-byte aligned and ldx a multiple of 8
  epilogue_params epilogue;
};

/// Shared memory of a CTA, in bytes. The two buffers of x and, after the loop, the sums of one row
/// tile of each warp take turns.
template <int RowTiles>
struct wide_shared {
  static constexpr int rows = RowTiles * tile_m;
  // 64 bytes of x and 16 of padding: 8 rows start at 8 different 16-byte columns of the banks.
  static constexpr int row_bytes = wide_step_k * 2 + 16;
  static constexpr int buffer_bytes = rows * row_bytes;
  static constexpr int sum_row_floats = group_n + 4;
  static constexpr int warp_sums_bytes = tile_m * sum_row_floats * 4;
  static constexpr int bytes = 2 * buffer_bytes > wide_warps* warp_sums_bytes
                                   ? 2 * buffer_bytes
                                   : wide_warps* warp_sums_bytes;
};

/// The rows of x of one CTA for one step, 16 bytes (8 k) at a time: global memory -> registers ->
/// shared memory. Rows at and beyond m read as 0.
template <int RowTiles>
struct wide_rows {
  using shared = wide_shared<RowTiles>;
  static constexpr int chunks = wide_fragments;  ///< of a row
  static constexpr int per_thread = shared::rows / wide_rows_between;
  static_assert(shared::rows % wide_rows_between == 0, "every thread has as many chunks");

  word4 chunk[per_thread] = {};  ///< rows at and beyond m stay 0
  std::uint16_t const* from;     ///< of the thread's first chunk in the step to load next
  int rows_left;                 ///< of x and the CTA, from the row of the thread's first chunk on
  int offset;                    ///< of the thread's first chunk in a buffer
  int column;                    ///< of the thread's chunks

  /// Quarter-warps load whole 32-byte sectors and store without bank conflicts: the two rows of one
  /// lie 4 apart.
  template <class Lane>
  QPN_HD wide_rows(Lane& lane, gemm_wide_params const& p, std::int64_t first_row,
                   std::int64_t k0) noexcept {
    int const id = lane.thread() % 8;
    int const quarter = lane.thread() / 8;
    int const row = quarter / 4 * tile_m + quarter % 4 + 4 * (id / chunks);
    column = id % chunks;
    from = p.x + (first_row + row) * p.ldx + k0 + 8 * column;
    std::int64_t const rows = p.m - first_row;
    rows_left = static_cast<int>(rows < shared::rows ? rows : shared::rows) - row;
    offset = row * shared::row_bytes + 16 * column;
  }

  [[nodiscard]] QPN_HD bool has(int i) const noexcept { return i * wide_rows_between < rows_left; }

  /// Loads the next step's chunks, all of whose k are below k, by words.
  template <class Lane>
  QPN_HD void load(Lane& lane, gemm_wide_params const& p) noexcept {
    QPN_UNROLL
    for (int i = 0; i < per_thread; ++i) {
      if (has(i)) {
        chunk[i] = lane.load(reinterpret_cast<word4 const*>(from + i * p.x_step));
      }
    }
    from += wide_step_k;
  }

  template <class Lane>
  QPN_HD void store(Lane& lane, int buffer) const noexcept {
    QPN_UNROLL
    for (int i = 0; i < per_thread; ++i) {
      lane.shared_store(buffer + offset + i * wide_rows_between * shared::row_bytes, chunk[i]);
    }
  }

  /// Loads and stores the next step's chunks element by element: any alignment, and `left` k from
  /// the step's first on; the others are 0.
  template <class Lane>
  QPN_HD void copy_elements(Lane& lane, gemm_wide_params const& p, std::int64_t left) noexcept {
    std::int64_t const mine = left - 8 * column;
    QPN_UNROLL
    for (int i = 0; i < per_thread; ++i) {
      QPN_NO_UNROLL
      for (int j = 0; j < 8; ++j) {
        std::uint16_t const value =
            has(i) && j < mine ? lane.load(from + i * p.x_step + j) : std::uint16_t{0};
        lane.shared_store(offset + i * wide_rows_between * shared::row_bytes + 2 * j, value);
      }
    }
    from += wide_step_k;
  }
};

/// Operand B of one tile for one step, in 16-byte slots: half a record of nvfp4, one of fp8, two of
/// dense16. Loads are not streaming ones: the CTAs of the other row blocks read the same. A slot is
/// loaded for the next step as soon as its last fragment is decoded; the one slot of nvfp4 has a
/// second buffer instead.
template <class Operand>
struct wide_weights {
  using record = typename Operand::record;
  static constexpr bool half_records = Operand::record_k == 2 * wide_step_k;
  static constexpr int records = half_records ? 1 : wide_step_k / Operand::record_k;
  static constexpr int slots = half_records ? 1 : 2 * records;
  static constexpr int fragments_per_slot = wide_fragments / slots;
  static constexpr int stride = tiles_per_group * Operand::record_bytes;  ///< of a tile's records

  Operand operand[records] = {};
  std::uint16_t next_scales = 0;  ///< nvfp4: of the next step's two groups

  /// Bytes from the group's first record to a step's first slot.
  [[nodiscard]] QPN_HD static std::int64_t step_offset(int step) noexcept {
    if constexpr (half_records) {
      return std::int64_t{step / 2} * stride + step % 2 * record::half_bytes;
    } else {
      return std::int64_t{step} * (records * stride);
    }
  }

  /// Whether the weight has the record of a slot: dense16 may end with half a step.
  [[nodiscard]] QPN_HD static bool exists(int slot, int step, int record_steps) noexcept {
    return half_records || slot < 2 || step * records + slot / 2 < record_steps;
  }

  /// `codes` is the step's first byte of the tile + 16 * lane.
  template <class Lane>
  QPN_HD void load_slot(Lane& lane, std::byte const* codes, int slot) noexcept {
    if constexpr (half_records) {
      operand[0].half[1] = lane.load(reinterpret_cast<word4 const*>(codes));
    } else {
      std::byte const* const at = codes + slot / 2 * stride + slot % 2 * record::half_bytes;
      operand[slot / 2].half[slot % 2] = lane.load(reinterpret_cast<word4 const*>(at));
    }
  }

  /// `scales` is the first scale of the step's record of the tile + 4 * lane.
  template <class Lane>
  QPN_HD void load_scales(Lane& lane, std::byte const* scales, int step) noexcept {
    if constexpr (half_records) {
      next_scales = lane.load(reinterpret_cast<std::uint16_t const*>(scales + step % 2 * 2));
    }
  }

  /// What was loaded last becomes the current step's.
  QPN_HD void begin_step() noexcept {
    if constexpr (half_records) {
      operand[0].half[0] = operand[0].half[1];
      operand[0].scale_bytes = next_scales;
    }
    QPN_UNROLL
    for (int i = 0; i < records; ++i) operand[i].begin_record();
  }

  template <class Lane>
  QPN_HD void fragment(Lane& lane, int f, std::uint32_t (&b)[4]) noexcept {
    operand[f / Operand::fragments].fragment(lane, f % Operand::fragments, b);
  }
};

/// The part of y that a warp owns.
struct wide_place {
  std::int64_t first_row;
  int group;     ///< tile group
  bool has_one;  ///< a warp beyond the last tile group only helps to copy x
};

/// acc[row tile][tile][8] += x w^T over the steps [first, first + count) of k, for one warp of a
/// CTA whose warps all come here. ByWords: x is loaded 16 bytes at a time, so no step may reach
/// beyond k.
template <bool ByWords, class Operand, int RowTiles, class Lane>
QPN_HD void multiply_wide_steps(Lane& lane, gemm_wide_params const& p, wide_place const& place,
                                int first, int count,
                                float (&acc)[RowTiles][tiles_per_group][8]) noexcept {
  using shared = wide_shared<RowTiles>;
  using weights_of_tile = wide_weights<Operand>;
  if (count <= 0) return;
  int const id = lane.thread() % warp_lanes;
  std::byte const* const group =
      p.records + std::int64_t{place.group} * p.record_steps * weights_of_tile::stride;
  std::byte const* const scales = group + Operand::record::scales_offset + 4 * id;
  std::byte const* const codes = group + 16 * id;
  auto const exists = [&](int slot, int step) {
    return ByWords || weights_of_tile::exists(slot, step, p.record_steps);
  };

  weights_of_tile weights[tiles_per_group];
  auto const load_scales = [&](int step) {
    if constexpr (weights_of_tile::half_records) {
      std::byte const* const at = scales + std::int64_t{step / 2} * weights_of_tile::stride;
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        weights[tile].load_scales(lane, at + tile * Operand::record_bytes, step);
      }
    }
  };
  auto const load_slot = [&](std::byte const* at, int slot) {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      weights[tile].load_slot(lane, at + tile * Operand::record_bytes, slot);
    }
  };
  if (place.has_one) {
    load_scales(first);
    QPN_UNROLL
    for (int slot = 0; slot < weights_of_tile::slots; ++slot) {
      if (exists(slot, first)) load_slot(codes + weights_of_tile::step_offset(first), slot);
    }
  }

  std::int64_t const k0 = std::int64_t{first} * wide_step_k;
  wide_rows<RowTiles> x(lane, p, place.first_row, k0);
  std::int64_t k_left = p.k - k0;
  if constexpr (ByWords) {
    x.load(lane, p);
    x.store(lane, 0);
    if (count > 1) x.load(lane, p);
    lane.sync_block();  // every thread's chunks of the first step are in shared memory
  }
  int fragment_offset = position_of_lane(id) * shared::row_bytes;  // in the step's buffer
  int next_buffer = shared::buffer_bytes;

  int step = first;
  QPN_NO_UNROLL
  for (int left = count; left > 0; --left) {
    bool const more = left > 1;
    ++step;
    if constexpr (ByWords) {
      // The buffer's last readers are past the barrier at the end of the last step.
      if (more) x.store(lane, next_buffer);
      if (left > 2) x.load(lane, p);
    } else {
      x.copy_elements(lane, p, k_left);
      k_left -= wide_step_k;
      lane.sync_block();  // every thread's chunks are in shared memory
    }
    if (place.has_one) {
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) weights[tile].begin_step();
      std::byte const* const next = codes + weights_of_tile::step_offset(step);
      if (more) {
        load_scales(step);
        if constexpr (weights_of_tile::half_records) load_slot(next, 0);
      }
      QPN_UNROLL
      for (int f = 0; f < wide_fragments; ++f) {
        std::uint32_t b[tiles_per_group][4];
        QPN_UNROLL
        for (int tile = 0; tile < tiles_per_group; ++tile) weights[tile].fragment(lane, f, b[tile]);
        // Four row tiles at a time: more would not fit the registers. The two products of a sum lie
        // four instructions apart, so that none waits for the other.
        QPN_UNROLL
        for (int i0 = 0; i0 < RowTiles; i0 += 4) {
          word4 a[4];  // (8 rows, 8 k) each
          QPN_UNROLL
          for (int i = 0; i < 4; ++i) {
            a[i] = lane.template shared_load<word4>(fragment_offset +
                                                    (i0 + i) * tile_m * shared::row_bytes + 16 * f);
          }
          QPN_UNROLL
          for (int tile = 0; tile < tiles_per_group; ++tile) {
            QPN_UNROLL
            for (int pair = 0; pair < 4; pair += 2) {
              QPN_UNROLL
              for (int i = 0; i < 4; ++i) {
                lane.mma_m8n8k4(acc[i0 + i][tile], {a[i].w[pair], a[i].w[pair + 1]},
                                {b[tile][pair], b[tile][pair + 1]});
              }
            }
          }
        }
        if constexpr (!weights_of_tile::half_records) {
          constexpr int per_slot = weights_of_tile::fragments_per_slot;
          if (f % per_slot == per_slot - 1 && more && exists(f / per_slot, step)) {
            load_slot(next, f / per_slot);
          }
        }
      }
    }
    if constexpr (ByWords) {
      int const buffers = shared::buffer_bytes;
      next_buffer = buffers - next_buffer;
      fragment_offset += buffers - 2 * next_buffer;
    }
    lane.sync_block();  // the next step's chunks are there, and this step's are read
  }
}

/// Scales, adds and stores the sums of one warp, row tile by row tile through shared memory: lanes
/// that store neighbours of y then hold neighbours.
template <int RowTiles, class Lane>
QPN_HD void finish_wide(Lane& lane, gemm_wide_params const& p, wide_place const& place,
                        float const (&acc)[RowTiles][tiles_per_group][8]) noexcept {
  using shared = wide_shared<RowTiles>;
  int const id = lane.thread() % warp_lanes;
  int const sums = lane.thread() / warp_lanes * shared::warp_sums_bytes;
  QPN_NO_UNROLL
  for (int row_tile = 0; row_tile < RowTiles; ++row_tile) {
    QPN_UNROLL
    for (int j = 0; j < RowTiles; ++j) {
      if (j != row_tile) continue;
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        QPN_UNROLL
        for (int i = 0; i < 8; i += 2) {
          int const at = accumulator_row(id, i) * shared::sum_row_floats +
                         tile * static_cast<int>(tile_n) + accumulator_weight_row(id, i);
          lane.shared_store(sums + 4 * at, float2_pair{acc[j][tile][i], acc[j][tile][i + 1]});
        }
      }
    }
    lane.sync_warp();  // the row tile is in shared memory
    QPN_NO_UNROLL
    for (int i = 0; i < tile_m; ++i) {
      std::int64_t const row = place.first_row + row_tile * tile_m + i;
      if (row >= p.m) break;  // the whole warp
      int const at = sums + 4 * (i * shared::sum_row_floats + id);
      float const low = lane.template shared_load<float>(at);
      float const high = lane.template shared_load<float>(at + 4 * static_cast<int>(tile_n));
      finish_columns(lane, p.epilogue, place.group, row, id, low, high);
    }
    lane.sync_warp();  // every lane has read the row tile before it is overwritten
  }
}

/// The kernel: blocks = row_blocks * (tile_groups / 4, rounded up), wide_threads threads,
/// wide_shared::bytes of shared memory.
template <class Operand, int RowTiles, class Lane>
QPN_HD void gemm_wide_program(Lane& lane, gemm_wide_params const& p) noexcept {
  int const group = lane.block() / p.row_blocks * wide_warps + lane.thread() / warp_lanes;
  wide_place const place{std::int64_t{lane.block() % p.row_blocks} * (RowTiles * tile_m), group,
                         group < p.tile_groups};
  int const steps = static_cast<int>((p.k - 1) / wide_step_k) + 1;
  int const whole = p.x_by_words ? static_cast<int>(p.k / wide_step_k) : 0;
  float acc[RowTiles][tiles_per_group][8] = {};
  multiply_wide_steps<true, Operand>(lane, p, place, 0, whole, acc);
  multiply_wide_steps<false, Operand>(lane, p, place, whole, steps - whole, acc);
  if (place.has_one) finish_wide(lane, p, place, acc);
}

}  // namespace qpn::detail::sm70
