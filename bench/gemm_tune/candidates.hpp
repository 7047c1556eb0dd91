// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/device_info.hpp>
#include <qpn/gemm_choice.hpp>
#include <qpn/packed_weight.hpp>
#include <string>
#include <vector>

namespace qpn::bench::tune {

/// What a call with m rows runs where no table has a row for it.
[[nodiscard]] gemm_choice rule_of(packed_layout const& layout, std::int64_t m,
                                  device_info const& device);

/// Everything that it may run instead, and that: the rules' choice comes first. Of kernels that
/// read the weight again for each row block, those with 8 row blocks at most.
[[nodiscard]] std::vector<gemm_choice> candidates_of(packed_layout const& layout, std::int64_t m,
                                                     device_info const& device);

/// Whether two choices for the same call add along k in the same order, so that they must give the
/// same bits.
[[nodiscard]] bool adds_alike(gemm_choice a, gemm_choice b);

/// The first m of the calls that times at m stand for. Up to gemm_max_m rows: what is behind the m
/// measured before; beyond: those with as many tiles, whatever their size.
/// @param all  rising, m among them
[[nodiscard]] std::int64_t first_m_of(std::vector<std::int64_t> const& all, std::int64_t m);

/// "mt2", "mt2 r96" (registers), "group 64/2" (rows / warpgroups), "wide 128/1" or "wide 128/1+4"
/// (rows / CTAs of a cluster + those of the tail)
[[nodiscard]] std::string text_of(gemm_choice choice);

}  // namespace qpn::bench::tune
