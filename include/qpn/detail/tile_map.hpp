// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/mma16_map.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/work_split.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"

// Where the elements of a packed weight are: byte offsets from the first byte of the packed weight.

namespace qpn::detail {

// cpu_tile32: codes move in units: one byte (nvfp4: two codes, fp8: one) or one 16-bit word
// (dense16).

[[nodiscard]] QPN_HD constexpr std::int64_t code_unit_bytes(packed_layout const& layout) noexcept {
  return layout.format == format_id::dense16 ? 2 : 1;
}

/// Units of `k` codes of one row; k is even for nvfp4.
[[nodiscard]] QPN_HD constexpr std::int64_t code_units(packed_layout const& layout,
                                                       std::int64_t k) noexcept {
  return layout.format == format_id::nvfp4 ? k / 2 : k;
}

/// Bytes of the codes of one row as published, in every layout.
[[nodiscard]] QPN_HD constexpr std::int64_t published_row_bytes(
    packed_layout const& layout) noexcept {
  return code_units(layout, layout.k) * code_unit_bytes(layout);
}

/// Block scales of one row as published, in every layout; 0 where the format has none.
[[nodiscard]] QPN_HD constexpr std::int64_t block_scale_count(
    packed_layout const& layout) noexcept {
  return layout.format == format_id::nvfp4 ? layout.k / nvfp4::group_k : 0;
}

[[nodiscard]] QPN_HD constexpr std::int64_t code_offset(packed_layout const& layout,
                                                        std::int64_t row,
                                                        std::int64_t unit) noexcept {
  std::int64_t const line = row / tile_n * code_units(layout, layout.padded_k) + unit;
  return layout.codes_offset + (line * tile_n + row % tile_n) * code_unit_bytes(layout);
}

[[nodiscard]] QPN_HD constexpr std::int64_t block_scale_offset(packed_layout const& layout,
                                                               std::int64_t row,
                                                               std::int64_t group) noexcept {
  std::int64_t const line = row / tile_n * (layout.padded_k / nvfp4::group_k) + group;
  return layout.block_scales_offset + line * tile_n + row % tile_n;
}

/// The fp32 scale of a row, in scale mode block the one at k, in every layout; scale mode not none.
[[nodiscard]] QPN_HD constexpr std::int64_t scale_offset(packed_layout const& layout,
                                                         std::int64_t row,
                                                         std::int64_t k = 0) noexcept {
  std::int64_t const line = layout.scale == scale_mode::channel ? row : row / tile_n;
  std::int64_t const column = layout.scale == scale_mode::block ? k / scale_block : 0;
  return layout.scales_offset + (line * scale_columns(layout) + column) * 4;
}

// Layouts for GPUs: records, one for each 32 rows and step of k. Format is that of the layout.

/// The record that holds a row's codes of a step: that of its tile, or of its strip.
template <class Format>
[[nodiscard]] QPN_HD constexpr std::int64_t record_offset(packed_layout const& layout,
                                                          std::int64_t row,
                                                          std::int64_t step) noexcept {
  using record = quadpair_record<Format>;
  std::int64_t const steps = layout.padded_k / record::k;
  std::int64_t index = 0;
  if (layout.id == layout_id::sm80_mma16) {
    index = mma16_strip(row) * steps + step;
  } else {
    std::int64_t const tile = row / tile_n;
    index = (tile / 2 * steps + step) * 2 + tile % 2;
  }
  return layout.codes_offset + index * record::bytes;
}

/// The 32-bit word that holds code k of a row, k < padded_k.
template <class Format>
[[nodiscard]] QPN_HD constexpr std::int64_t word_offset(packed_layout const& layout,
                                                        std::int64_t row, std::int64_t k) noexcept {
  using record = quadpair_record<Format>;
  int const word = static_cast<int>(k % record::k) / record::codes_per_word;
  int const within =
      layout.id == layout_id::sm80_mma16
          ? mma16_record<Format>::word_offset(mma16_half(row), static_cast<int>(row % 16), word)
          : record::word_offset(lane_of_weight_row(static_cast<int>(row % tile_n)), word);
  return record_offset<Format>(layout, row, k / record::k) + within;
}

/// The scale byte of a group of 16 k of a row, group < padded_k / 16.
[[nodiscard]] QPN_HD constexpr std::int64_t scale_byte_offset(packed_layout const& layout,
                                                              std::int64_t row,
                                                              std::int64_t group) noexcept {
  using record = quadpair_record<nvfp4>;
  int const in_record = static_cast<int>(group % record::scales_per_lane);
  int const within =
      layout.id == layout_id::sm80_mma16
          ? mma16_record<nvfp4>::scale_offset(mma16_half(row), static_cast<int>(row % 16),
                                              in_record)
          : record::scale_offset(lane_of_weight_row(static_cast<int>(row % tile_n)), in_record);
  return record_offset<nvfp4>(layout, row, group / record::scales_per_lane) + within;
}

/// How the CTAs share a weight of layout sm70_quadpair.
template <class Format>
[[nodiscard]] constexpr work_split split_of(packed_layout const& layout) noexcept {
  return {layout.padded_n / (2 * tile_n), layout.padded_k / quadpair_record<Format>::k,
          layout.ctas};
}

}  // namespace qpn::detail
