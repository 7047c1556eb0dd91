// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "qpn/arch/sm90/gemm_group_kernel.cuh"
#include "qpn/arch/sm90/gemm_group_params.hpp"
#include "qpn/arch/sm90/gemm_wide_kernel.cuh"
#include "qpn/detail/launch.cuh"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm90 {

template <class Operand, int Rows, int Groups>
[[nodiscard]] static cudaError_t launch_groups(group_params const& params,
                                               cudaStream_t stream) noexcept {
  using shared = group_shared<Operand, Rows, Groups>;
  auto const* const kernel =
      reinterpret_cast<void const*>(&gemm_group_kernel<Operand, Rows, Groups>);
  cudaError_t const allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared::bytes);
  if (allowed != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
    return allowed;
  }
  auto const slices = static_cast<unsigned>(params.gemm.split.slices);
  auto const clusters = static_cast<unsigned>((params.gemm.strips - 1) / shared::strips + 1);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {slices, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(clusters * slices);
  config.blockDim = dim3(shared::threads);
  config.dynamicSmemBytes = shared::bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  group_params copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

/// A checked call with up to gemm_max_m rows, on a device that has_wide. The GEMM does not start
/// before x is ordered: clusters that find some multiprocessors free and others not end up side by
/// side on a few.
template <class Operand, class Format>
[[nodiscard]] static cudaError_t launch_gemm_groups(gemm_plan<Format> const& plan,
                                                    gemm_args const& args, workspace_view workspace,
                                                    cudaStream_t stream) noexcept {
  order_params const order = make_group_order_params(plan, args, workspace);
  auto const blocks = static_cast<unsigned>((order.chunks - 1) / order_threads + 1);
  cudaError_t const ordered =
      launch(&order_rows_kernel<Operand>, blocks, order_threads, 0, stream, order);
  if (ordered != cudaSuccess) return ordered;
  group_params const params = make_group_params<Operand>(plan, args, workspace);
  group_shape const shape = choose_group_shape(plan.layout, args.m, plan.sm_count);
  if (shape.rows == 32) return launch_groups<Operand, 32, 1>(params, stream);
  if (shape.rows == 64) {
    return shape.groups == 1 ? launch_groups<Operand, 64, 1>(params, stream)
                             : launch_groups<Operand, 64, 2>(params, stream);
  }
  return shape.groups == 1 ? launch_groups<Operand, 96, 1>(params, stream)
                           : launch_groups<Operand, 96, 3>(params, stream);
}

}  // namespace qpn::detail::sm90
