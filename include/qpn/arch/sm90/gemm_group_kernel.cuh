// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm90/gemm_group_plan.hpp"
#include "qpn/arch/sm90/gemm_group_program.hpp"
#include "qpn/arch/sm90/group_lane.cuh"
#include "qpn/config.hpp"

namespace qpn::detail::sm90 {

/// wgmma is an instruction of sm_90a alone.
template <class Operand, int Rows, int Groups>
QPN_KERNEL __launch_bounds__(
    (group_shared<Operand, Rows, Groups>::threads),
    group_ctas({Rows, Groups})) void gemm_group_kernel(group_params const params) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char qpn_shared_group[];
  group_lane lane;
  lane.shared_bytes = qpn_shared_group;
  gemm_group_program<Operand, Rows, Groups>(lane, params);
#else
  __trap();  // launch_mma16 asks for what the program was compiled
#endif
}

}  // namespace qpn::detail::sm90
