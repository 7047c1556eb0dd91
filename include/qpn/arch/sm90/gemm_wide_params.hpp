// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm90/gemm_wide_plan.hpp"
#include "qpn/arch/sm90/gemm_wide_shape.hpp"
#include "qpn/detail/alignment.hpp"
#include "qpn/detail/gemm_epilogue.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm90 {

/// Where x is ordered: behind the part of the workspace that is 0 between calls.
template <class Format>
[[nodiscard]] std::byte* ordered_x_of(gemm_plan<Format> const& plan,
                                      workspace_view workspace) noexcept {
  return static_cast<std::byte*>(workspace.data) + zero_bytes_of(plan, workspace);
}

template <class Format>
[[nodiscard]] order_params make_order_params(gemm_plan<Format> const& plan, gemm_args const& args,
                                             workspace_view workspace) noexcept {
  order_params p;
  p.x = static_cast<std::uint16_t const*>(args.x);
  p.ldx = args.ldx;
  p.k = plan.layout.k;
  p.m = args.m;
  p.padded_m = wide_padded_m(args.m);
  p.chunks = wide_steps(plan.layout) * p.padded_m * 8;
  p.x_by_pairs = args.ldx % 2 == 0 && is_aligned_to(4, args.x);
  p.ordered_x = ordered_x_of(plan, workspace);
  return p;
}

/// How y of a call can be stored.
template <class Format>
[[nodiscard]] wide_output wide_output_of(gemm_plan<Format> const& plan,
                                         gemm_args const& args) noexcept {
  std::int64_t const columns = columns_of_y(plan);
  if (plan.problem.y_type != dtype::f32) {
    bool const by_words = args.residual == nullptr && is_aligned_to(16, args.y) &&
                          args.ldy % 8 == 0 && columns % 8 == 0;
    return by_words ? wide_output::halves : wide_output::elements;
  }
  bool const by_quads =
      is_aligned_to(16, args.y) && args.ldy % 4 == 0 && columns % 4 == 0 &&
      (args.residual == nullptr || (is_aligned_to(16, args.residual) && args.ld_residual % 4 == 0));
  return by_quads ? wide_output::floats : wide_output::elements;
}

/// The kernel's parameters of a checked call with at least one row, for all of its tiles.
template <class Operand, class Format>
[[nodiscard]] gemm_wide_params make_gemm_wide_params(gemm_plan<Format> const& plan,
                                                     gemm_args const& args,
                                                     workspace_view workspace, int rows) noexcept {
  packed_layout const& layout = plan.layout;
  gemm_wide_params p;
  p.records = args.weight.data + layout.codes_offset;
  p.strips = static_cast<int>(layout.padded_n / tile_n);
  p.record_steps = static_cast<int>(layout.padded_k / Operand::record_k);
  p.steps = static_cast<int>(wide_steps(layout));
  p.row_tiles = static_cast<int>((args.m - 1) / rows + 1);
  p.end_tile = static_cast<int>(wide_tiles(layout, args.m, rows));
  p.m = static_cast<int>(args.m);
  p.padded_m = static_cast<int>(wide_padded_m(args.m));
  p.ordered_x = ordered_x_of(plan, workspace);
  p.output = wide_output_of(plan, args);
  p.epilogue = make_epilogue_params(plan, args, Operand::half_exponent);
  return p;
}

}  // namespace qpn::detail::sm90
