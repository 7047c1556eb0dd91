// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm80/gemm_program.hpp"
#include "qpn/detail/gemm_epilogue.hpp"
#include "qpn/gemm_types.hpp"
#include "qpn/x_fragments.hpp"

namespace qpn::detail::sm80 {

/// Which of the kernels without candidates a launch runs.
struct launch_form {
  int registers;  ///< of a thread
  int halves;     ///< of a strip that a CTA has
};

/// @param args  of a checked call with at least one row
template <class Operand, int RowTiles, class Format>
[[nodiscard]] launch_form form_of(gemm_plan<Format> const& plan, gemm_args const& args) noexcept {
  using policy = gemm_policy<Operand, RowTiles>;
  std::int64_t const strips = plan.layout.padded_n / tile_n;
  std::int64_t const blocks = row_blocks(args.m, RowTiles);
  int const wanted = choice_of(plan, args.m).registers;
  if (policy::choices.has(wanted)) return {wanted, 2};
  bool const can_halve = policy::has_halves && plan.problem.act != activation::silu_gate;
  bool const is_beside = args.overlap_previous && args.beside_previous;
  bool const halves =
      can_halve && ((policy::halves_beside && is_beside) ||
                    prefers_halves(plan.layout.format, RowTiles, strips, blocks, plan.sm_count));
  int const of_strip = halves ? 1 : 2;
  return {choose_registers(policy::choices_of(of_strip), strips * blocks * 2 / of_strip,
                           plan.layout.ctas, plan.sm_count),
          of_strip};
}

/// visit(halves, order) with what a launch has of them as std::integral_constants: of those that
/// there are kernels without candidates for.
template <class Operand, int RowTiles, class Visitor>
[[nodiscard]] auto visit_form(launch_form form, x_order order, Visitor const& visit) {
  using policy = gemm_policy<Operand, RowTiles>;
  auto const with_order = [&](auto wanted) {
    if constexpr (policy::has_halves) {
      if (form.halves == 1) return visit(std::integral_constant<int, 1>(), wanted);
    }
    return visit(std::integral_constant<int, 2>(), wanted);
  };
  if constexpr (policy::has_fragments) {
    if (order == x_order::fragments) {
      return with_order(std::integral_constant<x_order, x_order::fragments>());
    }
  }
  return with_order(std::integral_constant<x_order, x_order::rows>());
}

/// The kernel's parameters of a checked call with at least one row.
/// @param halves  of a strip that a CTA has
template <class Operand, int RowTiles, class Format>
[[nodiscard]] gemm_params make_gemm_params(gemm_plan<Format> const& plan, gemm_args const& args,
                                           workspace_view workspace, int halves = 2) noexcept {
  packed_layout const& layout = plan.layout;
  gemm_params p;
  p.records = args.weight.data + layout.codes_offset;
  p.strips = static_cast<int>(layout.padded_n / tile_n);
  p.steps = static_cast<int>(layout.padded_k / Operand::record_k);
  p.split = slice_split::of(static_cast<std::int32_t>(batches_of<Format>(layout)), layout.ctas);
  p.ctas =
      static_cast<int>(mma16_ctas(plan, gemm_policy<Operand, RowTiles>::registers)) * 2 / halves;
  p.x = static_cast<std::uint16_t const*>(args.x);
  p.ldx = args.ldx;
  p.k = layout.k;
  p.m = static_cast<int>(args.m);
  p.word_batches =
      reads_x_by_words(args) ? static_cast<int>(layout.k / mma16_record<Format>::batch_k) : 0;
  p.overlap_previous = args.overlap_previous && plan.arch == gemm_arch::sm90;
  p.beside_previous = args.beside_previous;
  std::int64_t const batch_bytes = Operand::batch * Operand::record_bytes / 2 * halves;
  std::int64_t const warps = row_blocks(args.m, RowTiles) * p.ctas * p.split.slices;
  p.starts_with_two = starts_with_two(warps, batch_bytes, plan.sm_count);

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
