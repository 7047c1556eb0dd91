// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "qpn/arch/sm70/weight_operand.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/candidate_list.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/work_split.hpp"
#include "qpn/packed_weight.hpp"

// The GEMM of layout sm70_quadpair as a lane program: y[m, n] = x[m, k] w[n, k]^T for up to
// 8 * RowTiles rows of x in one pass over the weight.
//
// A CTA of 8 warps walks its run of units (detail/work_split.hpp), tile group by tile group. Its
// warps split the steps of k among them, keep their sums in registers, and add them up in shared
// memory in the order of the warps. Where several CTAs share a tile group, each leaves its sums in
// a plane of the workspace and draws a ticket; the one with the last ticket adds the planes in the
// order of the CTAs. No order depends on m, on timing or on the other rows.

namespace qpn::detail::sm70 {

inline constexpr int warps_per_cta = 8;
inline constexpr int threads_per_cta = warps_per_cta * warp_lanes;
inline constexpr int tiles_per_group = 2;
inline constexpr int group_n = 64;  ///< weight rows of a tile group
inline constexpr int tile_m = 8;    ///< rows of x of a row tile

struct gemm_params {
  std::byte const* records = nullptr;  ///< first record of the packed weight
  work_split split;

  std::uint16_t const* x = nullptr;  ///< f16 [m, k]
  std::int64_t ldx = 0;
  std::int64_t k = 0;
  int m = 0;
  std::int64_t x_lane_step = 0;  ///< elements between two chunks of a lane: rows_between * ldx
  bool x_by_words = false;       ///< x is 16-byte aligned and ldx a multiple of 8

  // Workspace. Tickets and keys are 0 before and after every launch.
  float* planes = nullptr;                    ///< [ctas][2][8 * RowTiles][64]
  std::uint32_t* tickets = nullptr;           ///< [tile groups]
  std::uint32_t* candidate_ticket = nullptr;  ///< [1]
  std::uint64_t* best_keys = nullptr;         ///< [8 * RowTiles]; with one candidate
  std::uint64_t* candidate_lists = nullptr;   ///< [ctas][8 * RowTiles][candidates]; with more

  std::int32_t* candidate_ids = nullptr;  ///< [m][candidates]
  float* candidate_values = nullptr;      ///< [m][candidates], or null
  epilogue_params epilogue;
};

/// Shared memory of a CTA, in bytes. The activations of the loop and the sums after it take turns
/// in the first part.
template <class Operand, int RowTiles>
struct shared_layout {
  static constexpr int chunks = Operand::record_k / 8;  ///< of 16 bytes, of one row and record
  // One chunk of padding: 8 rows then start at 8 different 16-byte columns of the banks.
  static constexpr int row_bytes = (chunks + 1) * 16;
  static constexpr int warp_bytes = RowTiles * tile_m * row_bytes;
  static constexpr int sum_row_floats = group_n + 4;
  static constexpr int warp_sums_bytes = tile_m * sum_row_floats * 4;
  static constexpr int main_bytes =
      warps_per_cta * (warp_bytes > warp_sums_bytes ? warp_bytes : warp_sums_bytes);
  static constexpr int last_flag = main_bytes;   ///< u32: this CTA drew the last ticket
  static constexpr int parts = main_bytes + 16;  ///< run_part of each warp
  static constexpr int bytes = parts + 16 * warps_per_cta;
};

/// The activations of one warp for one record: global memory -> registers -> shared memory ->
/// fragments of operand A. Rows at and beyond m read as 0.
template <class Operand, int RowTiles>
struct activation_stage {
  using shared = shared_layout<Operand, RowTiles>;
  static constexpr int total = RowTiles * tile_m * shared::chunks;  ///< chunks of the warp
  static constexpr int per_lane = (total + warp_lanes - 1) / warp_lanes;
  static constexpr int rows_between = warp_lanes / shared::chunks;  ///< two chunks of a lane
  static constexpr bool all_lanes = total % warp_lanes == 0;

  word4 chunk[per_lane] = {};  ///< rows at and beyond m stay 0
  std::uint16_t const* from;   ///< of the lane's first chunk in the record to load next
  int row;                     ///< of the lane's first chunk
  int shared_offset;           ///< of the lane's first chunk

