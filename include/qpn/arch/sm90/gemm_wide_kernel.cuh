// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm90/gemm_wide_program.hpp"
#include "qpn/arch/sm90/wide_lane.cuh"
#include "qpn/config.hpp"

namespace qpn::detail::sm90 {

/// One CTA fills a multiprocessor. wgmma is an instruction of sm_90a alone.
template <class Operand, int Rows>
QPN_KERNEL __launch_bounds__(wide_threads, 1) void gemm_wide_kernel(gemm_wide_params const params) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char qpn_shared_wide[];
  wide_lane lane{{qpn_shared_wide}};
  gemm_wide_program<Operand, Rows>(lane, params);
#else
  __trap();  // launch_mma16 asks for what the program was compiled
#endif
}

template <class Operand>
QPN_KERNEL __launch_bounds__(order_threads) void order_rows_kernel(order_params const params) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  wide_lane lane{{nullptr}};
  order_rows_program<Operand>(lane, params);
#else
  __trap();  // launch_mma16 asks for what the program was compiled
#endif
}

}  // namespace qpn::detail::sm90
