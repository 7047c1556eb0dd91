// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/status.hpp"

namespace qpn {

/// Rows of one tile: the unit of fp32 tensor scales and of work splitting, in every layout.
inline constexpr std::int64_t tile_n = 32;

enum class layout_id : std::uint8_t { cpu_tile32 = 1 };

/// Where the bytes of a packed weight are: a value that can be compared, copied and stored with the
/// bytes.
///
/// Layout cpu_tile32, version 1. The weight [n, k] is cut into tiles of 32 rows; n is padded to a
/// multiple of 32 and k to a multiple of 16 with zero bytes. Within a tile k runs slowest and the
/// row fastest, so that a vector register holds neighbouring rows:
///   codes, nvfp4     [padded_n / 32][padded_k / 2][32] bytes; low nibble = even k, as published
///   codes, fp8       [padded_n / 32][padded_k][32] bytes
///   codes, dense16   [padded_n / 32][padded_k][32] little-endian 16-bit words
///   block scales     [padded_n / 32][padded_k / 16][32] e4m3 bytes (nvfp4 only)
///   scales, tensor   [padded_n / 32] fp32
///   scales, channel  [padded_n] fp32
/// Sections start at multiples of 64 bytes from the first byte of the weight. The bytes themselves
/// may lie anywhere; at a multiple of 64 bytes no tile shares a cache line with another.
struct packed_layout {
  layout_id id = layout_id::cpu_tile32;
  std::uint16_t version = 1;
  format_id format = format_id::dense16;
  dtype code_type = dtype::f16;  ///< e2m1, e4m3, or for dense16: f16 or bf16
  scale_mode scale = scale_mode::none;
  std::int64_t n = 0;         ///< output rows
  std::int64_t k = 0;         ///< reduction length
  std::int64_t padded_n = 0;  ///< multiple of 32
  std::int64_t padded_k = 0;  ///< multiple of 16
  std::int64_t codes_offset = 0;
  std::int64_t block_scales_offset =
      0;                           ///< bytes; equals scales_offset where there are no block scales
  std::int64_t scales_offset = 0;  ///< bytes; equals total_bytes where there are no fp32 scales
  std::int64_t total_bytes = 0;
};

[[nodiscard]] constexpr bool operator==(packed_layout const& a, packed_layout const& b) noexcept {
  return a.id == b.id && a.version == b.version && a.format == b.format &&
         a.code_type == b.code_type && a.scale == b.scale && a.n == b.n && a.k == b.k &&
         a.padded_n == b.padded_n && a.padded_k == b.padded_k && a.codes_offset == b.codes_offset &&
         a.block_scales_offset == b.block_scales_offset && a.scales_offset == b.scales_offset &&
         a.total_bytes == b.total_bytes;
}

[[nodiscard]] constexpr bool operator!=(packed_layout const& a, packed_layout const& b) noexcept {
  return !(a == b);
}

/// A packed weight: its layout and its bytes. Does not own them.
struct packed_weight {
  packed_layout layout;
  std::byte const* data = nullptr;
};

namespace detail {

/// a * b, both >= 0; false where the product exceeds int64.
[[nodiscard]] constexpr bool checked_multiply(std::int64_t a, std::int64_t b,
                                              std::int64_t& product) noexcept {
  if (b != 0 && a > (std::numeric_limits<std::int64_t>::max)() / b) return false;
  product = a * b;
  return true;
}

/// The next multiple of `unit` (> 0) at or above value (>= 0); false where it exceeds int64.
[[nodiscard]] constexpr bool checked_round_up(std::int64_t value, std::int64_t unit,
                                              std::int64_t& rounded) noexcept {
  if (value > (std::numeric_limits<std::int64_t>::max)() - (unit - 1)) return false;
  rounded = (value + (unit - 1)) / unit * unit;
  return true;
}

/// Appends a section of rows x row_bits / 8 bytes at `end`, which moves to the next multiple of 64.
[[nodiscard]] constexpr bool append_section(std::int64_t rows, std::int64_t columns,
                                            std::int64_t element_bits, std::int64_t& end) noexcept {
  std::int64_t elements = 0;
  std::int64_t section_bits = 0;
  std::int64_t section_bytes = 0;
  if (!checked_multiply(rows, columns, elements)) return false;
  if (!checked_multiply(elements, element_bits, section_bits)) return false;
  if (!checked_round_up(section_bits / 8, 64, section_bytes)) return false;
  if (end > (std::numeric_limits<std::int64_t>::max)() - section_bytes) return false;
  end += section_bytes;
  return true;
}

}  // namespace detail

/// Computes the layout of a weight [n, k].
/// @param format     nvfp4, fp8 or dense16
/// @param scale      tensor or channel for nvfp4 and fp8; none for dense16
/// @param n, k       >= 1; for nvfp4 k must be a multiple of 16
/// @param dense_type f16 or bf16: the element type of dense16; not read for the other formats
/// @return invalid_shape: n or k not positive, k not a multiple of the group, or sizes beyond 64
/// bits;
///         unsupported_format: no such format, or the format does not take this scale mode or
///         element type
[[nodiscard]] constexpr status make_packed_layout(format_id format, scale_mode scale,
                                                  std::int64_t n, std::int64_t k, dtype dense_type,
                                                  packed_layout& out) noexcept {
  status const unknown{status_code::unsupported_format, 0, "packed layout: unknown format"};
  return visit_format<status>(format, unknown, [&](auto tag) noexcept -> status {
    using Format = decltype(tag);
    packed_layout layout;
    layout.format = format;
    layout.scale = scale;
    layout.code_type = Format::code_bits == 4   ? dtype::e2m1
                       : Format::code_bits == 8 ? dtype::e4m3
                                                : dense_type;
    if (!Format::accepts(layout.code_type)) {
      return {status_code::unsupported_format, 0, "packed layout: dense16 takes f16 or bf16"};
    }
    if (!Format::accepts(scale)) {
      return {status_code::unsupported_format, 0,
              "packed layout: nvfp4 and fp8 take a tensor or channel scale, dense16 takes none"};
    }
    if (n < 1 || k < 1) {
      return {status_code::invalid_shape, 0, "packed layout: n and k must be at least 1"};
    }
    if (Format::group_k != 0 && k % Format::group_k != 0) {
      return {status_code::invalid_shape, 0, "packed layout: nvfp4 needs k to be a multiple of 16"};
    }
    layout.n = n;
    layout.k = k;
    status const too_large{status_code::invalid_shape, 0, "packed layout: size exceeds 64 bits"};
    if (!detail::checked_round_up(n, tile_n, layout.padded_n)) return too_large;
    if (!detail::checked_round_up(k, 16, layout.padded_k)) return too_large;
    std::int64_t end = 0;
    layout.codes_offset = end;
    if (!detail::append_section(layout.padded_n, layout.padded_k, Format::code_bits, end)) {
      return too_large;
    }
    layout.block_scales_offset = end;
    if constexpr (Format::group_k != 0) {
      if (!detail::append_section(layout.padded_n, layout.padded_k / Format::group_k, 8, end)) {
        return too_large;
      }
    }
    layout.scales_offset = end;
    std::int64_t const scales = scale == scale_mode::tensor    ? layout.padded_n / tile_n
                                : scale == scale_mode::channel ? layout.padded_n
                                                               : 0;
    if (!detail::append_section(scales, 1, 32, end)) return too_large;
    layout.total_bytes = end;
    out = layout;
    return {};
  });
}

/// Whether `layout` is one that make_packed_layout of this version produces: what a reader of
/// stored bytes must ask before it trusts the offsets.
[[nodiscard]] constexpr bool is_valid(packed_layout const& layout) noexcept {
  packed_layout expected;
  status const made = make_packed_layout(layout.format, layout.scale, layout.n, layout.k,
                                         layout.code_type, expected);
  return made.ok() && layout == expected;
}

}  // namespace qpn
