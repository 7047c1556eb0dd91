// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <qpn/device_info.hpp>
#include <qpn/format.hpp>
#include <qpn/gemm_types.hpp>
#include <qpn/prepack.hpp>
#include <qpn/prepack_report.hpp>
#include <qpn/status.hpp>
#include <qpn/workspace.hpp>

// What the library has for nvcc alone, as plain functions for nvfp4 and fp8: every kernel is
// compiled once, and the benchmarks themselves by the host's compiler.

namespace qpn::bench {

/// qpn::query_device_info of device 0, which the benchmarks run on.
[[nodiscard]] status query_bench_device(device_info& out) noexcept;

/// "CUDA 13.0.88"
[[nodiscard]] char const* nvcc_release() noexcept;

template <class Format>
[[nodiscard]] status call_init_workspace(gemm_plan<Format> const& plan, workspace_view workspace,
                                         cudaStream_t stream) noexcept;

template <class Format>
[[nodiscard]] status call_gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                               workspace_view workspace, cudaStream_t stream) noexcept;

/// qpn::prepack_rows of a whole weight, published in device memory, after init_prepack_report.
template <class Format>
[[nodiscard]] status call_prepack(packed_layout const& layout, weight_part const& published,
                                  std::byte* out, prepack_report* report,
                                  cudaStream_t stream) noexcept;

/// qpn::dequantize of a whole weight: f16 [n, k] without gaps.
template <class Format>
[[nodiscard]] status call_dequantize(packed_weight const& weight, void* out,
                                     cudaStream_t stream) noexcept;

}  // namespace qpn::bench
