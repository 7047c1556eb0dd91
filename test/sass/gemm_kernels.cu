// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm70/gemm_kernel.cuh"

// The sm_70 kernels as limits.txt names them, instantiated for the SASS gate alone.

namespace qpn::detail::sm70 {

template __global__ void gemm_kernel<weight_operand<nvfp4, dtype::e2m1>, 1>(gemm_params);
template __global__ void gemm_kernel<weight_operand<nvfp4, dtype::e2m1>, 2>(gemm_params);
template __global__ void gemm_kernel<weight_operand<nvfp4, dtype::e2m1>, 4>(gemm_params);
template __global__ void gemm_kernel<weight_operand<nvfp4, dtype::e2m1>, 8>(gemm_params);
template __global__ void gemm_kernel<weight_operand<nvfp4, dtype::e2m1>, 12>(gemm_params);
template __global__ void gemm_kernel<weight_operand<fp8, dtype::e4m3>, 1>(gemm_params);
template __global__ void gemm_kernel<weight_operand<fp8, dtype::e4m3>, 2>(gemm_params);
template __global__ void gemm_kernel<weight_operand<fp8, dtype::e4m3>, 4>(gemm_params);
template __global__ void gemm_kernel<weight_operand<fp8, dtype::e4m3>, 8>(gemm_params);
template __global__ void gemm_kernel<weight_operand<fp8, dtype::e4m3>, 12>(gemm_params);
template __global__ void gemm_kernel<block_scaled_fp8, 1>(gemm_params);
template __global__ void gemm_kernel<block_scaled_fp8, 2>(gemm_params);
template __global__ void gemm_kernel<block_scaled_fp8, 4>(gemm_params);
template __global__ void gemm_kernel<weight_operand<dense16, dtype::f16>, 1>(gemm_params);
template __global__ void gemm_kernel<weight_operand<dense16, dtype::f16>, 2>(gemm_params);
template __global__ void gemm_kernel<weight_operand<dense16, dtype::f16>, 4>(gemm_params);
template __global__ void gemm_kernel<weight_operand<dense16, dtype::bf16>, 1>(gemm_params);
template __global__ void gemm_kernel<weight_operand<dense16, dtype::bf16>, 2>(gemm_params);
template __global__ void gemm_kernel<weight_operand<dense16, dtype::bf16>, 4>(gemm_params);

}  // namespace qpn::detail::sm70
