// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm80/gemm_program.hpp"
#include "qpn/detail/gemm_epilogue.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm80 {

/// The kernel's parameters of a checked call with at least one row.
template <class Operand, int RowTiles, class Format>
[[nodiscard]] gemm_params make_gemm_params(gemm_plan<Format> const& plan, gemm_args const& args,
                                           workspace_view workspace) noexcept {
  packed_layout const& layout = plan.layout;
  gemm_params p;
  p.records = args.weight.data + layout.codes_offset;
  p.strips = static_cast<int>(layout.padded_n / tile_n);
  p.steps = static_cast<int>(layout.padded_k / Operand::record_k);
  p.split = slice_split::of(static_cast<std::int32_t>(batches_of<Format>(layout)), layout.ctas);
  p.ctas = static_cast<int>(mma16_ctas(plan, gemm_policy<Operand, RowTiles>::registers));
  p.x = static_cast<std::uint16_t const*>(args.x);
  p.ldx = args.ldx;
  p.k = layout.k;
  p.m = static_cast<int>(args.m);
  p.word_batches =
      reads_x_by_words(args) ? static_cast<int>(layout.k / mma16_record<Format>::batch_k) : 0;
  p.overlap_previous = args.overlap_previous;

  gemm_workspace const placed =
      place_workspace(plan, static_cast<std::byte*>(workspace.data), workspace.zero_bytes);
  p.candidate_ticket = placed.candidate_ticket;
  p.best_keys = placed.best_keys;
  p.candidate_lists = placed.candidate_lists;
  p.candidate_ids = args.candidate_ids;
  p.candidate_values = args.candidate_values;

  p.epilogue = make_epilogue_params(plan, args, Operand::half_exponent);
  if constexpr (Operand::block_scales) {  // the sums have them by then
    p.block_scales = p.epilogue.scales;
    p.scale_columns = static_cast<int>(scale_columns(layout));
    p.epilogue.scale = scale_mode::none;
  }
  return p;
}

}  // namespace qpn::detail::sm80