  /// The lane's first chunk is (row, 8 column). Quarter-warps load whole 128-byte lines and store
  /// without bank conflicts: the rows of one quarter lie `chunks` apart.
  template <class Lane>
  QPN_HD activation_stage(Lane& lane, gemm_params const& p, std::int64_t k0) noexcept {
    int const id = lane.thread() % warp_lanes;
    int const column = id % 8 % shared::chunks;
    int const quarter = id / 8;
    row = quarter / shared::chunks * tile_m + quarter % shared::chunks +
          shared::chunks * (id % 8 / shared::chunks);
    from = p.x + static_cast<std::uint32_t>(row) * p.ldx + k0 + 8 * column;
    shared_offset =
        lane.thread() / warp_lanes * shared::warp_bytes + row * shared::row_bytes + 16 * column;
  }

  [[nodiscard]] QPN_HD bool holds(int i, int id) const noexcept {
    return all_lanes || id + i * warp_lanes < total;
  }

  /// Loads the next record's chunks, all of whose k are below k, by words, if `wanted`.
  template <class Lane>
  QPN_HD void load(Lane& lane, gemm_params const& p, int id, bool wanted) noexcept {
    std::uint16_t const* at = from;
    QPN_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      if (wanted && holds(i, id) && row + i * rows_between < p.m) {
        chunk[i] = lane.load(reinterpret_cast<word4 const*>(at));
      }
      at += p.x_lane_step;
    }
    from += Operand::record_k;
  }

  /// Loads and stores the next record's chunks element by element: any alignment, and `left` k
  /// from the record's first on; the others are 0.
  template <class Lane>
  QPN_HD void copy_elements(Lane& lane, gemm_params const& p, int id, std::int64_t left) noexcept {
    std::int64_t const mine = left - 8 * (id % 8 % shared::chunks);
    QPN_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      if (!holds(i, id)) continue;
      bool const valid = row + i * rows_between < p.m;
      QPN_NO_UNROLL
      for (int j = 0; j < 8; ++j) {
        std::uint16_t const value =
            valid && j < mine ? lane.load(from + i * p.x_lane_step + j) : std::uint16_t{0};
        lane.shared_store(shared_offset + i * rows_between * shared::row_bytes + 2 * j, value);
      }
    }
    from += Operand::record_k;
  }

  template <class Lane>
  QPN_HD void store(Lane& lane, int id) const noexcept {
    QPN_UNROLL
    for (int i = 0; i < per_lane; ++i) {
      if (!holds(i, id)) continue;
      lane.shared_store(shared_offset + i * rows_between * shared::row_bytes, chunk[i]);
    }
  }
};

/// acc[row tile][tile][8] += x w^T over the steps [first, first + count) of a tile group, for one
/// warp. ByWords: x is loaded 16 bytes at a time, so no step may reach beyond k.
template <bool ByWords, class Operand, int RowTiles, class Lane>
QPN_HD void multiply_steps(Lane& lane, gemm_params const& p, int group, int first, int count,
                           float (&acc)[RowTiles][tiles_per_group][8]) noexcept {
  using shared = shared_layout<Operand, RowTiles>;
  if (count <= 0) return;
  int const id = lane.thread() % warp_lanes;
  int const fragment_offset = lane.keep(lane.thread() / warp_lanes * shared::warp_bytes +
                                        position_of_lane(id) * shared::row_bytes);

  // The records of the group's tiles lie side by side, so that one pointer serves both.
  std::byte const* const unit = p.records + (std::int64_t{group} * p.split.steps + first) *
                                                (tiles_per_group * Operand::record_bytes);
  std::byte const* codes = unit + 16 * id;
  std::byte const* scales = unit + Operand::record::scales_offset + 4 * id;
  Operand weights[tiles_per_group];
  QPN_UNROLL
  for (int tile = 0; tile < tiles_per_group; ++tile) {
    weights[tile].load_scales(lane, scales + tile * Operand::record_bytes);
    weights[tile].load_half(lane, codes + tile * Operand::record_bytes, 0);
    weights[tile].load_half(lane, codes + tile * Operand::record_bytes, 1);
  }
  std::int64_t const k0 = std::int64_t{first} * Operand::record_k;
  activation_stage<Operand, RowTiles> x(lane, p, k0);
  std::int64_t k_left = p.k - k0;
  if constexpr (ByWords) x.load(lane, p, id, true);

  QPN_NO_UNROLL
  for (int left = count; left > 0; --left) {
    bool const more = left > 1;
    if constexpr (ByWords) {
      x.store(lane, id);
    } else {
      x.copy_elements(lane, p, id, k_left);
      k_left -= Operand::record_k;
    }
    lane.sync_warp();  // every lane's chunks are in shared memory
    if constexpr (ByWords) x.load(lane, p, id, more);
    codes += tiles_per_group * Operand::record_bytes;
    scales += tiles_per_group * Operand::record_bytes;
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      weights[tile].begin_record();
      if (more) weights[tile].load_scales(lane, scales + tile * Operand::record_bytes);
    }
    QPN_UNROLL
    for (int f = 0; f < Operand::fragments; ++f) {
      word4 a[RowTiles];  // (8 rows, 8 k) each
      QPN_UNROLL
      for (int i = 0; i < RowTiles; ++i) {
        a[i] = lane.template shared_load<word4>(fragment_offset + i * tile_m * shared::row_bytes +
                                                16 * f);
      }
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        std::uint32_t b[4];
        weights[tile].fragment(lane, f, b);
        QPN_UNROLL
        for (int i = 0; i < RowTiles; ++i) {
          lane.mma_m8n8k4(acc[i][tile], {a[i].w[0], a[i].w[1]}, {b[0], b[1]});
          lane.mma_m8n8k4(acc[i][tile], {a[i].w[2], a[i].w[3]}, {b[2], b[3]});
        }
      }
      if (f % Operand::fragments_per_half == Operand::fragments_per_half - 1 && more) {
        QPN_UNROLL
        for (int tile = 0; tile < tiles_per_group; ++tile) {
          weights[tile].load_half(lane, codes + tile * Operand::record_bytes,
                                  f / Operand::fragments_per_half);
        }
      }
    }
    lane.sync_warp();  // every lane has read the chunks before they are overwritten
  }
}

