// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "qpn/arch/sm70/gemm_kernel.cuh"
#include "qpn/arch/sm70/gemm_params.hpp"
#include "qpn/arch/sm80/gemm_kernel.cuh"
#include "qpn/arch/sm80/gemm_params.hpp"
#include "qpn/arch/sm90/gemm_kernel.cuh"
#include "qpn/detail/launch.cuh"
#include "qpn/gemm_types.hpp"
#include "qpn/status.hpp"
#include "qpn/workspace.hpp"

namespace qpn {

namespace detail {

[[nodiscard]] static inline status gemm_outcome(cudaError_t error) noexcept {
  return launch_outcome(error, "gemm: the launch failed",
                        "gemm: this program was not compiled for the device's architecture");
}

template <class Operand, int RowTiles, class Format>
[[nodiscard]] static status launch_gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                                        workspace_view workspace, cudaStream_t stream) noexcept {
  sm70::gemm_params const params = sm70::make_gemm_params<Operand, RowTiles>(plan, args, workspace);
  return gemm_outcome(launch(&sm70::gemm_kernel<Operand, RowTiles>,
                             static_cast<unsigned>(params.split.ctas), sm70::threads_per_cta,
                             sm70::shared_layout<Operand, RowTiles>::bytes, stream, params));
}

template <class Operand, class Format>
[[nodiscard]] static status launch_row_tiles(gemm_plan<Format> const& plan, gemm_args const& args,
                                             workspace_view workspace,
                                             cudaStream_t stream) noexcept {
  return args.m > sm70::tile_m ? launch_gemm<Operand, 2>(plan, args, workspace, stream)
                               : launch_gemm<Operand, 1>(plan, args, workspace, stream);
}

template <class Operand, int RowTiles, class Format>
[[nodiscard]] static status launch_mma16(gemm_plan<Format> const& plan, gemm_args const& args,
                                         workspace_view workspace, cudaStream_t stream) noexcept {
  sm80::gemm_params const params = sm80::make_gemm_params<Operand>(plan, args, workspace);
  auto const launched = [&](void (*kernel)(sm80::gemm_params), int shared_bytes) {
    return gemm_outcome(launch_large(kernel, static_cast<unsigned>(params.runs.ctas),
                                     sm80::threads_per_cta, shared_bytes, params.overlap_previous,
                                     stream, params));
  };
  return plan.arch == gemm_arch::sm90
             ? launched(&sm90::gemm_kernel<Operand, RowTiles>,
                        sm80::ring_layout<Operand, RowTiles, sm90::gemm_policy>::bytes)
             : launched(&sm80::gemm_kernel<Operand, RowTiles>,
                        sm80::ring_layout<Operand, RowTiles, sm80::gemm_policy>::bytes);
}

template <class Operand, class Format>
[[nodiscard]] static status launch_mma16_rows(gemm_plan<Format> const& plan, gemm_args const& args,
                                              workspace_view workspace,
                                              cudaStream_t stream) noexcept {
  switch (method_of(args.m)) {
    case gemm_method::mt1: return launch_mma16<Operand, 1>(plan, args, workspace, stream);
    case gemm_method::mt2: return launch_mma16<Operand, 2>(plan, args, workspace, stream);
    case gemm_method::mt4: return launch_mma16<Operand, 4>(plan, args, workspace, stream);
    case gemm_method::mt8: return launch_mma16<Operand, 8>(plan, args, workspace, stream);
    case gemm_method::mt12: break;
  }
  return launch_mma16<Operand, 12>(plan, args, workspace, stream);
}

/// A checked call with rows, on layout sm70_quadpair.
template <class Format>
[[nodiscard]] static status launch_quadpair(gemm_plan<Format> const& plan, gemm_args const& args,
                                            workspace_view workspace,
                                            cudaStream_t stream) noexcept {
  using sm70::weight_operand;
  if constexpr (Format::id == format_id::nvfp4) {
    return launch_row_tiles<weight_operand<nvfp4, dtype::e2m1>>(plan, args, workspace, stream);
  } else if constexpr (Format::id == format_id::fp8) {
    return launch_row_tiles<weight_operand<fp8, dtype::e4m3>>(plan, args, workspace, stream);
  } else if (plan.layout.code_type == dtype::f16) {
    return launch_row_tiles<weight_operand<dense16, dtype::f16>>(plan, args, workspace, stream);
  } else {
    return launch_row_tiles<weight_operand<dense16, dtype::bf16>>(plan, args, workspace, stream);
  }
}

/// The same on layout sm80_mma16.
template <class Format>
[[nodiscard]] static status launch_mma16_format(gemm_plan<Format> const& plan,
                                                gemm_args const& args, workspace_view workspace,
                                                cudaStream_t stream) noexcept {
  using sm80::weight_operand;
  if constexpr (Format::id == format_id::nvfp4) {
    return launch_mma16_rows<weight_operand<nvfp4, dtype::e2m1>>(plan, args, workspace, stream);
  } else if constexpr (Format::id == format_id::fp8) {
    if (plan.layout.scale == scale_mode::block) {
      return launch_mma16_rows<weight_operand<fp8, dtype::e4m3, true>>(plan, args, workspace,
                                                                       stream);
    }
    return launch_mma16_rows<weight_operand<fp8, dtype::e4m3>>(plan, args, workspace, stream);
  } else if (plan.layout.code_type == dtype::f16) {
    return launch_mma16_rows<weight_operand<dense16, dtype::f16>>(plan, args, workspace, stream);
  } else {
    return launch_mma16_rows<weight_operand<dense16, dtype::bf16>>(plan, args, workspace, stream);
  }
}

}  // namespace detail

