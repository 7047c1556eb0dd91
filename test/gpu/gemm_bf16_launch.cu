// SPDX-License-Identifier: Apache-2.0
#include "gpu/gemm_launch.hpp"
#include "qpn/gemm.cuh"

namespace qpn::test {

template <class Format>
status launch_gemm_bf16(gemm_plan<Format> const& plan, gemm_args const& args,
                        workspace_view workspace, cudaStream_t stream) noexcept {
  return gemm<dtype::bf16>(plan, args, workspace, stream);
}

template status launch_gemm_bf16(gemm_plan<nvfp4> const&, gemm_args const&, workspace_view,
                                 cudaStream_t) noexcept;
template status launch_gemm_bf16(gemm_plan<fp8> const&, gemm_args const&, workspace_view,
                                 cudaStream_t) noexcept;
template status launch_gemm_bf16(gemm_plan<dense16> const&, gemm_args const&, workspace_view,
                                 cudaStream_t) noexcept;

}  // namespace qpn::test
