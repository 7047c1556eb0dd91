// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm70/gemm_wide_kernel.cuh"

// The sm_70 kernels for many rows as gemm_wide_limits.txt names them, instantiated for the SASS
// gate alone.

namespace qpn::detail::sm70 {

template __global__ void gemm_wide_kernel<weight_operand<nvfp4, dtype::e2m1>, 4>(gemm_wide_params);
template __global__ void gemm_wide_kernel<weight_operand<nvfp4, dtype::e2m1>, 8>(gemm_wide_params);
template __global__ void gemm_wide_kernel<weight_operand<fp8, dtype::e4m3>, 4>(gemm_wide_params);
template __global__ void gemm_wide_kernel<weight_operand<fp8, dtype::e4m3>, 8>(gemm_wide_params);
template __global__ void gemm_wide_kernel<weight_operand<dense16, dtype::f16>, 4>(gemm_wide_params);
template __global__ void gemm_wide_kernel<weight_operand<dense16, dtype::f16>, 8>(gemm_wide_params);
template __global__ void gemm_wide_kernel<weight_operand<dense16, dtype::bf16>, 4>(
    gemm_wide_params);
template __global__ void gemm_wide_kernel<weight_operand<dense16, dtype::bf16>, 8>(
    gemm_wide_params);

}  // namespace qpn::detail::sm70