/// Sets the part of a workspace that must be 0 before its first call to 0, in stream order. Every
/// call leaves it so; after a launch that failed or was cut short, call this again.
/// @return workspace_too_small, misaligned; launch_failed with the CUDA error
template <class Format>
[[nodiscard]] static status init_workspace(gemm_plan<Format> const& plan, workspace_view workspace,
                                           cudaStream_t stream) noexcept {
  if (status const checked = detail::check_workspace(plan, workspace); !checked.ok()) {
    return checked;
  }
  std::size_t const zero_bytes = detail::zero_bytes_of(plan, workspace);
  return detail::launch_outcome(cudaMemsetAsync(workspace.data, 0, zero_bytes, stream),
                                "init_workspace: setting the workspace to 0 failed",
                                "init_workspace: setting the workspace to 0 failed");
}

/// y[m, n] = act(x[m, k] w[n, k]^T * scale + bias) + residual, w exactly as published.
///
/// For each row i and column j, with the fp32 scale of the weight's tile or row:
///   s = sum over k of x[i, k] * w'[j, k]        w' the codes times their block scales, exact in
///   f16 v = s * scale[j] + bias[j]                  in fp32 silu_gate: v = v / (1 + exp(-v)) * v'
///   v' the value 32 weight rows further on: the tiles
///                                               of 32 rows alternate between gate and up
///   y = v + residual                            rounded once to y_type, to nearest even; finite
///                                               values beyond f16 or bf16 by the overflow policy
///   argmax: the column of the largest v, the lowest of equal ones; NaN beats every number
/// The sums are those of the tensor cores in fp32: |error| <= 2 k 2^-24 sum |x w'|.
///
/// x: f16 [m, k], any stride and 2-byte alignment; it is read fastest where it is 16-byte aligned
/// and ldx a multiple of 8. k and n are any; the weight is padded, x is not. y may be the residual,
/// and neither x nor the weight.
///
/// Bits: a row of y depends on that row of x (and of the residual) and on the weight and its layout
/// only; not on m, on the row's place, on other rows, or on timing. NaN and infinities in x spread
/// to their row alone.
///
/// Stream-ordered; allocates and synchronises nothing; can be captured in a graph. Two calls that
/// may overlap need two workspaces. A workspace is set up once, by init_workspace, and serves calls
/// of one plan, one after another; with zero_bytes from workspace_needs, of several plans.
/// @return ok with nothing launched where m is 0; as detail::check_gemm: invalid_shape,
///         invalid_value, misaligned, workspace_too_small; not_compiled_for_arch; launch_failed
template <class Format>
[[nodiscard]] static status gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                                 workspace_view workspace, cudaStream_t stream) noexcept {
  status const checked = detail::check_gemm(plan, args, workspace);
  if (!checked.ok() || args.m == 0) return checked;
  status const launched = plan.layout.id == layout_id::sm80_mma16
                              ? detail::launch_mma16_format(plan, args, workspace, stream)
                              : detail::launch_quadpair(plan, args, workspace, stream);
  if (launched.ok() && args.census != nullptr) args.census->count(route(plan, args.m));
  return launched;
}

}  // namespace qpn
