// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"
#include "qpn/dequantize.cuh"
#include "qpn/detail/dense_panels.hpp"
#include "qpn/detail/gemm_epilogue.hpp"
#include "qpn/detail/launch.cuh"
#include "qpn/gemm.cuh"
#include "qpn/gemm_types.hpp"
#include "qpn/status.hpp"
#include "qpn/workspace.hpp"

namespace qpn {

/// The GEMM that gemm_dense asks of its caller, all in device memory, row-major:
///   y[m, n] = x[m, k] w[n, k]^T       summed in fp32, nothing else done to it
/// What cuBLAS, column-major, calls C[n, m] = op(A) B with A = w transposed, B = x, C = y.
struct dense_gemm {
  std::int64_t m = 0;
  std::int64_t n = 0;  ///< weight rows of this panel
  std::int64_t k = 0;
  void const* x = nullptr;  ///< f16 [m, k], the caller's own
  std::int64_t ldx = 0;
  void const* w = nullptr;  ///< f16 [n, k], 256-byte aligned
  std::int64_t ldw = 0;     ///< a multiple of 8
  float* y = nullptr;       ///< f32 [m, n], 256-byte aligned
  std::int64_t ldy = 0;     ///< a multiple of 64
};

namespace detail {

QPN_KERNEL __launch_bounds__(dense_epilogue_threads) void dense_epilogue_kernel(
    dense_epilogue_params const params) {
  sm70::device_lane lane{nullptr};
  dense_epilogue_program(lane, params);
}

/// One panel of weight rows of a checked call: dequantise, multiply, finish.
template <class Format, class GemmFn>
[[nodiscard]] static status run_panel(gemm_plan<Format> const& plan, gemm_args const& args,
                                      dense_panels const& panels, std::int64_t first_row,
                                      GemmFn& gemm_fn, cudaStream_t stream) {
  packed_layout const& layout = plan.layout;
  int const exponent = panel_exponent(layout.code_type);
  std::int64_t const left = layout.n - first_row;
  std::int64_t const rows = left < plan.panel_rows ? left : plan.panel_rows;

  dequantize_params weights;
  weights.weight = args.weight;
  weights.first_row = first_row;
  weights.rows = rows;
  weights.out = panels.weights;
  weights.ldo = panel_ldw(layout);
  weights.with_scales = false;
  weights.factor = bits_float(static_cast<std::uint32_t>(127 + exponent) << 23);
  if (status const checked = check_dequantize<Format>(weights); !checked.ok()) return checked;
  if (status const done = launch_dequantize<Format>(weights, stream); !done.ok()) return done;

  dense_gemm const product{args.m,         rows,        layout.k,    args.x,         args.ldx,
                           panels.weights, weights.ldo, panels.sums, plan.panel_rows};
  if (status const done = gemm_fn(product, stream); !done.ok()) return done;

  dense_epilogue_params sums;
  sums.sums = panels.sums;
  sums.ld = plan.panel_rows;
  sums.first_group = first_row / panel_unit;
  sums.groups = (rows - 1) / panel_unit + 1;
  sums.m = args.m;
  sums.epilogue = make_epilogue_params(plan, args, exponent);
  return launch_outcome(launch(&dense_epilogue_kernel,
                               static_cast<unsigned>(dense_epilogue_blocks(sums.groups, sums.m)),
                               dense_epilogue_threads, 0, stream, sums),
                        "gemm_dense: the launch of the epilogue failed",
                        "gemm_dense: this program was not compiled for the device's architecture");
}

}  // namespace detail

/// y as qpn::gemm computes it, for any m of the plan; many rows through dense panels: some weight
/// rows at a time become f16 in the workspace, a GEMM of the caller multiplies them, and an
/// epilogue kernel scales, adds and stores. The plan chooses: route(plan, m) is `dense` where its
/// problem offers dense_bytes and m is at least plan.dense_min_m, which is
/// gemm_problem::dense_min_m or, by the device, gemm_max_m + 1 where m8n8k4 is emulated or so many
/// rows have no kernel of their own, 2048 on Volta and 4096 on Hopper. All other calls are those of
/// qpn::gemm.
///
/// Panels hold the codes times their block scales, exact in f16 (bf16 weights times 2^8, exact
/// where qpn::gemm holds them exactly); fp32 scales act on the fp32 sums. y is rounded once.
///
/// Bits of a dense call: those of the caller's GEMM, so they may depend on m. Deterministic if it
/// is. gemm_fn must be stream-ordered and may be captured in a graph if it can; all else here can.
///
/// Compute capability 7.0 and newer; panels need no matrix instruction from this library.
/// @param workspace  of the plan, set up by init_workspace
/// @param gemm_fn    status(dense_gemm const&, cudaStream_t), called once a panel on this thread;
///                   what it returns, if not ok, is returned, and y is then undefined
/// @return as qpn::gemm, and what gemm_fn returns
template <class Format, class GemmFn>
[[nodiscard]] static status gemm_dense(gemm_plan<Format> const& plan, gemm_args const& args,
                                       workspace_view workspace, GemmFn&& gemm_fn,
                                       cudaStream_t stream) {
  if (!uses_panels(plan, args.m)) return gemm(plan, args, workspace, stream);
  if (status const checked = detail::check_gemm(plan, args, workspace); !checked.ok()) {
    return checked;
  }
  std::byte* const scratch =
      static_cast<std::byte*>(workspace.data) + detail::zero_bytes_of(plan, workspace);
  detail::dense_panels const panels =
      detail::place_panels(plan.layout, plan.problem.max_m, plan.panel_rows, scratch);
  for (std::int64_t row = 0; row < plan.layout.n; row += plan.panel_rows) {
    status const done = detail::run_panel(plan, args, panels, row, gemm_fn, stream);
    if (!done.ok()) return done;
  }
  if (args.census != nullptr) args.census->count(route(plan, args.m));
  return {};
}

}  // namespace qpn
