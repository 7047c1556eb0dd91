// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm80/stage_ring.hpp"
#include "qpn/detail/gemm_setup.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail::sm80 {

/// The kernel's parameters of a checked call with at least one row.
template <class Operand, class Format>
[[nodiscard]] gemm_params make_gemm_params(gemm_plan<Format> const& plan, gemm_args const& args,
                                           workspace_view workspace) noexcept {
  packed_layout const& layout = plan.layout;
  gemm_params p;
  set_packed_params(plan, args, workspace, block_n, Operand::half_exponent, p);
  p.strips = static_cast<int>(layout.padded_n / tile_n);
  p.blocks = static_cast<int>(split_of<Format>(layout).tile_groups);
  if constexpr (Operand::block_scales) {  // the sums have them by then
    p.block_scales = p.epilogue.scales;
    p.scale_columns = static_cast<int>(scale_columns(layout));
    p.epilogue.scale = scale_mode::none;
  }
  p.overlap_previous = args.overlap_previous;
  return p;
}

}  // namespace qpn::detail::sm80
