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
  bool const by_words = args.ldx % 8 == 0 && is_aligned_to(16, args.x);
  p.word_steps = by_words ? static_cast<int>(layout.k / Operand::record_k) : 0;

  gemm_workspace const placed = place_workspace(
      p.split, plan.problem, static_cast<std::byte*>(workspace.data), workspace.zero_bytes);
  p.planes = placed.planes;
  p.tickets = placed.tickets;
  p.candidate_ticket = placed.candidate_ticket;
  p.best_keys = placed.best_keys;
  p.candidate_lists = placed.candidate_lists;
  p.candidate_ids = args.candidate_ids;
  p.candidate_values = args.candidate_values;

  p.epilogue = make_epilogue_params(plan, args, Operand::half_exponent);
  return p;
}

/// CTAs of a launch for each row block.
[[nodiscard]] constexpr std::int32_t launch_ctas(gemm_params const& p) noexcept {
  return p.team_runs != 0 ? p.team_runs : p.split.ctas;
}

}  // namespace qpn::detail::sm70
