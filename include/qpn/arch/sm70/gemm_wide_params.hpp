// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm70/gemm_wide_program.hpp"
#include "qpn/detail/gemm_epilogue.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm70 {

/// CTAs of the kernel for many rows: row blocks times blocks of 4 tile groups.
[[nodiscard]] constexpr std::int64_t wide_ctas(packed_layout const& layout, std::int64_t m,
                                               int row_tiles) noexcept {
  std::int64_t const row_blocks = (m - 1) / (row_tiles * tile_m) + 1;
  return row_blocks * ((layout.padded_n - 1) / (wide_warps * group_n) + 1);
}

/// Row tiles of a CTA: 8 where such CTAs fill the two places of every multiprocessor, else 4. The
/// bits are the same.
template <class Format>
[[nodiscard]] constexpr int wide_row_tiles(gemm_plan<Format> const& plan, std::int64_t m) noexcept {
  return wide_ctas(plan.layout, m, 8) >= 2 * std::int64_t{plan.sm_count} ? 8 : 4;
}

/// The kernel's parameters of a checked call with at least one row.
template <class Operand, int RowTiles, class Format>
[[nodiscard]] gemm_wide_params make_gemm_wide_params(gemm_plan<Format> const& plan,
                                                     gemm_args const& args) noexcept {
  packed_layout const& layout = plan.layout;
  gemm_wide_params p;
  p.records = args.weight.data + layout.codes_offset;
  p.tile_groups = static_cast<int>(layout.padded_n / group_n);
  p.record_steps = static_cast<int>(layout.padded_k / Operand::record_k);
  p.x = static_cast<std::uint16_t const*>(args.x);
  p.ldx = args.ldx;
  p.x_step = wide_rows_between * args.ldx;
  p.k = layout.k;
  p.m = args.m;
  p.row_blocks = static_cast<int>((args.m - 1) / (RowTiles * tile_m) + 1);
  p.x_by_words = reads_x_by_words(args);
  p.epilogue = make_epilogue_params(plan, args, Operand::half_exponent);
  return p;
}

}  // namespace qpn::detail::sm70
