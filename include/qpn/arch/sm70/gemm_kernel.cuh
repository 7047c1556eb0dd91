// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"

namespace qpn::detail::sm70 {

/// Two CTAs stay resident on one multiprocessor: detail/work_split.hpp counts on it.
template <class Operand, int RowTiles>
QPN_KERNEL __launch_bounds__(threads_per_cta, 2) void gemm_kernel(gemm_params const params) {
  extern __shared__ __align__(16) unsigned char qpn_shared[];
  device_lane lane{qpn_shared};
  gemm_program<Operand, RowTiles>(lane, params);
}

}  // namespace qpn::detail::sm70
