// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/detail/gemm_epilogue.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm70 {

/// The kernel's parameters of a checked call with at least one row.
template <class Operand, int RowTiles, class Format>
[[nodiscard]] gemm_params make_gemm_params(gemm_plan<Format> const& plan, gemm_args const& args,
                                           workspace_view workspace) noexcept {
  using shape = cta_shape<Operand, RowTiles>;
  packed_layout const& layout = plan.layout;
  gemm_params p;
  p.records = args.weight.data + layout.codes_offset;
  p.split = split_of<Format>(layout);
  p.team_runs = p.split.ctas / shape::teams;
  p.x = static_cast<std::uint16_t const*>(args.x);
  p.ldx = args.ldx;
  p.k = layout.k;
  p.m = static_cast<int>(args.m);
  p.word_steps = reads_x_by_words(args) ? static_cast<int>(layout.k / Operand::record_k) : 0;

  gemm_workspace const placed = place_workspace<Format>(
      layout, plan.problem, static_cast<std::byte*>(workspace.data), workspace.zero_bytes);
  p.planes = placed.planes;
  p.tickets = placed.tickets;
  p.candidate_ticket = placed.candidate_ticket;
  p.best_keys = placed.best_keys;
  p.candidate_lists = placed.candidate_lists;
  p.candidate_ids = args.candidate_ids;
  p.candidate_values = args.candidate_values;

  p.epilogue = make_epilogue_params(plan, args, Operand::half_exponent);
  if constexpr (Operand::fp32_scales_along_k) {  // the sums have them by then
    p.k_scales = p.epilogue.scales;
    p.scale_columns = static_cast<int>(scale_columns(layout));
    p.epilogue.scale = scale_mode::none;
  }
  return p;
}

}  // namespace qpn::detail::sm70