/// The part of a CTA's run that lies in one tile group. Each warp keeps its own in shared memory
/// while the loop over k has the registers.
struct alignas(16) run_part {
  int group;
  int first;  ///< step of the group
  int count;  ///< steps
  int left;   ///< steps of the run from here on, these included
};

/// The warp's share of a part: multiply(by_words, group, first step, steps), by words, a
/// bool_constant, where the alignment of x and k allow it.
template <class Operand, int RowTiles, class Lane, class Multiply>
QPN_HD void multiply_part(Lane& lane, gemm_params const& p, Multiply const& multiply) noexcept {
  using shared = shared_layout<Operand, RowTiles>;
  struct share {
    int group;
    int first;
    int by_words;
    int by_elements;
  };
  auto const my_share = [&]() -> share {
    int const warp = lane.thread() / warp_lanes;
    run_part const part = lane.template shared_load<run_part>(shared::parts + 16 * warp);
    int const first = part.first + part.count * warp / warps_per_cta;
    int const end = part.first + part.count * (warp + 1) / warps_per_cta;
    int const whole = p.x_by_words ? static_cast<int>(p.k / Operand::record_k) : 0;
    int const middle = whole < first ? first : whole < end ? whole : end;
    return {part.group, first, middle - first, end - middle};
  };
  share const words = my_share();
  multiply(std::true_type{}, words.group, words.first, words.by_words);
  share const rest = my_share();
  multiply(std::false_type{}, rest.group, rest.first + rest.by_words, rest.by_elements);
}

/// Adds up the warps' sums of one row tile in the order of the warps. Thread t gets row
/// t / 32 of the tile, columns id and id + 32 of the group.
template <class Operand, int RowTiles, class Lane>
QPN_HD void add_warps(Lane& lane, float const (&acc)[tiles_per_group][8],
                      float (&sum)[tiles_per_group]) noexcept {
  using shared = shared_layout<Operand, RowTiles>;
  int const id = lane.thread() % warp_lanes;
  int const warp = lane.thread() / warp_lanes;
  lane.sync_block();  // the shared memory's last user, loop or row tile, is done with it
  QPN_UNROLL
  for (int tile = 0; tile < tiles_per_group; ++tile) {
    QPN_UNROLL
    for (int i = 0; i < 8; i += 2) {
      int const at = accumulator_row(id, i) * shared::sum_row_floats +
                     tile * static_cast<int>(tile_n) + accumulator_weight_row(id, i);
      lane.shared_store(warp * shared::warp_sums_bytes + 4 * at,
                        float2_pair{acc[tile][i], acc[tile][i + 1]});
    }
  }
  lane.sync_block();  // all warps' sums are in shared memory
  QPN_UNROLL
  for (int tile = 0; tile < tiles_per_group; ++tile) {
    int const at = warp * shared::sum_row_floats + tile * static_cast<int>(tile_n) + id;
    float total = lane.template shared_load<float>(4 * at);
    QPN_UNROLL
    for (int other = 1; other < warps_per_cta; ++other) {
      total += lane.template shared_load<float>(other * shared::warp_sums_bytes + 4 * at);
    }
    sum[tile] = total;
  }
}

