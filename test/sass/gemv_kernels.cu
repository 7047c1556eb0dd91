// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm70/gemv_kernel.cuh"

// The sm_70 kernels without matrix instructions as gemv_limits.txt names them, instantiated for the
// SASS gate alone.

namespace qpn::detail::sm70 {

template __global__ void gemv_kernel<weight_operand<nvfp4, dtype::e2m1>, 1>(gemm_params);
template __global__ void gemv_kernel<weight_operand<nvfp4, dtype::e2m1>, 2>(gemm_params);
template __global__ void gemv_kernel<weight_operand<nvfp4, dtype::e2m1>, 3>(gemm_params);
template __global__ void gemv_kernel<weight_operand<fp8, dtype::e4m3>, 1>(gemm_params);
template __global__ void gemv_kernel<weight_operand<fp8, dtype::e4m3>, 2>(gemm_params);
template __global__ void gemv_kernel<weight_operand<fp8, dtype::e4m3>, 3>(gemm_params);
template __global__ void gemv_kernel<weight_operand<dense16, dtype::f16>, 1>(gemm_params);
template __global__ void gemv_kernel<weight_operand<dense16, dtype::f16>, 2>(gemm_params);
template __global__ void gemv_kernel<weight_operand<dense16, dtype::f16>, 3>(gemm_params);
template __global__ void gemv_kernel<weight_operand<dense16, dtype::bf16>, 1>(gemm_params);
template __global__ void gemv_kernel<weight_operand<dense16, dtype::bf16>, 2>(gemm_params);
template __global__ void gemv_kernel<weight_operand<dense16, dtype::bf16>, 3>(gemm_params);

}  // namespace qpn::detail::sm70
