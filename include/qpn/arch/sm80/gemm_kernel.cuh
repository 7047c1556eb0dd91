// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm80/gemm_program.hpp"
#include "qpn/arch/sm80/lane.cuh"
#include "qpn/config.hpp"

namespace qpn::detail::sm80 {

/// One CTA fills a multiprocessor.
template <class Operand, int RowTiles>
QPN_KERNEL __launch_bounds__(threads_per_cta, 1) void gemm_kernel(gemm_params const params) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) unsigned char qpn_shared_sm80[];
  device_lane lane{qpn_shared_sm80};
  gemm_program<Operand, RowTiles, ring_layout<Operand, RowTiles, gemm_policy>>(lane, params);
#else
  __trap();  // plans choose this kernel for compute capability 8.0 and newer
#endif
}

}  // namespace qpn::detail::sm80
