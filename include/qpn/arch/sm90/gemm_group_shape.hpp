// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm80/gemm_sums.hpp"
#include "qpn/arch/sm90/gemm_wide_shape.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"

// The GEMM by warpgroups on Hopper, for 17 to 96 rows of x: what its programs share. A CTA has one
// slice of the k of some strips of layout sm80_mma16, a strip to a warp, four to a warpgroup; the
// CTAs of a cluster have the slices of the same strips. x comes ordered, as the GEMM for many rows
// wants it (gemm_wide_shape.hpp).

namespace qpn::detail::sm90 {

inline constexpr int group_ring_records = 4;  ///< of a warp that are on their way at once
inline constexpr int group_stages = 3;        ///< of x

struct group_params {
  sm80::gemm_params gemm;
  std::byte const* ordered_x = nullptr;  ///< [steps][padded_m][128 bytes], 128-byte aligned
  int padded_m = 0;
  wide_output output = wide_output::elements;
};

/// Shared memory of a CTA of `Groups` warpgroups, in bytes.
///
/// A stage holds `Rows` rows of x for a batch, two steps of 64 k. Behind the stages each warp has a
/// ring of records. Where both were, the sums of the slice lie behind the loop:
/// [strip][8 rows of x][half][lane][4 registers].
template <class Operand, int Rows, int Groups>
struct group_shared {
  static constexpr int strips = Groups * wide_group_warps;
  static constexpr int threads = Groups * wide_group_threads;
  static constexpr int steps = 2;  ///< of a batch
  static constexpr int step_bytes = Rows * wide_x_row_bytes;
  static constexpr int stage_bytes = steps * step_bytes;
  static constexpr int rings = group_stages * stage_bytes;
  static constexpr int ring_bytes = group_ring_records * Operand::record_bytes;
  static constexpr int loop_bytes = rings + strips * ring_bytes;

  static constexpr int half_sum_bytes = 16 * warp_lanes;
  static constexpr int block_sum_bytes = 2 * half_sum_bytes;
  static constexpr int strip_sum_bytes = Rows / 8 * block_sum_bytes;
  /// Values of 8 rows of y, of each warp: those of a wide_finisher.
  static constexpr int turned = strips * strip_sum_bytes;
  static constexpr int turned_bytes = 8 * 4 * (32 + 4);
  static constexpr int sum_bytes = turned + strips * turned_bytes;
  static constexpr int barriers = loop_bytes > sum_bytes ? loop_bytes : sum_bytes;
  static constexpr int bytes = barriers + 16 * group_stages;

  static_assert(Operand::batch * Operand::record_k == steps * wide_step_k);
  static_assert(group_ring_records % Operand::batch == 0);
  static_assert(step_bytes % 1024 == 0, "the swizzle repeats after 1024 bytes");

  /// A barrier that counts the arrival of a stage, and one of its release by each warp.
  [[nodiscard]] QPN_HD static constexpr int full(int stage) noexcept {
    return barriers + 16 * stage;
  }
  [[nodiscard]] QPN_HD static constexpr int empty(int stage) noexcept {
    return barriers + 16 * stage + 8;
  }
  [[nodiscard]] QPN_HD static constexpr int sums_at(int strip, int block, int half,
                                                    int lane) noexcept {
    return strip * strip_sum_bytes + block * block_sum_bytes + half * half_sum_bytes + 16 * lane;
  }
};

}  // namespace qpn::detail::sm90
