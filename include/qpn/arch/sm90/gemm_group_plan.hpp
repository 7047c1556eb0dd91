// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm90/gemm_wide_plan.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/workspace.hpp"

// What a plan decides about the GEMM by warpgroups on Hopper. Host code without CUDA. None of it
// changes the order of a sum.

namespace qpn::detail::sm90 {

/// Whether calls with m rows run by warpgroups on a device that has_wide: where the weight is so
/// large that ordering x and adding sums across CTAs costs less than the matrix instructions and
/// the reads of x that it saves. The borders are those of an H200: docs/sm90_gemm.md. More rows
/// than m prefer them, too, up to gemm_max_m.
[[nodiscard]] constexpr bool prefers_groups(packed_layout const& layout, std::int64_t m) noexcept {
  bool const nvfp4 = layout.format == format_id::nvfp4;
  if (m <= 16 || (m <= 32 && !nvfp4)) return false;
  std::int64_t const megabytes = m <= 32 ? 24 : m <= 64 && !nvfp4 ? 30 : 12;
  return layout.total_bytes >= megabytes * 1000000;
}

/// How a call runs: kernels for `rows` rows of x, CTAs of `groups` warpgroups. It depends on the
/// weight's shape, m and the number of multiprocessors; the sums do not depend on it.
struct group_shape {
  int rows;
  int groups;
};

/// CTAs on a multiprocessor.
[[nodiscard]] constexpr int group_ctas(group_shape shape) noexcept {
  return shape.rows == 32 ? 5 : (shape.groups == 1 ? 1 : 0) + (shape.rows == 64 ? 2 : 1);
}

/// Of the two shapes for m rows, m up to 96, the one whose waves of clusters take less time by
/// figures of an H200: a wave takes as long as its start and its warpgroups.
[[nodiscard]] constexpr group_shape choose_group_shape(packed_layout const& layout, std::int64_t m,
                                                       std::int32_t sm_count) noexcept {
  if (m <= 32) return {32, 1};
  group_shape const shapes[] = {{m <= 64 ? 64 : 96, 1}, {m <= 64 ? 64 : 96, m <= 64 ? 2 : 3}};
  std::int64_t const clocks_of_wave[] = {m <= 64 ? 60 : 50, m <= 64 ? 70 : 67};
  std::int64_t const strips = layout.padded_n / tile_n;
  int best = 0;
  std::int64_t best_clocks = -1;
  for (int i = 0; i < 2; ++i) {
    std::int64_t const clusters = (strips - 1) / (4 * shapes[i].groups) + 1;
    // 124 of 132 multiprocessors: clusters may not cross the borders of GPCs.
    std::int64_t const scaled =
        std::int64_t{124} * group_ctas(shapes[i]) * sm_count / 132 / layout.ctas;
    std::int64_t const resident = scaled < 1 ? 1 : scaled;
    std::int64_t const clocks = ((clusters - 1) / resident + 1) * clocks_of_wave[i];
    if (best_clocks < 0 || clocks < best_clocks) {
      best = i;
      best_clocks = clocks;
    }
  }
  return shapes[best];
}

/// Steps of 64 k of ordered x: whole batches of the weight's records.
[[nodiscard]] constexpr std::int64_t group_steps(packed_layout const& layout) noexcept {
  return (wide_steps(layout) + 1) / 2 * 2;
}

/// Bytes of x as ordered in the workspace, behind the part that is 0 between calls.
[[nodiscard]] constexpr std::size_t group_workspace_bytes(packed_layout const& layout,
                                                          std::int64_t max_m) noexcept {
  auto const alignment = static_cast<std::size_t>(workspace_alignment);
  auto const bytes = static_cast<std::size_t>(group_steps(layout) * wide_padded_m(max_m) * 128);
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace qpn::detail::sm90
