// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <qpn/gemm_types.hpp>
#include <qpn/status.hpp>
#include <qpn/workspace.hpp>

namespace qpn::test {

/// qpn::gemm_dense with a GEMM that adds in the order of k; for nvfp4, fp8 and dense16.
template <class Format>
[[nodiscard]] status launch_gemm_dense(gemm_plan<Format> const& plan, gemm_args const& args,
                                       workspace_view workspace, cudaStream_t stream) noexcept;

/// The same with a GEMM that fails on its second panel; `calls` counts them.
[[nodiscard]] status launch_failing_gemm_dense(gemm_plan<nvfp4> const& plan, gemm_args const& args,
                                               workspace_view workspace, int& calls) noexcept;

}  // namespace qpn::test
