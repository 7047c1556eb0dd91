// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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

}  // namespace detail

/// Weight (row, k) of one published matrix; `layout` names its format, scale mode and k.
[[nodiscard]] inline double weight_at(packed_layout const& layout, weight_part const& part,
                                      std::int64_t row, std::int64_t k) noexcept {
  if (layout.format == format_id::dense16) {
    return detail::dense_at(part.codes, row * layout.k + k, layout.code_type);
  }
  bool const per_row = layout.scale == scale_mode::channel && part.channel_scales != nullptr;
  double const scale = static_cast<double>(per_row ? part.channel_scales[row] : part.global_scale);
  if (layout.format == format_id::fp8) {
    return static_cast<double>(decode_e4m3(detail::byte_at(part.codes, row * layout.k + k))) *
           scale;
  }
  std::uint8_t const pair = detail::byte_at(part.codes, row * (layout.k / 2) + k / 2);
  std::uint8_t const block = detail::byte_at(part.block_scales, row * (layout.k / 16) + k / 16);
  return detail::e2m1_at(pair, k) * static_cast<double>(decode_e4m3(block)) * scale;
}

/// Weight (row, k) of a packed weight.
[[nodiscard]] inline double weight_at(packed_weight const& weight, std::int64_t row,
                                      std::int64_t k) noexcept {
  packed_layout const& layout = weight.layout;
  std::int64_t const unit =
      qpn::detail::code_units(layout, k - k % 2) + (layout.format == format_id::nvfp4 ? 0 : k % 2);
  std::byte const* const code = weight.data + qpn::detail::code_offset(layout, row, unit);
  if (layout.format == format_id::dense16) return detail::dense_at(code, 0, layout.code_type);
  float scale = 0.0f;
  std::memcpy(&scale, weight.data + qpn::detail::scale_offset(layout, row), sizeof scale);
  if (layout.format == format_id::fp8) {
    return static_cast<double>(decode_e4m3(detail::byte_at(code, 0))) * static_cast<double>(scale);
  }
  std::uint8_t const block =
      detail::byte_at(weight.data, qpn::detail::block_scale_offset(layout, row, k / 16));
  return detail::e2m1_at(detail::byte_at(code, 0), k) * static_cast<double>(decode_e4m3(block)) *
         static_cast<double>(scale);
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
