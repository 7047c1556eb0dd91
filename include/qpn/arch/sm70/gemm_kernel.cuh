// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"

namespace qpn::detail::sm70 {

/// detail/work_split.hpp counts on the CTAs that stay resident on one multiprocessor.
template <class Operand, int RowTiles>
QPN_KERNEL __launch_bounds__(
    cta_shape<Operand, RowTiles>::threads,
    cta_shape<Operand, RowTiles>::resident_ctas) void gemm_kernel(gemm_params const params) {
  extern __shared__ __align__(16) unsigned char qpn_shared[];
  gemm_lane lane{{qpn_shared}};
  if constexpr (cta_shape<Operand, RowTiles>::syncs_pairs) lane.init_pairs();
  gemm_program<Operand, RowTiles>(lane, params);
}

}  // namespace qpn::detail::sm70
