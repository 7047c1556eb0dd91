// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm80/weight_operand.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/bf16_codes.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"

// Operand A of m16n8k16 for rows of x in bf16: the records and registers of weight_operand.hpp,
// decoded to bf16 pairs.

namespace qpn::detail::sm80 {

/// The weights of a format; of dense16 those that are bf16.
template <class Format, bool BlockScales = false>
struct bf16_operand;

/// bf16 pair = e2m1 * 2^-126 times block scale * 2^118: exact, and weight * 2^-8.
template <>
struct bf16_operand<nvfp4> : weight_operand<nvfp4, dtype::e2m1> {
  static constexpr dtype x_type = dtype::bf16;
  static constexpr int half_exponent = nvfp4_bf16_exponent;

  /// a[step]: operand A of half h.
  template <class Lane>
  QPN_HD void fragment(Lane& lane, int f, int h, std::uint32_t (&a)[steps][4]) const noexcept {
    std::uint32_t scales[2];
    decode_scales_bf16(lane, scale_bytes, scales);
    scale_pairs(
        lane, f, h, scales,
        [&](std::uint32_t word, std::uint32_t(&pairs)[4]) {
          decode_e2m1_word_bf16(lane, word, pairs);
        },
        [&](std::uint32_t pair, std::uint32_t scale) { return lane.multiply_bf16x2(pair, scale); },
        a);
  }
};

/// bf16 pair = e4m3 as published. BlockScales: as in weight_operand.
template <bool BlockScales>
struct bf16_operand<fp8, BlockScales> : weight_operand<fp8, dtype::e4m3, BlockScales> {
  using operand = weight_operand<fp8, dtype::e4m3, BlockScales>;
  static constexpr dtype x_type = dtype::bf16;
  static constexpr int half_exponent = 0;

  template <class Lane>
  QPN_HD void fragment(Lane& lane, int, int h,
                       std::uint32_t (&a)[operand::steps][4]) const noexcept {
    QPN_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t pairs[2];
      decode_e4m3_word_bf16(lane, operand::half[h].w[j], pairs);
      a[j / 2][j % 2] = pairs[0];
      a[j / 2][j % 2 + 2] = pairs[1];
    }
  }
};

/// bf16 pair = two bf16 as published.
template <>
struct bf16_operand<dense16> : weight_operand<dense16, dtype::f16> {
  static constexpr dtype x_type = dtype::bf16;
};

}  // namespace qpn::detail::sm80
