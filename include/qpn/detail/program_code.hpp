// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/detail/row_cut.hpp"
#include "qpn/gemm_route.hpp"
#include "qpn/gemm_types.hpp"
#include "qpn/status.hpp"

// A plan knows the device, not for what the program was compiled. What a call runs, by both. Host
// code without CUDA; arch/program_code.cuh asks the device.

namespace qpn::detail {

/// The device code of a program that a GPU runs.
struct program_code {
  int arch = 0;  ///< architecture of its compilation, 80 or 90; on sm_86 code for sm_80 runs, too
  bool sm90a = false;  ///< it has the instructions of sm_90a, those over warpgroups
};

/// The route that a call of layout sm80_mma16 with m rows, m >= 1, runs: the plan's, or one with
/// the same bits where the program has no code for that.
/// @param out  unchanged where the call is refused
/// @return not_compiled_for_arch: code older than sm_80, or m above gemm_max_m without sm_90a
template <class Format>
[[nodiscard]] constexpr status fit_mma16_route(gemm_plan<Format> const& plan, std::int64_t m,
                                               program_code code, gemm_route& out) noexcept {
  if (code.arch < 80) {
    return {status_code::not_compiled_for_arch, 0,
            "gemm: layout sm80_mma16 needs code for sm_80 or newer, and this program has none for "
            "the device"};
  }
  gemm_route fit = route(plan, m);
  fit.arch = code.arch >= 90 ? gemm_arch::sm90 : gemm_arch::sm80;
  if (!code.sm90a && fit.method == gemm_method::wide) {
    return {status_code::not_compiled_for_arch, 0,
            "gemm: m above gemm_max_m needs code for sm_90a, and this program has none for the "
            "device"};
  }
  if (!code.sm90a && fit.method == gemm_method::group) {
    fit.method = narrow_method(cut_rows<Format>(plan.layout, m).row_tiles);
  }
  out = fit;
  return {};
}

}  // namespace qpn::detail
