// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/gemm_types.hpp"

// How deep the rings of arch/sm80/stage_ring.hpp are: what fits a block's shared memory. Sums and
// their order do not depend on it.

namespace qpn::detail::sm80 {

/// For devices with 163 KB in a block, up to 32 rows also for those with 99 KB.
struct gemm_policy {
  static constexpr gemm_arch arch = gemm_arch::sm80;
  template <int RowTiles>
  static constexpr int batch = 1;
  template <int RowTiles>
  static constexpr int stages = RowTiles == 1 ? 3 : 2;
  template <int RowTiles>
  static constexpr int sum_buffers = 1;
};

}  // namespace qpn::detail::sm80

namespace qpn::detail::sm90 {

/// For devices with 227 KB.
struct gemm_policy {
  static constexpr gemm_arch arch = gemm_arch::sm90;
  template <int RowTiles>
  static constexpr int batch = RowTiles <= 2 ? 2 : 1;
  template <int RowTiles>
  static constexpr int stages = RowTiles == 1 || RowTiles == 4 ? 4 : 3;
  template <int RowTiles>
  static constexpr int sum_buffers = RowTiles > 1 && RowTiles <= 8 ? 2 : 1;
};

}  // namespace qpn::detail::sm90
