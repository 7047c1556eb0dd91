// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm80/gemm_params.hpp"
#include "qpn/arch/sm90/gemm_group_plan.hpp"
#include "qpn/arch/sm90/gemm_group_shape.hpp"
#include "qpn/arch/sm90/gemm_wide_params.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm90 {

/// How x of a checked call is ordered: in whole batches.
template <class Format>
[[nodiscard]] order_params make_group_order_params(gemm_plan<Format> const& plan,
                                                   gemm_args const& args,
                                                   workspace_view workspace) noexcept {
  order_params p = make_order_params(plan, args, workspace);
  p.chunks = group_steps(plan.layout) * p.padded_m * 8;
  return p;
}

/// The kernel's parameters of a checked call with at least one row.
template <class Operand, class Format>
[[nodiscard]] group_params make_group_params(gemm_plan<Format> const& plan, gemm_args const& args,
                                             workspace_view workspace) noexcept {
  group_params p;
  p.gemm = sm80::make_gemm_params<Operand, 4>(plan, args, workspace);
  p.ordered_x = ordered_x_of(plan, workspace);
  p.padded_m = static_cast<int>(wide_padded_m(args.m));
  p.output = wide_output_of(plan, args);
  // Only the general code rounds to bf16 as the kernels for fewer rows do.
  if (plan.problem.y_type == dtype::bf16) p.output = wide_output::elements;
  return p;
}

}  // namespace qpn::detail::sm90
