// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/work_split.hpp"

// What becomes of the sums of a CTA's part of a tile group of the work split: the parts of several
// CTAs are added in their order by whoever comes last, each row's best column is offered, and the
// last group writes the argmax. Lane programs of every architecture can share it: calls are
// qualified where a lane's own namespace may have a function of the same name.

namespace qpn::detail {

/// Parameters that every kernel over packed records has.
struct packed_gemm_params {
  std::byte const* records = nullptr;  ///< first record of the packed weight
  unit_runs runs;

  std::uint16_t const* x = nullptr;  ///< f16 [m, k]
  std::int64_t ldx = 0;
  std::int64_t k = 0;
  int m = 0;
  bool x_by_words = false;  ///< x is 16-byte aligned and ldx a multiple of 8

  // Workspace. Tickets and keys are 0 before and after every launch.
  float* planes = nullptr;                 ///< [ctas][2][rows of x][rows of a tile group]
  std::uint32_t* tickets = nullptr;        ///< [tile groups]
  std::uint32_t* argmax_ticket = nullptr;  ///< [1]
  std::uint64_t* argmax_keys = nullptr;    ///< [rows of x]

  std::int32_t* argmax_ids = nullptr;  ///< [m]
  float* argmax_values = nullptr;      ///< [m], or null
  epilogue_params epilogue;
};

/// The plane of a CTA that shares a tile group. A CTA has two: one for the group that its run
/// begins in, one for a group that it enters from an earlier one; all groups between them are its
/// own. Only the first CTA of a group can have come from an earlier one.
[[nodiscard]] QPN_HD constexpr int plane_of_part(unit_runs const& runs, int group,
                                                 int cta) noexcept {
  return 2 * cta + (runs.first_unit(cta) < group * runs.steps ? 1 : 0);
}

/// Whether this CTA is the last of `parties` that come here with one ticket; it then sees all that
/// the others stored. The ticket is 0 again for the next launch.
/// @param flag  byte of shared memory for 4 bytes that nothing else uses
template <class Lane>
[[nodiscard]] QPN_HD bool draw_last_ticket(Lane& lane, int flag, std::uint32_t* ticket,
                                           std::uint32_t parties) noexcept {
  lane.fence_device();
  lane.sync_block();  // the stores of all threads are fenced; the flag is free
  if (lane.thread() == 0) {
    bool const last = lane.atomic_add(ticket, 1u) == parties - 1;
    if (last) lane.store(ticket, 0u);
    lane.shared_store(flag, last ? 1u : 0u);
  }
  lane.sync_block();  // thread 0 has the answer
  lane.fence_device();
  return lane.template shared_load<std::uint32_t>(flag) != 0;
}

/// The lane's key, or a larger one of its warp, in all lanes.
template <class Lane>
[[nodiscard]] QPN_HD std::uint64_t warp_max(Lane& lane, std::uint64_t key) noexcept {
  for (int mask = warp_lanes / 2; mask > 0; mask /= 2) {
    std::uint32_t const high = lane.shuffle_xor(static_cast<std::uint32_t>(key >> 32), mask);
    std::uint32_t const low = lane.shuffle_xor(static_cast<std::uint32_t>(key), mask);
    std::uint64_t const other = static_cast<std::uint64_t>(high) << 32 | low;
    key = other > key ? other : key;
  }
  return key;
}

/// Stores one row's finished sums of 64 weight rows, columns 64 * group + lane and + 32, and offers
/// their best. All lanes of a warp have the same group and row.
template <class Lane>
QPN_HD void finish_row(Lane& lane, packed_gemm_params const& p, int group, int row, float2_pair sum,
                       column_terms const (&terms)[2]) noexcept {
  if (row >= p.m || std::int64_t{group} * 2 * tile_n >= p.epilogue.n) return;  // the whole warp
  int const id = lane.thread() % warp_lanes;
  std::uint64_t const key =
      finish_columns(lane, p.epilogue, group, row, id, sum.low, sum.high, terms);
  if (!p.epilogue.argmax) return;
  std::uint64_t const best = detail::warp_max(lane, key);
  if (id == 0) lane.atomic_max(p.argmax_keys + row, best);
}

/// Writes the argmax of each row once every tile group of the split is finished.
template <class Lane>
QPN_HD void finish_argmax(Lane& lane, packed_gemm_params const& p, int groups, int flag) noexcept {
  if (!detail::draw_last_ticket(lane, flag, p.argmax_ticket, static_cast<std::uint32_t>(groups)))
    return;
  int const row = lane.thread();
  if (row >= p.m) return;
  std::uint64_t const key = lane.atomic_max(p.argmax_keys + row, 0u);  // reads past L1
  lane.store(p.argmax_keys + row, std::uint64_t{0});
  lane.store(p.argmax_ids + row, argmax_column(key));
  if (p.argmax_values != nullptr) lane.store(p.argmax_values + row, argmax_value(key));
}

}  // namespace qpn::detail
