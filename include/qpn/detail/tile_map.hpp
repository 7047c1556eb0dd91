// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"

// Where the elements of a cpu_tile32 weight are: byte offsets from the first byte of the packed
// weight. Codes move in units: one byte (nvfp4: two codes, fp8: one) or one 16-bit word (dense16).

namespace qpn::detail {

[[nodiscard]] constexpr std::int64_t code_unit_bytes(packed_layout const& layout) noexcept {
  return layout.format == format_id::dense16 ? 2 : 1;
}

/// Units of `k` codes of one row; k is even for nvfp4.
[[nodiscard]] constexpr std::int64_t code_units(packed_layout const& layout,
                                                std::int64_t k) noexcept {
  return layout.format == format_id::nvfp4 ? k / 2 : k;
}

/// Block scales of one row; 0 where the format has none.
[[nodiscard]] constexpr std::int64_t block_scale_count(packed_layout const& layout) noexcept {
  return layout.format == format_id::nvfp4 ? layout.k / nvfp4::group_k : 0;
}

[[nodiscard]] constexpr std::int64_t code_offset(packed_layout const& layout, std::int64_t row,
                                                 std::int64_t unit) noexcept {
  std::int64_t const line = row / tile_n * code_units(layout, layout.padded_k) + unit;
  return layout.codes_offset + (line * tile_n + row % tile_n) * code_unit_bytes(layout);
}

[[nodiscard]] constexpr std::int64_t block_scale_offset(packed_layout const& layout,
                                                        std::int64_t row,
                                                        std::int64_t group) noexcept {
  std::int64_t const line = row / tile_n * (layout.padded_k / nvfp4::group_k) + group;
  return layout.block_scales_offset + line * tile_n + row % tile_n;
}

/// The fp32 scale of a row; scale mode tensor or channel.
[[nodiscard]] constexpr std::int64_t scale_offset(packed_layout const& layout,
                                                  std::int64_t row) noexcept {
  std::int64_t const index = layout.scale == scale_mode::tensor ? row / tile_n : row;
  return layout.scales_offset + index * 4;
}

}  // namespace qpn::detail
