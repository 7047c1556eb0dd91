// SPDX-License-Identifier: Apache-2.0
#include "gpu/gemm_code_launch.hpp"

#include "qpn/gemm.cuh"

// Compiled once for each architecture that the tests of missing device code ask for.

namespace qpn::test {

template <int Arch>
status launch_with_code_for(gemm_plan<nvfp4> const& plan, gemm_args const& args,
                            workspace_view workspace, cudaStream_t stream) noexcept {
  return gemm<dtype::bf16>(plan, args, workspace, stream);
}

template status launch_with_code_for<QPN_TEST_CODE_ARCH>(gemm_plan<nvfp4> const&, gemm_args const&,
                                                         workspace_view, cudaStream_t) noexcept;

}  // namespace qpn::test