/// Whether this CTA is the last of those that share a group to come here; it then sees all planes.
template <class Operand, int RowTiles, class Lane>
[[nodiscard]] QPN_HD bool draw_last_ticket(Lane& lane, std::uint32_t* ticket,
                                           std::uint32_t parties) noexcept {
  using shared = shared_layout<Operand, RowTiles>;
  lane.fence_device();
  lane.sync_block();  // the stores of all threads are fenced; the last flag is free
  if (lane.thread() == 0) {
    bool const last = lane.atomic_add(ticket, 1u) == parties - 1;
    if (last) lane.store(ticket, 0u);  // for the next launch
    lane.shared_store(shared::last_flag, last ? 1u : 0u);
  }
  lane.sync_block();  // thread 0 has the answer
  lane.fence_device();
  return lane.template shared_load<std::uint32_t>(shared::last_flag) != 0;
}

/// Where a CTA keeps the best candidates of a row among the groups that it has finished.
template <int RowTiles>
[[nodiscard]] QPN_HD std::uint64_t* candidate_list_of(gemm_params const& p, std::int64_t cta,
                                                      int row) noexcept {
  return p.candidate_lists + (cta * (RowTiles * tile_m) + row) * p.epilogue.candidates;
}

template <int RowTiles, class Lane>
QPN_HD void clear_candidates(Lane& lane, gemm_params const& p) noexcept {
  int const thread = lane.keep(lane.thread());
  int const id = thread % warp_lanes;
  for (int row = thread / warp_lanes; row < p.m; row += warps_per_cta) {
    clear_list(lane, id, p.epilogue.candidates, candidate_list_of<RowTiles>(p, lane.block(), row));
  }
}

