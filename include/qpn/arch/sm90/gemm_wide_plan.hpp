// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/workspace.hpp"

// What a plan decides about the GEMM for many rows on Hopper. Host code without CUDA.

namespace qpn::detail::sm90 {

/// Whether there is a kernel for many rows on layout `layout`; its instruction, wgmma, is one of
/// compute capability 9.0 alone. Panels take the other formats.
[[nodiscard]] constexpr bool has_wide(packed_layout const& layout,
                                      std::int32_t compute_capability) noexcept {
  return compute_capability == 90 && layout.id == layout_id::sm80_mma16 &&
         layout.format != format_id::dense16 && layout.scale != scale_mode::block;
}

/// Steps of 64 k of a weight.
[[nodiscard]] constexpr std::int64_t wide_steps(packed_layout const& layout) noexcept {
  return (layout.padded_k - 1) / 64 + 1;
}

/// Rows of x as ordered in the workspace: m rounded up to a multiple of 8, the rows of a swizzle.
[[nodiscard]] constexpr std::int64_t wide_padded_m(std::int64_t m) noexcept {
  return (m + 7) / 8 * 8;
}

/// Bytes of x as ordered in the workspace, behind the part that is 0 between calls.
[[nodiscard]] constexpr std::size_t wide_workspace_bytes(packed_layout const& layout,
                                                         std::int64_t max_m) noexcept {
  auto const alignment = static_cast<std::size_t>(workspace_alignment);
  auto const bytes = static_cast<std::size_t>(wide_steps(layout) * wide_padded_m(max_m) * 128);
  return (bytes + alignment - 1) / alignment * alignment;
}

/// How a call runs: tiles of `rows` rows of x, whose k a cluster of `ranks` CTAs shares; the last
/// `tail_tiles` of them in a launch of their own, by larger clusters. It depends on the weight's
/// shape, m and the number of multiprocessors, so a row's bits do, too.
struct wide_shape {
  int rows;
  int ranks;
  int tail_tiles = 0;
  int tail_ranks = 0;
};

[[nodiscard]] constexpr std::int64_t wide_tiles(packed_layout const& layout, std::int64_t m,
                                                int rows) noexcept {
  return ((m - 1) / rows + 1) * ((layout.padded_n - 1) / 256 + 1);
}

/// Clusters of so many CTAs that are resident at once, by figures of 132 multiprocessors: they may
/// not cross the borders of GPCs.
[[nodiscard]] constexpr std::int64_t wide_resident(int ranks, std::int32_t sm_count) noexcept {
  std::int64_t const of_132[] = {132, 66, 39, 30};
  std::int64_t const scaled = of_132[ranks - 1] * sm_count / 132;
  return scaled < 1 ? 1 : scaled;
}

/// The shape of a call with tiles of `rows` rows by clusters of `ranks` CTAs. With `tail_ranks` the
/// tiles of a last wave that is not the only one are the tail, where there are fewer than a wave
/// has.
[[nodiscard]] constexpr wide_shape wide_shape_of(packed_layout const& layout, std::int64_t m,
                                                 std::int32_t sm_count, int rows, int ranks,
                                                 int tail_ranks) noexcept {
  std::int64_t const tiles = wide_tiles(layout, m, rows);
  std::int64_t const tail = tiles % wide_resident(ranks, sm_count);
  if (tail_ranks == 0 || tail == 0 || tail == tiles) return {rows, ranks};
  return {rows, ranks, static_cast<int>(tail), tail_ranks};
}

/// The shape that takes the fewest clocks by a model of the kernel on an H200
/// (docs/sm90_gemm_wide.md): tiles in waves, each as long as its steps and what comes before and
/// after them. Where the last wave would be short of tiles, they may be the tail.
[[nodiscard]] constexpr wide_shape choose_wide_shape(packed_layout const& layout, std::int64_t m,
                                                     std::int32_t sm_count) noexcept {
  std::int64_t const steps = wide_steps(layout);
  auto const clocks_of = [&](std::int64_t tiles, int rows, int ranks) {
    std::int64_t const waves = (tiles - 1) / wide_resident(ranks, sm_count) + 1;
    std::int64_t const step_clocks = rows == 128 ? 1100 : 840;
    return waves * (((steps - 1) / ranks + 1) * step_clocks + (ranks == 1 ? 4000 : 14000));
  };
  constexpr std::int64_t second_launch = 6000;
  wide_shape best{128, 1};
  std::int64_t best_clocks = -1;
  auto const consider = [&](wide_shape const& shape, std::int64_t clocks) {
    if (best_clocks >= 0 && clocks >= best_clocks) return;
    best = shape;
    best_clocks = clocks;
  };
  for (int rows = 128; rows >= 96; rows -= 32) {
    std::int64_t const tiles = wide_tiles(layout, m, rows);
    for (int ranks = 1; ranks <= 4 && ranks <= steps; ++ranks) {
      consider({rows, ranks}, clocks_of(tiles, rows, ranks));
      for (int more = ranks + 1; more <= 4 && more <= steps; ++more) {
        wide_shape const shape = wide_shape_of(layout, m, sm_count, rows, ranks, more);
        if (shape.tail_tiles == 0) break;
        consider(shape, clocks_of(tiles - shape.tail_tiles, rows, ranks) + second_launch +
                            clocks_of(shape.tail_tiles, rows, more));
      }
    }
  }
  return best;
}

}  // namespace qpn::detail::sm90
