// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qpn/detail/bits.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"

namespace qpn {

/// One matrix [n, k] of a checkpoint, row-major as published. k and the format are those of the
/// packed layout.
struct weight_part {
  std::int64_t n = 0;
  void const* codes =
      nullptr;  ///< nvfp4: u8 [n, k/2], low nibble = even k; fp8: u8 [n, k]; dense16: u16 [n, k]
  void const* block_scales = nullptr;  ///< nvfp4: e4m3 [n, k/16]; else null
  float global_scale = 1.0f;  ///< multiplies every weight of the part; not read for dense16
  float const* channel_scales = nullptr;  ///< fp32 [n]; scale mode channel only
};

/// The same for unpack: where to write. Null pointers are skipped.
struct unpacked_part {
  std::int64_t n = 0;
  void* codes = nullptr;
  void* block_scales = nullptr;
  float* global_scale = nullptr;    ///< scale mode tensor
  float* channel_scales = nullptr;  ///< scale mode channel
};

namespace detail {

[[nodiscard]] inline status check_codes(packed_layout const& layout, std::byte const* codes,
                                        std::int64_t row) noexcept {
  if (layout.format == format_id::fp8) {
    for (std::int64_t k = 0; k < layout.k; ++k) {
      if (is_nan_e4m3(static_cast<std::uint8_t>(codes[k]))) {
        return {status_code::invalid_value, 0, "prepack: weight code is NaN (e4m3 0x7f or 0xff)",
                row, k};
      }
    }
  } else if (layout.format == format_id::dense16) {
    std::uint32_t const exponent = layout.code_type == dtype::f16 ? 0x7c00u : 0x7f80u;
    for (std::int64_t k = 0; k < layout.k; ++k) {
      std::uint16_t word = 0;
      std::memcpy(&word, codes + 2 * k, sizeof word);
      if ((word & exponent) == exponent) {
        return {status_code::invalid_value, 0, "prepack: 16-bit weight is infinite or NaN", row, k};
      }
    }
  }
  return {};
}

/// Packs row `source` of `part` as row `row` of the packed weight.
[[nodiscard]] inline status pack_row(packed_layout const& layout, weight_part const& part,
                                     std::int64_t source, std::int64_t row,
                                     std::byte* out) noexcept {
  std::int64_t const units = code_units(layout, layout.k);
  std::int64_t const unit_bytes = code_unit_bytes(layout);
  auto const* const codes = static_cast<std::byte const*>(part.codes) + source * units * unit_bytes;
  if (status const checked = check_codes(layout, codes, row); !checked.ok()) return checked;
  std::byte* const packed_codes = out + code_offset(layout, row, 0);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    for (std::int64_t byte = 0; byte < unit_bytes; ++byte) {
      packed_codes[unit * tile_n * unit_bytes + byte] = codes[unit * unit_bytes + byte];
    }
  }
  std::int64_t const groups = block_scale_count(layout);
  auto const* const block_scales =
      static_cast<std::byte const*>(part.block_scales) + source * groups;
  for (std::int64_t group = 0; group < groups; ++group) {
    if (is_nan_e4m3(static_cast<std::uint8_t>(block_scales[group]))) {
      return {status_code::invalid_value, 0,
              "prepack: block scale is NaN (e4m3 0x7f or 0xff); the column is that of the scale",
              row, group};
    }
    out[block_scale_offset(layout, row, group)] = block_scales[group];
  }
  if (layout.scale != scale_mode::none) {
    bool const own = layout.scale == scale_mode::channel && part.channel_scales != nullptr;
    float const scale = own ? part.channel_scales[source] : part.global_scale;
    if (!is_finite(scale)) {
      return {status_code::invalid_value, 0, "prepack: fp32 scale is infinite or NaN", row, -1};
    }
    std::memcpy(out + scale_offset(layout, row), &scale, sizeof scale);
  }
  return {};
}

/// The shape rules that prepack and unpack share; Part is weight_part or unpacked_part.
template <class Part>
[[nodiscard]] status check_parts(packed_layout const& layout, Part const* parts,
                                 std::size_t count) noexcept {
  if (!is_valid(layout)) {
    return {status_code::invalid_value, 0, "prepack: layout was not made by make_packed_layout"};
  }
  std::int64_t row = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].n < 1 || parts[i].n > layout.n - row) {
      return {status_code::invalid_shape, 0, "prepack: the parts' rows do not add up to n", row,
              -1};
    }
    if (layout.scale == scale_mode::tensor && row % tile_n != 0) {
      return {status_code::invalid_shape, 0,
              "prepack: with a tensor scale every part but the last needs a multiple of 32 rows",
              row, -1};
    }
    row += parts[i].n;
  }
  if (row != layout.n) {
    return {status_code::invalid_shape, 0, "prepack: the parts' rows do not add up to n", row, -1};
  }
  return {};
}

}  // namespace detail