/// Stores the finished sums of a tile group, and offers each row's candidates.
template <int RowTiles, class Lane>
QPN_HD void finish_group(Lane& lane, gemm_params const& p, int group,
                         float const (&sum)[RowTiles][tiles_per_group]) noexcept {
  // Kept here, or what follows from it occupies registers through the loop over k.
  int const thread = lane.keep(lane.thread());
  int const id = thread % warp_lanes;
  int const first_row = thread / warp_lanes;
  std::uint64_t key[RowTiles][2] = {};
  QPN_UNROLL
  for (int i = 0; i < RowTiles; ++i) {
    int const row = i * tile_m + first_row;
    if (row >= p.m) continue;  // the whole warp
    finish_columns(lane, p.epilogue, group, row, id, sum[i][0], sum[i][1], key[i]);
    if (p.epilogue.candidates != 1) continue;
    std::uint64_t const best = warp_max(lane, key[i][0] > key[i][1] ? key[i][0] : key[i][1]);
    if (id == 0) lane.atomic_max(p.best_keys + row, best);
  }
  if (p.epilogue.candidates <= 1) return;
  QPN_NO_UNROLL
  for (int row = first_row; row < p.m; row += tile_m) {
    std::uint64_t offered[2] = {key[0][0], key[0][1]};
    offer_keys(lane, id, p.epilogue.candidates, candidate_list_of<RowTiles>(p, lane.block(), row),
               offered);
    QPN_UNROLL
    for (int i = 1; i < RowTiles; ++i) {
      QPN_UNROLL
      for (int r = 0; r < 2; ++r) key[i - 1][r] = key[i][r];
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

/// Writes the candidates of each row once every tile group is finished.
template <class Operand, int RowTiles, class Lane>
QPN_HD void finish_candidates(Lane& lane, gemm_params const& p) noexcept {
  auto const groups = static_cast<std::uint32_t>(p.split.tile_groups);
  if (!draw_last_ticket<Operand, RowTiles>(lane, p.candidate_ticket, groups)) return;
  if (p.epilogue.candidates == 1) {
    int const row = lane.thread();
    if (row >= p.m) return;
    std::uint64_t const key = lane.atomic_max(p.best_keys + row, 0u);  // reads past L1
    lane.store(p.best_keys + row, std::uint64_t{0});
    store_candidate(lane, p, row, 0, key);
    return;
  }
  int const thread = lane.keep(lane.thread());
  int const id = thread % warp_lanes;
  for (int row = thread / warp_lanes; row < p.m; row += warps_per_cta) {
    std::uint64_t best[2];
    merge_lists(lane, id, p.epilogue.candidates, candidate_list_of<RowTiles>(p, 0, row),
                std::int64_t{RowTiles * tile_m} * p.epilogue.candidates, p.split.ctas, best);
    QPN_UNROLL
    for (int r = 0; r < 2; ++r) {
      int const place = id + r * warp_lanes;
      if (place < p.epilogue.candidates) store_candidate(lane, p, row, place, best[r]);
    }
  }
}

/// Finishes a tile group of which this CTA has summed a part.
template <class Operand, int RowTiles, class Lane>
[[nodiscard]] QPN_HD bool add_planes(Lane& lane, gemm_params const& p, int group,
                                     float (&sum)[RowTiles][tiles_per_group]) noexcept {
  int const id = lane.thread() % warp_lanes;
  int const warp = lane.thread() / warp_lanes;
  std::int32_t const first = p.split.first_cta(group);
  std::int32_t const count = p.split.cta_count(group);
  // A CTA has two planes: one for the group that its run begins in, one for a group that it enters
  // from an earlier one; all groups between them are its own. Only the first CTA of a group can
  // have come from an earlier one.
  bool const first_enters = p.split.first_unit(first) < group * p.split.steps;
  auto const place = [&](std::int32_t cta) {
    std::int64_t const plane = 2 * std::int64_t{cta} + (cta == first && first_enters ? 1 : 0);
    return p.planes + (plane * (RowTiles * tile_m) + warp) * group_n + id;
  };
  auto const within = [](int i, int tile) { return i * tile_m * group_n + tile * 32; };
  float* const mine = place(lane.block());
  QPN_UNROLL
  for (int i = 0; i < RowTiles; ++i) {
    QPN_UNROLL
    for (int tile = 0; tile < tiles_per_group; ++tile) {
      lane.store(mine + within(i, tile), sum[i][tile]);
    }
  }
  if (!draw_last_ticket<Operand, RowTiles>(lane, p.tickets + group,
                                           static_cast<std::uint32_t>(count))) {
    return false;
  }
  for (std::int32_t c = 0; c < count; ++c) {
    float const* const other = place(first + c);
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) {
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        float const part = lane.load_volatile(other + within(i, tile));
        sum[i][tile] = c == 0 ? part : sum[i][tile] + part;
      }
    }
  }
  return true;
}

/// The CTA's run, part by part. sum_part(sum) adds up the part that the warps find in shared
/// memory: row 8 i + t / 32, columns id and id + 32 of the group for thread t.
template <class Operand, int RowTiles, class Lane, class SumPart>
QPN_HD void walk_run(Lane& lane, gemm_params const& p, SumPart const& sum_part) noexcept {
  using shared = shared_layout<Operand, RowTiles>;
  int const slot = shared::parts + lane.thread() / warp_lanes * 16;
  int const steps = static_cast<int>(p.split.steps);
  int const first_unit = static_cast<int>(p.split.first_unit(lane.block()));
  run_part part{first_unit / steps, first_unit % steps, 0,
                static_cast<int>(p.split.last_unit(lane.block())) - first_unit};
  if (p.epilogue.candidates > 1) clear_candidates<RowTiles>(lane, p);
  QPN_NO_UNROLL
  while (part.left > 0) {
    part.count = part.left < steps - part.first ? part.left : steps - part.first;
    if (lane.thread() % warp_lanes == 0) lane.shared_store(slot, part);
    lane.sync_warp();  // the part is in shared memory
    float sum[RowTiles][tiles_per_group];
    sum_part(sum);

    part = lane.template shared_load<run_part>(slot);
    bool const whole = part.count == steps;
    if (whole || add_planes<Operand, RowTiles>(lane, p, part.group, sum)) {
      finish_group<RowTiles>(lane, p, part.group, sum);
      if (p.epilogue.candidates != 0) finish_candidates<Operand, RowTiles>(lane, p);
    }
    // The sums in shared memory are read before the next part's activations are written; a ticket
    // has waited for that already.
    if (whole) lane.sync_block();
    part = lane.template shared_load<run_part>(slot);
    part = {part.group + 1, 0, 0, part.left - part.count};
    lane.sync_warp();  // every lane has read the part before it is overwritten
  }
}

/// The kernel: blocks = split.ctas, threads_per_cta threads, shared_layout::bytes of shared memory.
template <class Operand, int RowTiles, class Lane>
QPN_HD void gemm_program(Lane& lane, gemm_params const& p) noexcept {
  walk_run<Operand, RowTiles>(lane, p, [&](float(&sum)[RowTiles][tiles_per_group]) {
    float acc[RowTiles][tiles_per_group][8] = {};
    multiply_part<Operand, RowTiles>(lane, p, [&](auto by_words, int group, int first, int count) {
      multiply_steps<decltype(by_words)::value, Operand>(lane, p, group, first, count, acc);
    });
    QPN_UNROLL
    for (int i = 0; i < RowTiles; ++i) add_warps<Operand, RowTiles>(lane, acc[i], sum[i]);
  });
}

}  // namespace qpn::detail::sm70
