// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "qpn/arch/sm90/cluster_launch.cuh"
#include "qpn/arch/sm90/gemm_group_kernel.cuh"
#include "qpn/arch/sm90/gemm_group_params.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm90 {

template <class Operand, int Rows, int Groups>
[[nodiscard]] static cudaError_t launch_groups(group_params const& params,
                                               cudaStream_t stream) noexcept {
  using shared = group_shared<Operand, Rows, Groups>;
  auto const slices = static_cast<unsigned>(params.gemm.split.slices);
  auto const clusters = static_cast<unsigned>((params.gemm.strips - 1) / shared::strips + 1);
  return launch_clusters(&gemm_group_kernel<Operand, Rows, Groups>, clusters, slices,
                         shared::threads, shared::bytes, false, stream, params);
}

/// A checked call with up to gemm_max_m rows, on a device that has_wide. The GEMM does not start
/// before x is ordered: clusters that find some multiprocessors free and others not end up side by
/// side on a few.
template <class Operand, class Format>
[[nodiscard]] static cudaError_t launch_gemm_groups(gemm_plan<Format> const& plan,
                                                    gemm_args const& args, workspace_view workspace,
                                                    cudaStream_t stream) noexcept {
  cudaError_t const ordered =
      launch_order<Operand>(make_group_order_params(plan, args, workspace), stream);
  if (ordered != cudaSuccess) return ordered;
  group_params const params = make_group_params<Operand>(plan, args, workspace);
  gemm_choice const shape = choice_of(plan, args.m);
  if (shape.rows == 32) return launch_groups<Operand, 32, 1>(params, stream);
  if (shape.rows == 64) {
    return shape.groups == 1 ? launch_groups<Operand, 64, 1>(params, stream)
                             : launch_groups<Operand, 64, 2>(params, stream);
  }
  return shape.groups == 1 ? launch_groups<Operand, 96, 1>(params, stream)
                           : launch_groups<Operand, 96, 3>(params, stream);
}

}  // namespace qpn::detail::sm90
