// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <qpn/format.hpp>
#include <qpn/gemm_types.hpp>
#include <qpn/status.hpp>
#include <qpn/workspace.hpp>

namespace qpn::test {

/// qpn::gemm<dtype::bf16> of a translation unit that has device code for one architecture alone:
/// 89 machine code of sm_89, 80 PTX of sm_80, 90 sm_90 without the a.
template <int Arch>
[[nodiscard]] status launch_with_code_for(gemm_plan<nvfp4> const& plan, gemm_args const& args,
                                          workspace_view workspace, cudaStream_t stream) noexcept;

}  // namespace qpn::test
