// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm80/gemm_program.hpp"
#include "qpn/arch/sm80/lane.cuh"
#include "qpn/config.hpp"
#include "qpn/x_fragments.hpp"

namespace qpn::detail::sm80 {

template <class Operand, int RowTiles, bool Candidates, int Registers, int Halves,
          x_order Order = x_order::rows>
QPN_KERNEL __maxnreg__(Registers) void gemm_kernel(gemm_params const params) {
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 900)
  extern __shared__ __align__(16) unsigned char qpn_shared_sm80[];
  device_lane lane;
  lane.shared_bytes = qpn_shared_sm80;
  constexpr int batches =
      sm80::gemm_policy<Operand, RowTiles>::batches(Registers, Candidates, Halves, Order);
  sm80::gemm_program<Operand, RowTiles, Candidates, batches, Halves, Order>(lane, params);
#else
  __trap();  // launch_mma16 asks for what the program was compiled
#endif
}

}  // namespace qpn::detail::sm80
