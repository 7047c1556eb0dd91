// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/detail/weight_defect.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"

namespace qpn {

/// What prepack_rows and unpack_rows of prepack.cuh found wrong with weights: they cannot return
/// it, since it is known only once the stream has come there. Lies in device memory; calls on one
/// weight may share one, and the first weight in the order of rows wins. Copied back, to_status
/// says what the host's call would have returned. All bytes zero: nothing was found.
struct prepack_report {
  /// Larger for what comes first: device code keeps it with an atomic maximum.
  std::uint64_t first_defect = 0;
};

namespace detail {

/// The places of a row, in the order in which prepack looks at them: its codes, its block scales
/// and its fp32 scale.
[[nodiscard]] QPN_HD constexpr std::int64_t places_of_row(packed_layout const& layout) noexcept {
  return layout.k + block_scale_count(layout) +
         (layout.scale == scale_mode::block ? scale_columns(layout) : 1);
}
[[nodiscard]] QPN_HD constexpr std::int64_t block_scale_place(packed_layout const& layout,
                                                              std::int64_t group) noexcept {
  return layout.k + group;
}
[[nodiscard]] QPN_HD constexpr std::int64_t scale_place(packed_layout const& layout) noexcept {
  return layout.k + block_scale_count(layout);
}

/// The value of prepack_report::first_defect for a defect at a place of a row (of the fused
/// matrix). A valid layout for GPUs has fewer than 2^44 places in all, so that the product is
/// small.
[[nodiscard]] QPN_HD constexpr std::uint64_t defect_key(packed_layout const& layout,
                                                        std::int64_t row, std::int64_t place,
                                                        weight_defect defect) noexcept {
  auto const at = static_cast<std::uint64_t>(row * places_of_row(layout) + place);
  return ~(at << 3 | static_cast<std::uint64_t>(defect));
}

}  // namespace detail

/// The status that the host's call on the same rows returns: invalid_value with row and column of
/// the first weight that cannot be packed, or ok.
/// @param report  copied from the device after the calls that it was given to
/// @param layout  that of those calls
[[nodiscard]] constexpr status to_status(prepack_report const& report,
                                         packed_layout const& layout) noexcept {
  if (report.first_defect == 0) return {};
  std::uint64_t const key = ~report.first_defect;
  auto const at = static_cast<std::int64_t>(key >> 3);
  std::int64_t const row = at / detail::places_of_row(layout);
  std::int64_t const place = at % detail::places_of_row(layout);
  std::int64_t const column = place < layout.k                      ? place
                              : place < detail::scale_place(layout) ? place - layout.k
                              : layout.scale == scale_mode::block
                                  ? place - detail::scale_place(layout)
                                  : -1;
  return detail::defect_status(static_cast<detail::weight_defect>(key & 7u), row, column);
}

}  // namespace qpn
