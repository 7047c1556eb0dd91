// SPDX-License-Identifier: Apache-2.0
#include "gpu/gemm_launch.hpp"

#include "qpn/candidates.cuh"
#include "qpn/device_info.cuh"
#include "qpn/gemm.cuh"

namespace qpn::test {

status query_test_device(device_info& out) noexcept {
  return query_device_info(0, out);
}

template <class Format>
status launch_init_workspace(gemm_plan<Format> const& plan, workspace_view workspace,
                             cudaStream_t stream) noexcept {
  return init_workspace(plan, workspace, stream);
}

template <class Format>
status launch_gemm(gemm_plan<Format> const& plan, gemm_args const& args, workspace_view workspace,
                   cudaStream_t stream) noexcept {
  return gemm(plan, args, workspace, stream);
}

template status launch_init_workspace(gemm_plan<nvfp4> const&, workspace_view,
                                      cudaStream_t) noexcept;
template status launch_init_workspace(gemm_plan<fp8> const&, workspace_view, cudaStream_t) noexcept;
template status launch_init_workspace(gemm_plan<dense16> const&, workspace_view,
                                      cudaStream_t) noexcept;
template status launch_gemm(gemm_plan<nvfp4> const&, gemm_args const&, workspace_view,
                            cudaStream_t) noexcept;
template status launch_gemm(gemm_plan<fp8> const&, gemm_args const&, workspace_view,
                            cudaStream_t) noexcept;
template status launch_gemm(gemm_plan<dense16> const&, gemm_args const&, workspace_view,
                            cudaStream_t) noexcept;

status launch_merge_candidates(merge_candidates_args const& args, cudaStream_t stream) noexcept {
  return merge_candidates(args, stream);
}

}  // namespace qpn::test
