// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "qpn/arch/sm90/cluster_launch.cuh"
#include "qpn/arch/sm90/gemm_wide_kernel.cuh"
#include "qpn/arch/sm90/gemm_wide_params.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm90 {

/// Launches the GEMM of so many rows of x a tile, as soon as the kernel before allows it: the one
/// that orders x, or the launch of the tiles before.
template <class Operand, int Rows>
[[nodiscard]] static cudaError_t launch_tiles(gemm_wide_params const& params, int ranks,
                                              std::int32_t sm_count, cudaStream_t stream) noexcept {
  int const most = sm_count / ranks < 1 ? 1 : sm_count / ranks;
  int const tiles = params.end_tile - params.first_tile;
  int const clusters = tiles < most ? tiles : most;
  return launch_clusters(&gemm_wide_kernel<Operand, Rows>, static_cast<unsigned>(clusters),
                         static_cast<unsigned>(ranks), wide_threads,
                         wide_shared<Operand, Rows>::bytes, true, stream, params);
}

/// A checked call with rows beyond gemm_max_m, on a device that has_wide.
template <class Operand, class Format>
[[nodiscard]] static cudaError_t launch_gemm_wide(gemm_plan<Format> const& plan,
                                                  gemm_args const& args, workspace_view workspace,
                                                  cudaStream_t stream) noexcept {
  cudaError_t const ordered =
      launch_order<Operand>(make_order_params(plan, args, workspace), stream);
  if (ordered != cudaSuccess) return ordered;
  gemm_choice const choice = choice_of(plan, args.m);
  wide_shape const shape = wide_shape_of(plan.layout, args.m, plan.sm_count, choice.rows,
                                         choice.ranks, choice.tail_ranks);
  gemm_wide_params params = make_gemm_wide_params<Operand>(plan, args, workspace, shape.rows);
  auto const launch_part = [&](int ranks) {
    return shape.rows == 128 ? launch_tiles<Operand, 128>(params, ranks, plan.sm_count, stream)
                             : launch_tiles<Operand, 96>(params, ranks, plan.sm_count, stream);
  };
  int const end = params.end_tile;
  params.end_tile = end - shape.tail_tiles;
  cudaError_t const launched = launch_part(shape.ranks);
  if (launched != cudaSuccess || shape.tail_tiles == 0) return launched;
  params.first_tile = params.end_tile;
  params.end_tile = end;
  return launch_part(shape.tail_ranks);
}

}  // namespace qpn::detail::sm90
