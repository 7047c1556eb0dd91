// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm70/gemm_wide_program.hpp"
#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"
#include "qpn/detail/quadpair_codes.hpp"

namespace qpn::detail::sm70 {

/// CTAs that share the registers of a multiprocessor: three with 32 rows, but for bf16, whose
/// conversion takes more of them; two with 64.
template <class Operand, int RowTiles>
inline constexpr int wide_resident_ctas =
    RowTiles == 4 && Operand::half_exponent != bf16_half_exponent ? 3 : 2;

template <class Operand, int RowTiles>
QPN_KERNEL __launch_bounds__(
    wide_threads,
    wide_resident_ctas<Operand, RowTiles>) void gemm_wide_kernel(gemm_wide_params const params) {
  extern __shared__ __align__(16) unsigned char qpn_shared[];
  device_lane lane{qpn_shared};
  gemm_wide_program<Operand, RowTiles>(lane, params);
}

}  // namespace qpn::detail::sm70
