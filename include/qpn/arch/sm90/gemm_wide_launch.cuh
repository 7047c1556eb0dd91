// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "qpn/arch/sm90/gemm_wide_kernel.cuh"
#include "qpn/arch/sm90/gemm_wide_params.hpp"
#include "qpn/detail/launch.cuh"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm90 {

/// Launches the GEMM of so many rows of x a tile, as soon as the kernel that orders x allows it.
template <class Operand, int Rows>
[[nodiscard]] static cudaError_t launch_tiles(gemm_wide_params const& params, int ranks,
                                              std::int32_t sm_count, cudaStream_t stream) noexcept {
  auto const* const kernel = reinterpret_cast<void const*>(&gemm_wide_kernel<Operand, Rows>);
  constexpr int shared_bytes = wide_shared<Operand, Rows>::bytes;
  cudaError_t const allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (allowed != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
    return allowed;
  }
  int const most = sm_count / ranks < 1 ? 1 : sm_count / ranks;
  int const clusters = params.tiles < most ? params.tiles : most;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(ranks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * ranks));
  config.blockDim = dim3(wide_threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = ranks > 1 ? 2 : 1;
  gemm_wide_params copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

/// A checked call with rows beyond gemm_max_m, on a device that has_wide.
template <class Operand, class Format>
[[nodiscard]] static cudaError_t launch_gemm_wide(gemm_plan<Format> const& plan,
                                                  gemm_args const& args, workspace_view workspace,
                                                  cudaStream_t stream) noexcept {
  order_params const order = make_order_params(plan, args, workspace);
  auto const blocks = static_cast<unsigned>((order.chunks - 1) / order_threads + 1);
  cudaError_t const ordered =
      launch(&order_rows_kernel<Operand>, blocks, order_threads, 0, stream, order);
  if (ordered != cudaSuccess) return ordered;
  wide_shape const shape = choose_wide_shape(plan.layout, args.m, plan.sm_count);
  gemm_wide_params const params = make_gemm_wide_params<Operand>(plan, args, workspace, shape.rows);
  return shape.rows == 128 ? launch_tiles<Operand, 128>(params, shape.ranks, plan.sm_count, stream)
                           : launch_tiles<Operand, 96>(params, shape.ranks, plan.sm_count, stream);
}

}  // namespace qpn::detail::sm90
