// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/packed_rows.hpp"
#include "qpn/detail/quadpair_codes.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"

// What makes a published weight unfit for packing, found by the same tests on host and device.

namespace qpn::detail {

enum class weight_defect : std::uint8_t {
  none,
  nan_code,         ///< e4m3 code 0x7f or 0xff
  infinite_word,    ///< 16-bit weight that is infinite or NaN
  large_bf16,       ///< bf16 weight that layouts for GPUs do not take
  nan_block_scale,  ///< e4m3 block scale 0x7f or 0xff
  infinite_scale,   ///< fp32 scale that is infinite or NaN
  several_scales,   ///< unpack: one part, several tensor scales
};

/// @param row, column  of the fused matrix
[[nodiscard]] constexpr status defect_status(weight_defect defect, std::int64_t row,
                                             std::int64_t column) noexcept {
  char const* what = "prepack: unknown defect";
  switch (defect) {
    case weight_defect::none: return {};
    case weight_defect::nan_code: what = "prepack: weight code is NaN (e4m3 0x7f or 0xff)"; break;
    case weight_defect::infinite_word: what = "prepack: 16-bit weight is infinite or NaN"; break;
    case weight_defect::large_bf16:
      what =
          "prepack: bf16 weight of 255.875 or more: the kernels of layouts for GPUs multiply it by "
          "2^8 into fp16";
      break;
    case weight_defect::nan_block_scale:
      what = "prepack: block scale is NaN (e4m3 0x7f or 0xff); the column is that of the scale";
      break;
    case weight_defect::infinite_scale: what = "prepack: fp32 scale is infinite or NaN"; break;
    case weight_defect::several_scales:
      what = "unpack: one part holds several tensor scales";
      break;
  }
  return {status_code::invalid_value, 0, what, row, column};
}

/// Of code k, k < layout.k, of a published row.
[[nodiscard]] QPN_HD constexpr weight_defect code_defect(nvfp4, packed_layout const&,
                                                         std::byte const*, std::int64_t) noexcept {
  return weight_defect::none;
}

[[nodiscard]] QPN_HD inline weight_defect code_defect(fp8, packed_layout const&,
                                                      std::byte const* codes,
                                                      std::int64_t k) noexcept {
  return is_nan_e4m3(static_cast<std::uint8_t>(codes[k])) ? weight_defect::nan_code
                                                          : weight_defect::none;
}

[[nodiscard]] QPN_HD inline weight_defect code_defect(dense16, packed_layout const& layout,
                                                      std::byte const* codes,
                                                      std::int64_t k) noexcept {
  std::uint16_t const word = load_u16(codes + 2 * k);
  std::uint32_t const exponent = layout.code_type == dtype::f16 ? 0x7c00u : 0x7f80u;
  if ((word & exponent) == exponent) return weight_defect::infinite_word;
  bool const becomes_half = layout.id != layout_id::cpu_tile32 && layout.code_type == dtype::bf16;
  return becomes_half && !bf16_fits_half(word) ? weight_defect::large_bf16 : weight_defect::none;
}

/// Of a block scale of a published row.
[[nodiscard]] QPN_HD inline weight_defect block_scale_defect(std::byte const* block_scales,
                                                             std::int64_t group) noexcept {
  return is_nan_e4m3(static_cast<std::uint8_t>(block_scales[group]))
             ? weight_defect::nan_block_scale
             : weight_defect::none;
}

}  // namespace qpn::detail
