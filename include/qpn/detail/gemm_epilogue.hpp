// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/detail/bits.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::detail {

/// The epilogue of a checked call with at least one row.
/// @param code_exponent  the sums are those of the weight's codes times 2^code_exponent
template <class Format>
[[nodiscard]] epilogue_params make_epilogue_params(gemm_plan<Format> const& plan,
                                                   gemm_args const& args,
                                                   int code_exponent) noexcept {
  packed_layout const& layout = plan.layout;
  epilogue_params e;
  e.n = layout.n;
  e.scales = layout.scale == scale_mode::none
                 ? nullptr
                 : reinterpret_cast<float const*>(args.weight.data + layout.scales_offset);
  e.scale = layout.scale;
  e.code_scale = bits_float(static_cast<std::uint32_t>(127 - code_exponent) << 23);
  e.bias = args.bias;
  e.residual = args.residual;
  e.ld_residual = args.ld_residual;
  e.residual_type = args.residual_type;
  e.y = args.y;
  e.ldy = args.ldy;
  e.y_type = plan.problem.y_type;
  e.overflow = plan.problem.overflow;
  e.act = plan.problem.act;
  e.candidates = plan.problem.candidates;
  e.first_id = static_cast<std::uint32_t>(args.first_id);
  e.eligible_n = std::int64_t{args.id_limit} - args.first_id;
  return e;
}

}  // namespace qpn::detail