/// Packs published matrices, concatenated along n, into one weight. Every byte of codes and block
/// scales is kept, signs of zeros and of block scales included; padding is zero.
///
/// Scale mode tensor keeps one fp32 scale per 32-row tile, so every part but the last must have a
/// multiple of 32 rows. Scale mode channel keeps one per row and takes any boundary; a part without
/// channel_scales has its global_scale stored for each of its rows, so that parts of both kinds can
/// be fused.
///
/// @param layout  from make_packed_layout
/// @param parts   `count` matrices whose rows add up to layout.n
/// @param out     layout.total_bytes bytes, any alignment; unspecified where the call fails
/// @return invalid_value: a layout not made by make_packed_layout; or with row (of the fused
/// matrix) and column: a NaN
///         code or block scale, a non-finite 16-bit weight, a non-finite fp32 scale. invalid_shape:
///         rows do not add up, or a boundary inside a tile. Deterministic.
[[nodiscard]] inline status prepack(packed_layout const& layout, weight_part const* parts,
                                    std::size_t count, std::byte* out) noexcept {
  if (status const checked = detail::check_parts(layout, parts, count); !checked.ok())
    return checked;
  std::memset(out, 0, static_cast<std::size_t>(layout.total_bytes));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bool const needs_block_scales = layout.format == format_id::nvfp4;
    if (parts[i].codes == nullptr || (needs_block_scales && parts[i].block_scales == nullptr)) {
      return {status_code::invalid_value, 0, "prepack: a part has no codes or no block scales", row,
              -1};
    }
    for (std::int64_t source = 0; source < parts[i].n; ++source, ++row) {
      status const packed = detail::pack_row(layout, parts[i], source, row, out);
      if (!packed.ok()) return packed;
    }
  }
  return {};
}

/// The inverse of prepack: writes the published matrices back, byte for byte. The parts' rows must
/// be those that were packed (their shapes are not stored).
/// @return as prepack; also invalid_value with the row where a part of scale mode tensor holds more
/// than one scale,
///         which means that the parts are not those that were packed
[[nodiscard]] inline status unpack(packed_weight const& weight, unpacked_part const* parts,
                                   std::size_t count) noexcept {
  packed_layout const& layout = weight.layout;
  if (status const checked = detail::check_parts(layout, parts, count); !checked.ok())
    return checked;
  std::int64_t const units = detail::code_units(layout, layout.k);
  std::int64_t const unit_bytes = detail::code_unit_bytes(layout);
  std::int64_t const groups = detail::block_scale_count(layout);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < count; ++i) {
    unpacked_part const& part = parts[i];
    float first_scale = 0.0f;
    for (std::int64_t r = 0; r < part.n; ++r, ++row) {
      for (std::int64_t unit = 0; part.codes != nullptr && unit < units; ++unit) {
        std::memcpy(static_cast<std::byte*>(part.codes) + (r * units + unit) * unit_bytes,
                    weight.data + detail::code_offset(layout, row, unit),
                    static_cast<std::size_t>(unit_bytes));
      }
      for (std::int64_t group = 0; part.block_scales != nullptr && group < groups; ++group) {
        static_cast<std::byte*>(part.block_scales)[r * groups + group] =
            weight.data[detail::block_scale_offset(layout, row, group)];
      }
      if (layout.scale == scale_mode::none) continue;
      float scale = 0.0f;
      std::memcpy(&scale, weight.data + detail::scale_offset(layout, row), sizeof scale);
      if (layout.scale == scale_mode::channel) {
        if (part.channel_scales != nullptr) part.channel_scales[r] = scale;
        continue;
      }
      if (r == 0) first_scale = scale;
      if (detail::float_bits(scale) != detail::float_bits(first_scale)) {
        return {status_code::invalid_value, 0, "unpack: one part holds several tensor scales", row,
                -1};
      }
      if (part.global_scale != nullptr) *part.global_scale = scale;
    }
  }
  return {};
}

}  // namespace qpn
