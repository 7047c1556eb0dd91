// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/quadpair_codes.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/dtype.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/workspace.hpp"

// Dense panels: some weight rows at a time as f16, their sums with x in fp32 from a GEMM of the
// caller, and what happens to the sums. The launches are in gemm_dense.cuh.

namespace qpn::detail {

/// Panels are of whole tile groups, the pairs of tiles that the epilogue finishes together.
inline constexpr std::int64_t panel_unit = 2 * tile_n;

/// Elements between two rows of a panel of weights: rows are 16-byte aligned.
[[nodiscard]] constexpr std::int64_t panel_ldw(packed_layout const& layout) noexcept {
  return (layout.k + 7) / 8 * 8;
}

/// Bytes of the panels for one weight row; k and max_m are below 2^31.
[[nodiscard]] constexpr std::int64_t panel_row_bytes(packed_layout const& layout,
                                                     std::int64_t max_m) noexcept {
  return 2 * panel_ldw(layout) + 4 * max_m;
}

/// The largest panel of weight rows that fits into `bytes`, no larger than it takes to have panels
/// of even sizes: a multiple of panel_unit; 0 where not even one unit fits.
[[nodiscard]] constexpr std::int64_t choose_panel_rows(packed_layout const& layout,
                                                       std::int64_t max_m,
                                                       std::size_t bytes) noexcept {
  auto const unit_bytes = static_cast<std::size_t>(panel_unit * panel_row_bytes(layout, max_m));
  std::size_t const fitting = bytes / unit_bytes;
  std::int64_t const units = layout.padded_n / panel_unit;
  if (fitting == 0) return 0;
  if (fitting >= static_cast<std::size_t>(units)) return layout.padded_n;
  std::int64_t const most = static_cast<std::int64_t>(fitting);
  std::int64_t const panels = (units - 1) / most + 1;
  return ((units - 1) / panels + 1) * panel_unit;
}

struct dense_panels {
  std::uint16_t* weights;  ///< f16 [rows, panel_ldw]
  float* sums;             ///< [max_m, rows]
  std::size_t bytes;
};

[[nodiscard]] inline dense_panels place_panels(packed_layout const& layout, std::int64_t max_m,
                                               std::int64_t rows, std::byte* base) noexcept {
  workspace_cursor cursor(base);
  dense_panels placed{};
  placed.weights = cursor.take<std::uint16_t>(rows * panel_ldw(layout));
  placed.sums = cursor.take<float>(rows * max_m);
  placed.bytes = cursor.used();
  return placed;
}

/// Panels hold a weight's codes, times their block scales, times 2^panel_exponent: exact in f16
/// wherever the fused kernels' values are. Smaller bf16 would be subnormal.
[[nodiscard]] constexpr int panel_exponent(dtype code_type) noexcept {
  return code_type == dtype::bf16 ? bf16_half_exponent : 0;
}

struct dense_epilogue_params {
  float const* sums = nullptr;  ///< [m, ld]
  std::int64_t ld = 0;
  std::int64_t first_group = 0;  ///< tile group of the first sum
  std::int64_t groups = 0;       ///< of the panel
  std::int64_t m = 0;
  epilogue_params epilogue;
};

inline constexpr int dense_epilogue_threads = 256;

/// CTAs of the epilogue: one warp for a row and tile group.
[[nodiscard]] constexpr std::int64_t dense_epilogue_blocks(std::int64_t groups,
                                                           std::int64_t m) noexcept {
  return (m * groups - 1) / (dense_epilogue_threads / warp_lanes) + 1;
}

/// Scales, adds and stores the sums of one panel. Blocks: dense_epilogue_blocks.
template <class Lane>
QPN_HD void dense_epilogue_program(Lane& lane, dense_epilogue_params const& p) noexcept {
  int const id = lane.thread() % warp_lanes;
  std::int64_t const warp = std::int64_t{lane.block()} * (dense_epilogue_threads / warp_lanes) +
                            lane.thread() / warp_lanes;
  std::int64_t const row = warp / p.groups;
  std::int64_t const group = warp % p.groups;
  if (row >= p.m) return;
  float const* const at = p.sums + row * p.ld + group * panel_unit + id;
  std::int64_t const column = (p.first_group + group) * panel_unit + id;
  float const low = column < p.epilogue.n ? lane.load(at) : 0.0f;
  float const high = column + tile_n < p.epilogue.n ? lane.load(at + tile_n) : 0.0f;
  finish_columns(lane, p.epilogue, p.first_group + group, row, id, low, high);
}

}  // namespace qpn::detail
