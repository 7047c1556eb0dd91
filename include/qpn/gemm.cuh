// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "qpn/arch/program_code.cuh"
#include "qpn/arch/sm70/gemm_kernel.cuh"
#include "qpn/arch/sm70/gemm_params.hpp"
#include "qpn/arch/sm70/gemm_wide_kernel.cuh"
#include "qpn/arch/sm70/gemm_wide_params.hpp"
#include "qpn/arch/sm70/gemv_kernel.cuh"
#include "qpn/arch/sm80/bf16_operand.hpp"
#include "qpn/arch/sm80/gemm_kernel.cuh"
#include "qpn/arch/sm80/gemm_params.hpp"
#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm90/gemm_group_launch.cuh"
#include "qpn/arch/sm90/gemm_kernel.cuh"
#include "qpn/arch/sm90/gemm_wide_launch.cuh"
#include "qpn/detail/launch.cuh"
#include "qpn/detail/shared_carveout.hpp"
#include "qpn/dtype.hpp"
#include "qpn/gemm_types.hpp"
#include "qpn/status.hpp"
#include "qpn/workspace.hpp"
#include "qpn/x_fragments.hpp"

namespace qpn {

namespace detail {

[[nodiscard]] static inline status gemm_outcome(cudaError_t error) noexcept {
  return launch_outcome(error, "gemm: the launch failed",
                        "gemm: this program was not compiled for the device's architecture");
}

/// Launches a kernel that takes the parameters and the shared memory of so many row tiles.
template <class Operand, int RowTiles, class Format>
[[nodiscard]] static status launch_gemm(void (*kernel)(sm70::gemm_params),
                                        gemm_plan<Format> const& plan, gemm_args const& args,
                                        workspace_view workspace, cudaStream_t stream) noexcept {
  sm70::gemm_params const params = sm70::make_gemm_params<Operand, RowTiles>(plan, args, workspace);
  // Row blocks run fastest: those of one CTA read the same weights, all but the first from L2.
  dim3 const grid(static_cast<unsigned>(cut_rows<Format>(plan.layout, args.m).blocks),
                  static_cast<unsigned>(params.team_runs));
  return gemm_outcome(launch(kernel, grid, sm70::cta_shape<Operand, RowTiles>::threads,
                             sm70::shared_layout<Operand, RowTiles>::bytes, stream, params));
}

template <class Operand, int RowTiles, class Format>
[[nodiscard]] static status launch_gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                                        workspace_view workspace, cudaStream_t stream) noexcept {
  return launch_gemm<Operand, RowTiles>(&sm70::gemm_kernel<Operand, RowTiles>, plan, args,
                                        workspace, stream);
}

template <class Operand, int Rows, class Format>
[[nodiscard]] static status launch_gemv(gemm_plan<Format> const& plan, gemm_args const& args,
                                        workspace_view workspace, cudaStream_t stream) noexcept {
  return launch_gemm<Operand, 1>(&sm70::gemv_kernel<Operand, Rows>, plan, args, workspace, stream);
}

template <class Operand, int RowTiles, class Format>
[[nodiscard]] static status launch_gemm_wide(gemm_plan<Format> const& plan, gemm_args const& args,
                                             cudaStream_t stream) noexcept {
  sm70::gemm_wide_params const params = sm70::make_gemm_wide_params<Operand, RowTiles>(plan, args);
  return gemm_outcome(launch(&sm70::gemm_wide_kernel<Operand, RowTiles>,
                             static_cast<unsigned>(sm70::wide_ctas(plan.layout, args.m, RowTiles)),
                             sm70::wide_threads, sm70::wide_shared<RowTiles>::bytes, stream,
                             params));
}

/// Launches a kernel of layout sm80_mma16, of sm_80 or of sm_90.
template <class Operand, int RowTiles, bool Candidates, int Registers, int Halves,
          x_order Order = x_order::rows, class Format>
[[nodiscard]] static status launch_mma16(gemm_arch arch, gemm_plan<Format> const& plan,
                                         gemm_args const& args, workspace_view workspace,
                                         cudaStream_t stream) noexcept {
  sm80::gemm_params const params =
      sm80::make_gemm_params<Operand, RowTiles>(plan, args, workspace, Halves);
  dim3 const grid(static_cast<unsigned>(row_blocks(args.m, RowTiles)),
                  static_cast<unsigned>(params.ctas));
  int const threads = params.split.slices * warp_lanes;
  int const shared_bytes = sm80::shared_layout<RowTiles>::bytes(params.split.slices);
  if (arch == gemm_arch::sm80) {
    auto const kernel = &sm80::gemm_kernel<Operand, RowTiles, Candidates, Registers, Halves, Order>;
    return gemm_outcome(launch(kernel, grid, threads, shared_bytes, stream, params));
  }
  auto const kernel = &sm90::gemm_kernel<Operand, RowTiles, Candidates, Registers, Halves, Order>;
  if (!args.overlap_previous) {
    return gemm_outcome(launch(kernel, grid, threads, shared_bytes, stream, params));
  }
  int const carveout = shared_carveout(sm80::resident_ctas(Registers, params.split.slices),
                                       shared_bytes, plan.shared_bytes_per_sm);
  return gemm_outcome(
      launch(kernel, grid, threads, shared_bytes, {true, carveout}, stream, params));
}

/// The same without candidates.
/// @param registers  one of the policy's choices, at or behind Choice
template <class Operand, int RowTiles, int Halves, x_order Order, int Choice = 0, class Format>
[[nodiscard]] static status launch_mma16_with(int registers, gemm_arch arch,
                                              gemm_plan<Format> const& plan, gemm_args const& args,
                                              workspace_view workspace,
                                              cudaStream_t stream) noexcept {
  constexpr sm80::register_choices choices =
      sm80::gemm_policy<Operand, RowTiles>::choices_of(Halves);
  if constexpr (Choice + 1 < choices.count) {
    if (registers != choices.values[Choice]) {
      return launch_mma16_with<Operand, RowTiles, Halves, Order, Choice + 1>(
          registers, arch, plan, args, workspace, stream);
    }
  }
  return launch_mma16<Operand, RowTiles, false, choices.values[Choice], Halves, Order>(
      arch, plan, args, workspace, stream);
}

template <class Operand, int RowTiles, class Format>
[[nodiscard]] static status launch_mma16(gemm_arch arch, gemm_plan<Format> const& plan,
                                         gemm_args const& args, workspace_view workspace,
                                         cudaStream_t stream) noexcept {
  using policy = sm80::gemm_policy<Operand, RowTiles>;
  if (plan.problem.candidates != 0) {
    return launch_mma16<Operand, RowTiles, true, policy::registers, 2>(arch, plan, args, workspace,
                                                                       stream);
  }
  sm80::launch_form const form = sm80::form_of<Operand, RowTiles>(plan, args);
  return sm80::visit_form<Operand, RowTiles>(form, args.order, [&](auto halves, auto order) {
    return launch_mma16_with<Operand, RowTiles, decltype(halves)::value, decltype(order)::value>(
        form.registers, arch, plan, args, workspace, stream);
  });
}

/// @param fit  from fit_mma16_route
template <class Operand, class Format>
[[nodiscard]] static status launch_mma16(gemm_route fit, gemm_plan<Format> const& plan,
                                         gemm_args const& args, workspace_view workspace,
                                         cudaStream_t stream) noexcept {
  switch (fit.method) {
    case gemm_method::mt1: return launch_mma16<Operand, 1>(fit.arch, plan, args, workspace, stream);
    case gemm_method::mt2: return launch_mma16<Operand, 2>(fit.arch, plan, args, workspace, stream);
    // Plans have no kernels over wgmma for the other operands.
    case gemm_method::group:
      if constexpr (Operand::format::code_bits <= 8 && !Operand::block_scales) {
        return gemm_outcome(sm90::launch_gemm_groups<Operand>(plan, args, workspace, stream));
      }
      break;
    case gemm_method::wide:
      if constexpr (Operand::format::code_bits <= 8 && !Operand::block_scales) {
        return gemm_outcome(sm90::launch_gemm_wide<Operand>(plan, args, workspace, stream));
      }
      break;
    default: break;
  }
  return launch_mma16<Operand, 4>(fit.arch, plan, args, workspace, stream);
}

template <dtype XType, class Format>
[[nodiscard]] static status launch_mma16(gemm_route fit, gemm_plan<Format> const& plan,
                                         gemm_args const& args, workspace_view workspace,
                                         cudaStream_t stream) noexcept {
  using sm80::bf16_operand;
  using sm80::weight_operand;
  auto const with = [&](auto operand) {
    return launch_mma16<decltype(operand)>(fit, plan, args, workspace, stream);
  };
  bool const block_scales = plan.layout.scale == scale_mode::block;
  if constexpr (XType == dtype::bf16 && Format::id == format_id::fp8) {
    return block_scales ? with(bf16_operand<fp8, true>{}) : with(bf16_operand<fp8>{});
  } else if constexpr (XType == dtype::bf16) {
    return with(bf16_operand<Format>{});
  } else if constexpr (Format::id == format_id::nvfp4) {
    return with(weight_operand<nvfp4, dtype::e2m1>{});
  } else if constexpr (Format::id == format_id::fp8) {
    return block_scales ? with(weight_operand<fp8, dtype::e4m3, true>{})
                        : with(weight_operand<fp8, dtype::e4m3>{});
  } else {
    return plan.layout.code_type == dtype::f16 ? with(weight_operand<dense16, dtype::f16>{})
                                               : with(weight_operand<dense16, dtype::bf16>{});
  }
}

/// A call whose cut has up to four row tiles.
template <class Operand, class Format>
[[nodiscard]] static status launch_few_tiles(gemm_plan<Format> const& plan, gemm_args const& args,
                                             workspace_view workspace,
                                             cudaStream_t stream) noexcept {
  switch (cut_rows<Format>(plan.layout, args.m).row_tiles) {
    case 1: return launch_gemm<Operand, 1>(plan, args, workspace, stream);
    case 2: return launch_gemm<Operand, 2>(plan, args, workspace, stream);
    default: return launch_gemm<Operand, 4>(plan, args, workspace, stream);
  }
}

template <class Operand, class Format>
[[nodiscard]] static status launch_operand(gemm_plan<Format> const& plan, gemm_args const& args,
                                           workspace_view workspace, cudaStream_t stream) noexcept {
  gemm_method const method = route(plan, args.m).method;
  if (method == gemm_method::simt) {
    return args.m == 1   ? launch_gemv<Operand, 1>(plan, args, workspace, stream)
           : args.m == 2 ? launch_gemv<Operand, 2>(plan, args, workspace, stream)
                         : launch_gemv<Operand, 3>(plan, args, workspace, stream);
  }
  if (method == gemm_method::wide) {
    return sm70::wide_row_tiles(plan, args.m) == 8
               ? launch_gemm_wide<Operand, 8>(plan, args, stream)
               : launch_gemm_wide<Operand, 4>(plan, args, stream);
  }
  if constexpr (Format::id != format_id::dense16) {
    if (method == gemm_method::mt8) return launch_gemm<Operand, 8>(plan, args, workspace, stream);
    if (method == gemm_method::mt12) return launch_gemm<Operand, 12>(plan, args, workspace, stream);
  }
  return launch_few_tiles<Operand>(plan, args, workspace, stream);
}

/// Launches a kernel of layout sm70_quadpair.
template <class Format>
[[nodiscard]] static status launch_quadpair(gemm_plan<Format> const& plan, gemm_args const& args,
                                            workspace_view workspace,
                                            cudaStream_t stream) noexcept {
  using sm70::weight_operand;
  if constexpr (Format::id == format_id::nvfp4) {
    return launch_operand<weight_operand<nvfp4, dtype::e2m1>>(plan, args, workspace, stream);
  } else if constexpr (Format::id == format_id::fp8) {
    return plan.layout.scale == scale_mode::block
               ? launch_few_tiles<sm70::block_scaled_fp8>(plan, args, workspace, stream)
               : launch_operand<weight_operand<fp8, dtype::e4m3>>(plan, args, workspace, stream);
  } else if (plan.layout.code_type == dtype::f16) {
    return launch_operand<weight_operand<dense16, dtype::f16>>(plan, args, workspace, stream);
  } else {
    return launch_operand<weight_operand<dense16, dtype::bf16>>(plan, args, workspace, stream);
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
///   s = sum over k of x[i, k] * w'[j, k]     w' the codes times their block scales, exact in f16
///                                            and in bf16;
///                                            fp8 with 128 x 128 block scales: fp32 sums over 32 k
///                                            of the codes, times their scale in fp32 FMAs
///   v = s * scale[j] + bias[j]               in fp32
///   silu_gate: v = v / (1 + exp(-v)) * v'    v' the value 32 weight rows further on: the tiles of
///                                            32 rows alternate between gate and up
///   y = v + residual                         rounded once to y_type, to nearest even; finite
///                                            values beyond f16 or bf16 by the overflow policy
///   candidates: the first_id + j below id_limit with the largest v, as a list of candidates.hpp:
///                                            lower ids first among equal v, NaN before all
///
/// The sums are those of the tensor cores in fp32: |error| <= 2 k 2^-24 sum |x w'|; in a plan with
/// gemm_algorithm::simt those of fp32 FMAs: |error| <= k 2^-24 sum |x w'|.
///
/// x: XType [m, k], f16 or bf16, the x_type of the plan's problem; any stride and 2-byte alignment;
/// it is read fastest where it is 16-byte aligned and ldx a multiple of 8, and faster still in
/// fragment order where takes_fragments says so (gemm_args::order). k and n are any; the weight is
/// padded, x is not. y may be the residual, and neither x nor the weight.
///
/// Bits: a row of y depends on that row of x (and of the residual), on the weight and its layout
/// and on the plan's algorithm only; not on the row's place, on other rows, or on timing; and not
/// on m as long as m stays on one side of gemm_max_m. Beyond it another kernel adds in another
/// order, on sm_90 in one that also depends on m, and so does simt. NaN and infinities in x spread
/// to their row alone.
///
/// Where m is above gemm_max_m the workspace must be as large; kernels of sm_70 do not use it,
/// those of sm_90 order x in it, by warpgroups for fewer rows, too. With fp8 and block scales on
/// layout sm70_quadpair such calls are launches of gemm_max_m rows each, one after another, which
/// count in the census one by one; on sm80_mma16 those weights, 16-bit ones, and all on GPUs
/// without wgmma take one launch of more row blocks. Both keep a row's bits beyond gemm_max_m, too.
/// Calls that the plan sends through dequantised panels (gemm_problem::dense_bytes) are for
/// gemm_dense.
///
/// A program without code for sm_90a runs what the plan gives to warpgroups with the kernels of
/// m16n8k16, in the same bits; one with nothing newer than PTX for sm_80 runs that. The census
/// counts what ran, and a fallback.
///
/// Stream-ordered; allocates and synchronises nothing; can be captured in a graph. Two calls that
/// may overlap need two workspaces. A workspace is set up once, by init_workspace, and serves calls
/// of one plan, one after another; with zero_bytes from workspace_needs, of several plans.
/// @return ok with nothing launched where m is 0; as detail::check_gemm: invalid_shape,
///         invalid_value, misaligned, workspace_too_small, and unsupported_format for x in fragment
///         order where no kernel reads it; invalid_value where the plan's route of
///         m is dense, or its x_type is not XType; not_compiled_for_arch: the program has no code
///         for the device, or lacks that for sm_90a and m is above gemm_max_m; launch_failed
template <dtype XType, class Format>
[[nodiscard]] static status gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                                 workspace_view workspace, cudaStream_t stream) noexcept {
  static_assert(XType == dtype::f16 || XType == dtype::bf16, "x is f16 or bf16");
  if (plan.problem.x_type != XType) {
    return {status_code::invalid_value, 0,
            "gemm: the plan's x has another type: f16 is for gemm, bf16 for gemm<dtype::bf16>"};
  }
  status const checked = detail::check_gemm(plan, args, workspace);
  if (!checked.ok() || args.m == 0) return checked;
  if (uses_panels(plan, args.m)) {
    return {status_code::invalid_value, 0,
            "gemm: the plan sends so many rows through dequantised panels, call gemm_dense"};
  }
  if (detail::is_sliced(plan.layout, args.m)) {
    for (std::int64_t first = 0; first < args.m; first += gemm_max_m) {
      status const done =
          gemm<XType>(plan, detail::slice_rows(plan, args, first), workspace, stream);
      if (!done.ok()) return done;
    }
    return {};
  }
  gemm_route const planned = route(plan, args.m);
  gemm_route taken = planned;
  status launched;
  if (plan.layout.id == layout_id::sm80_mma16) {
    detail::program_code code;
    if (status const asked = detail::ask_program_code(code); !asked.ok()) return asked;
    if (status const fit = detail::fit_mma16_route(plan, args.m, code, taken); !fit.ok()) {
      return fit;
    }
    launched = detail::launch_mma16<XType>(taken, plan, args, workspace, stream);
  } else if constexpr (XType == dtype::f16) {
    launched = detail::launch_quadpair(plan, args, workspace, stream);
  } else {  // of a plan that make_gemm_plan did not make
    return {status_code::unsupported_arch, 0, "gemm: x in bf16 needs layout sm80_mma16"};
  }
  if (launched.ok() && args.census != nullptr) args.census->count(taken, planned);
  return launched;
}

/// The same with x in f16.
template <class Format>
[[nodiscard]] static status gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                                 workspace_view workspace, cudaStream_t stream) noexcept {
  return gemm<dtype::f16>(plan, args, workspace, stream);
}

}  // namespace qpn
