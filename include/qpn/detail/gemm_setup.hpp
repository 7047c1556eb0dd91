// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/detail/bits.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/split_sum.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail {

/// Fills in what kernels over packed records share, for a checked call with at least one row.
/// @param group_n        weight rows of a tile group of the work split
/// @param half_exponent  the operand's halves are weights times 2 to it
template <class Format>
void set_packed_params(gemm_plan<Format> const& plan, gemm_args const& args,
                       workspace_view workspace, int group_n, int half_exponent,
                       packed_gemm_params& p) noexcept {
  packed_layout const& layout = plan.layout;
  work_split const split = split_of<Format>(layout);
  p.records = args.weight.data + layout.codes_offset;
  p.runs = unit_runs::of(split);
  p.x = static_cast<std::uint16_t const*>(args.x);
  p.ldx = args.ldx;
  p.k = layout.k;
  p.m = static_cast<int>(args.m);
  p.x_by_words = args.ldx % 8 == 0 && is_aligned_to(16, args.x);

  gemm_workspace const placed =
      place_workspace(split, plan.problem.max_m, static_cast<std::byte*>(workspace.data),
                      workspace.zero_bytes, group_n);
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
  e.code_scale = bits_float(static_cast<std::uint32_t>(127 - half_exponent) << 23);
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
}

}  // namespace qpn::detail
