// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <qpn/candidates.hpp>
#include <qpn/device_info.hpp>
#include <qpn/format.hpp>
#include <qpn/gemm_types.hpp>
#include <qpn/status.hpp>
#include <qpn/workspace.hpp>

// What the library has for nvcc alone, as plain functions for tests that g++ compiles: gtest costs
// nvcc several seconds a unit.

namespace qpn::test {

/// query_device_info of device 0, which the tests run on.
[[nodiscard]] status query_test_device(device_info& out) noexcept;

/// qpn::init_workspace; for nvfp4, fp8 and dense16.
template <class Format>
[[nodiscard]] status launch_init_workspace(gemm_plan<Format> const& plan, workspace_view workspace,
                                           cudaStream_t stream) noexcept;

/// qpn::gemm; for nvfp4, fp8 and dense16.
template <class Format>
[[nodiscard]] status launch_gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                                 workspace_view workspace, cudaStream_t stream) noexcept;

/// qpn::gemm<dtype::bf16>, in a unit of its own: nvcc takes as long for its kernels as for the
/// others.
template <class Format>
[[nodiscard]] status launch_gemm_bf16(gemm_plan<Format> const& plan, gemm_args const& args,
                                      workspace_view workspace, cudaStream_t stream) noexcept;

/// qpn::merge_candidates on the GPU.
[[nodiscard]] status launch_merge_candidates(merge_candidates_args const& args,
                                             cudaStream_t stream) noexcept;

}  // namespace qpn::test
