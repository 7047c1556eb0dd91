// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm70 {

/// The kernel's parameters of a checked call with at least one row.
template <class Operand, int RowTiles, class Format>
[[nodiscard]] gemm_params make_gemm_params(gemm_plan<Format> const& plan, gemm_args const& args,
                                           workspace_view workspace) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  static_assert(shape::teams == 1 || shape::block_m == row_block_m, "the workspace counts on it");
  packed_layout const& layout = plan.layout;
  gemm_params p;
  p.records = args.weight.data + layout.codes_offset;
  p.split = split_of<Format>(layout);
  if (shape::teams > 1 && p.split.halves_alike()) p.team_runs = p.split.ctas / 2;
  p.x = static_cast<std::uint16_t const*>(args.x);
  p.ldx = args.ldx;
  p.k = layout.k;
  p.m = static_cast<int>(args.m);
  p.x_by_words = args.ldx % 8 == 0 && is_aligned_to(16, args.x);

  gemm_workspace const placed = place_workspace(
      p.split, plan.problem.max_m, static_cast<std::byte*>(workspace.data), workspace.zero_bytes);
  p.planes = placed.planes;
  p.tickets = placed.tickets;
  p.argmax_ticket = placed.argmax_ticket;
  p.argmax_keys = placed.argmax_keys;
  p.argmax_ids = args.argmax_ids;
  p.argmax_values = args.argmax_values;

  epilogue_params& e = p.epilogue;
  e.n = layout.n;
  e.scales = layout.scale == scale_mode::none
                 ? nullptr
                 : reinterpret_cast<float const*>(args.weight.data + layout.scales_offset);
  e.scale = layout.scale;
  e.code_scale = bits_float(static_cast<std::uint32_t>(127 - Operand::half_exponent) << 23);
  e.bias = args.bias;
  e.residual = args.residual;
  e.ld_residual = args.ld_residual;
  e.residual_type = args.residual_type;
  e.y = args.y;
  e.ldy = args.ldy;
  e.y_type = plan.problem.y_type;
  e.overflow = plan.problem.overflow;
  e.act = plan.problem.act;
  e.argmax = plan.problem.argmax;
  e.argmax_n = args.argmax_n == 0 ? layout.n : args.argmax_n;
  return p;
}

/// CTAs of a launch for each row block.
[[nodiscard]] constexpr std::int32_t launch_ctas(gemm_params const& p) noexcept {
  return p.team_runs != 0 ? p.team_runs : p.split.ctas;
}

}  // namespace qpn::detail::sm70
