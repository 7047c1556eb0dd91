// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm70/gemv_program.hpp"
#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"

namespace qpn::detail::sm70 {

/// Two CTAs stay resident on one multiprocessor: detail/work_split.hpp counts on it.
template <class Operand, int Rows>
QPN_KERNEL __launch_bounds__(
    cta_shape<Operand, 1>::threads,
    cta_shape<Operand, 1>::resident_ctas) void gemv_kernel(gemm_params const params) {
  extern __shared__ __align__(16) unsigned char qpn_shared[];
  gemm_lane lane{{qpn_shared}};
  gemv_program<Operand, Rows>(lane, params);
}

}  // namespace qpn::detail::sm70
