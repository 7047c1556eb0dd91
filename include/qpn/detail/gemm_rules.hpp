// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm90/gemm_group_plan.hpp"
#include "qpn/arch/sm90/gemm_table_h200.hpp"
#include "qpn/arch/sm90/gemm_wide_plan.hpp"
#include "qpn/detail/row_cut.hpp"
#include "qpn/device_info.hpp"
#include "qpn/gemm_choice.hpp"
#include "qpn/packed_weight.hpp"

// What a call on layout sm80_mma16 may run, what it runs by the rules, and what tables say. Host
// code without CUDA.

namespace qpn::detail {

/// A table that the library has of a device.
struct device_table {
  int compute_capability;
  int sm_count;
  gemm_tuning rows;
};

inline constexpr device_table device_tables[] = {
    {90, 132, tuning_of(gemm_table_h200)},
};

/// That of a device, or an empty one.
[[nodiscard]] constexpr gemm_tuning table_of(device_info const& device) noexcept {
  for (device_table const& table : device_tables) {
    if (table.compute_capability == device.compute_capability &&
        table.sm_count == device.sm_count) {
      return table.rows;
    }
  }
  return {};
}

[[nodiscard]] constexpr bool is_of(gemm_tuning_row const& row,
                                   packed_layout const& layout) noexcept {
  return row.format == layout.format && row.n == layout.n && row.k == layout.k &&
         layout.id == layout_id::sm80_mma16 && layout.scale != scale_mode::block;
}

/// The part of a table from the first to the last row of a weight.
[[nodiscard]] constexpr gemm_tuning rows_of(gemm_tuning table,
                                            packed_layout const& layout) noexcept {
  while (table.count != 0 && !is_of(table.rows[0], layout)) {
    ++table.rows;
    --table.count;
  }
  while (table.count != 0 && !is_of(table.rows[table.count - 1], layout)) --table.count;
  return table;
}

/// The row for a call, or null.
[[nodiscard]] constexpr gemm_tuning_row const* find_row(gemm_tuning table,
                                                        packed_layout const& layout,
                                                        std::int64_t m) noexcept {
  for (gemm_tuning_row const& row : table) {
    if (is_of(row, layout) && row.first_m <= m && m <= row.last_m) return &row;
  }
  return nullptr;
}

/// Row tiles of the kernels of m16n8k16; 0: no such method, or none of layout sm80_mma16.
[[nodiscard]] constexpr int mma16_row_tiles(gemm_method method) noexcept {
  return method == gemm_method::mt1   ? 1
         : method == gemm_method::mt2 ? 2
         : method == gemm_method::mt4 ? 4
                                      : 0;
}

/// Row blocks of so many row tiles.
[[nodiscard]] constexpr std::int64_t row_blocks(std::int64_t m, int row_tiles) noexcept {
  return (m - 1) / (8 * row_tiles) + 1;
}

/// Whether all calls of a row, on a weight that it is_of, can run as it says.
/// @param over_wgmma  of the layout and the device: sm90::has_wide
[[nodiscard]] constexpr bool is_possible(gemm_tuning_row const& row, packed_layout const& layout,
                                         bool over_wgmma) noexcept {
  gemm_choice const choice = row.choice;
  if (row.first_m < 1 || row.last_m < row.first_m) return false;
  if (int const row_tiles = mma16_row_tiles(choice.method); row_tiles != 0) {
    bool const has_kernel = choice.registers == 0 ||
                            sm80::free_registers(layout.format, row_tiles).has(choice.registers);
    return has_kernel && choice == gemm_choice{choice.method, 0, 0, 0, 0, choice.registers};
  }
  if (choice.registers != 0) return false;
  if (!over_wgmma) return false;
  if (choice.method == gemm_method::group) {
    bool const has_kernel = choice.groups == 1
                                ? choice.rows == 32 || choice.rows == 64 || choice.rows == 96
                                : (choice.rows == 64 && choice.groups == 2) ||
                                      (choice.rows == 96 && choice.groups == 3);
    return has_kernel && row.last_m <= choice.rows && choice.ranks == 0 && choice.tail_ranks == 0;
  }
  std::int64_t const steps = sm90::wide_steps(layout);
  std::int64_t const most_ranks = steps < 4 ? steps : 4;
  return choice.method == gemm_method::wide && row.first_m > gemm_max_m &&
         (choice.rows == 96 || choice.rows == 128) && choice.groups == 0 && choice.ranks >= 1 &&
         choice.ranks <= most_ranks &&
         (choice.tail_ranks == 0 ||
          (choice.tail_ranks > choice.ranks && choice.tail_ranks <= most_ranks));
}

/// What a call with m rows, m >= 1, runs where no table has a row for it.
template <class Format>
[[nodiscard]] constexpr gemm_choice rule_choice(packed_layout const& layout, bool over_wgmma,
                                                bool with_candidates, std::int32_t sm_count,
                                                std::int64_t m) noexcept {
  if (over_wgmma && m > gemm_max_m) {
    sm90::wide_shape const shape = sm90::choose_wide_shape(layout, m, sm_count);
    return {gemm_method::wide, static_cast<std::int16_t>(shape.rows), 0,
            static_cast<std::int8_t>(shape.ranks), static_cast<std::int8_t>(shape.tail_ranks)};
  }
  if (over_wgmma && !with_candidates && sm90::prefers_groups(layout, m)) {
    sm90::group_shape const shape = sm90::choose_group_shape(layout, m, sm_count);
    return {gemm_method::group, static_cast<std::int16_t>(shape.rows),
            static_cast<std::int8_t>(shape.groups)};
  }
  return {narrow_method(cut_rows<Format>(layout, m).row_tiles)};
}

}  // namespace qpn::detail
