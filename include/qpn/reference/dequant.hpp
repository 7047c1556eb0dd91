// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qpn/detail/quadpair_codes.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/prepack.hpp"

// Weights as numbers, one at a time, in fp64: every product of code, block scale and fp32 scale is
// exact there. Slow and plain, to test against.

namespace qpn::reference {

namespace detail {

[[nodiscard]] inline std::uint8_t byte_at(void const* bytes, std::int64_t index) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::byte const*>(bytes)[index]);
}

[[nodiscard]] inline double dense_at(void const* words, std::int64_t index, dtype type) noexcept {
  std::uint16_t word = 0;
  std::memcpy(&word, static_cast<std::byte const*>(words) + 2 * index, sizeof word);
  return static_cast<double>(type == dtype::f16 ? decode_f16(word) : decode_bf16(word));
}

[[nodiscard]] inline double e2m1_at(std::uint8_t pair, std::int64_t k) noexcept {
  return static_cast<double>(
      decode_e2m1(static_cast<std::uint8_t>(k % 2 == 0 ? pair & 0xf : pair >> 4)));
}

[[nodiscard]] inline double half_at(std::uint16_t half) noexcept {
  return static_cast<double>(decode_f16(half));
}

/// Weight (row, k) without its fp32 scale; layout cpu_tile32.
[[nodiscard]] inline double tile32_at(packed_weight const& weight, std::int64_t row,
                                      std::int64_t k) noexcept {
  packed_layout const& layout = weight.layout;
  bool const in_pairs = layout.format == format_id::nvfp4;
  std::byte const* const code =
      weight.data + qpn::detail::code_offset(layout, row, in_pairs ? k / 2 : k);
  if (layout.format == format_id::dense16) return dense_at(code, 0, layout.code_type);
  if (layout.format == format_id::fp8) return static_cast<double>(decode_e4m3(byte_at(code, 0)));
  std::uint8_t const block =
      byte_at(weight.data, qpn::detail::block_scale_offset(layout, row, k / nvfp4::group_k));
  return e2m1_at(byte_at(code, 0), k) * static_cast<double>(decode_e4m3(block));
}

/// The word with code k of a row; layouts for GPUs.
template <class Format>
[[nodiscard]] std::uint32_t word_at(packed_weight const& weight, std::int64_t row,
                                    std::int64_t k) noexcept {
  std::uint32_t word = 0;
  std::memcpy(&word, weight.data + qpn::detail::word_offset<Format>(weight.layout, row, k),
              sizeof word);
  return word;
}

/// Weight (row, k) without its fp32 scale; layouts for GPUs.
[[nodiscard]] inline double record_at(packed_weight const& weight, std::int64_t row,
                                      std::int64_t k) noexcept {
  packed_layout const& layout = weight.layout;
  if (layout.format == format_id::dense16) {
    std::uint16_t codes[2] = {};
    qpn::detail::unpack_dense_word(word_at<dense16>(weight, row, k), codes);
    return dense_at(codes, k % 2, layout.code_type);
  }
  if (layout.format == format_id::fp8) {
    std::uint8_t codes[4] = {};
    qpn::detail::unpack_e4m3_word(word_at<fp8>(weight, row, k), codes);
    return static_cast<double>(decode_e4m3(codes[k % 4]));
  }
  std::uint8_t codes[8] = {};
  qpn::detail::unpack_e2m1_word(word_at<nvfp4>(weight, row, k), codes);
  std::uint8_t const block =
      byte_at(weight.data, qpn::detail::scale_byte_offset(layout, row, k / nvfp4::group_k));
  return static_cast<double>(decode_e2m1(codes[k % 8])) *
         half_at(static_cast<std::uint16_t>(block << 7)) * 0x1p-7;
}

}  // namespace detail

/// Weight (row, k) of one published matrix; `layout` names its format, scale mode and k.
[[nodiscard]] inline double weight_at(packed_layout const& layout, weight_part const& part,
                                      std::int64_t row, std::int64_t k) noexcept {
  if (layout.format == format_id::dense16) {
    return detail::dense_at(part.codes, row * layout.k + k, layout.code_type);
  }
  double const scale =
      static_cast<double>(qpn::detail::scale_of_row(layout, part, row, k / scale_block));
  if (layout.format == format_id::fp8) {
    return static_cast<double>(decode_e4m3(detail::byte_at(part.codes, row * layout.k + k))) *
           scale;
  }
  std::uint8_t const pair = detail::byte_at(part.codes, row * (layout.k / 2) + k / 2);
  std::uint8_t const block = detail::byte_at(part.block_scales, row * (layout.k / 16) + k / 16);
  return detail::e2m1_at(pair, k) * static_cast<double>(decode_e4m3(block)) * scale;
}

/// Weight (row, k) of a packed weight, in any layout.
[[nodiscard]] inline double weight_at(packed_weight const& weight, std::int64_t row,
                                      std::int64_t k) noexcept {
  packed_layout const& layout = weight.layout;
  double const value = layout.id == layout_id::cpu_tile32 ? detail::tile32_at(weight, row, k)
                                                          : detail::record_at(weight, row, k);
  if (layout.scale == scale_mode::none) return value;
  return value * static_cast<double>(qpn::detail::stored_scale(weight, row, k / scale_block));
}

/// out[n, k] = the fused published matrices, row-major. The parts' rows must add up to layout.n.
inline void dequant(packed_layout const& layout, weight_part const* parts, std::size_t count,
                    double* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::int64_t row = 0; row < parts[i].n; ++row) {
      for (std::int64_t k = 0; k < layout.k; ++k) *out++ = weight_at(layout, parts[i], row, k);
    }
  }
}

/// out[n, k] = the packed weight, row-major.
inline void dequant(packed_weight const& weight, double* out) noexcept {
  for (std::int64_t row = 0; row < weight.layout.n; ++row) {
    for (std::int64_t k = 0; k < weight.layout.k; ++k) *out++ = weight_at(weight, row, k);
  }
}

}  // namespace qpn::reference
