// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/mma16_map.hpp"
#include "qpn/detail/quadpair_codes.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"

// Operand A of m16n8k16 from a record of layout sm80_mma16: a lane's registers as loaded, and how
// they become fp16 pairs (bf16_operand.hpp: bf16 pairs). A fragment is as much k as one load of x
// covers: one or two instructions for each half of the record.

namespace qpn::detail::sm80 {

template <class Format, dtype Code, bool BlockScales = false>
struct weight_operand;

/// What all operands share. `Steps` instructions take the k of one fragment.
template <class Format, int Fragments, int Steps>
struct operand_shape {
  using format = Format;
  using record = mma16_record<Format>;
  static constexpr int record_k = record::k;
  static constexpr int record_bytes = record::bytes;
  static constexpr int batch = record::batch;
  static constexpr int fragments = Fragments;
  static constexpr int steps = Steps;
  /// Operand B of the steps of a fragment: 4 * Steps consecutive k of one row of x.
  using x_words = std::conditional_t<Steps == 2, word4, word2>;
  static constexpr int lane_k = Fragments * Steps * 4;  ///< of a record
  static constexpr bool block_scales = false;
  static constexpr dtype x_type = dtype::f16;  ///< of x, and of the pairs

  static_assert(4 * lane_k == record_k);

  word4 half[2];

  /// `at` is the record, `id` the lane.
  template <class Lane>
  QPN_HD void load(Lane& lane, std::byte const* at, int id) noexcept {
    QPN_UNROLL
    for (int h = 0; h < 2; ++h) {
      half[h] =
          lane.load_stream(reinterpret_cast<word4 const*>(at + h * record::half_bytes + 16 * id));
    }
  }

  /// One half alone; its fragments are then those of half 0.
  template <class Lane>
  QPN_HD void load_half(Lane& lane, std::byte const* at, int id, int which) noexcept {
    half[0] =
        lane.load_stream(reinterpret_cast<word4 const*>(at + which * record::half_bytes + 16 * id));
  }
};

/// half2 = e2m1 * 2^-14 times block scale * 2^7: exact, and weight * 2^-7.
template <>
struct weight_operand<nvfp4, dtype::e2m1> : operand_shape<nvfp4, 2, 2> {
  static constexpr int half_exponent = e2m1_half_exponent + scale_half_exponent;

  std::uint32_t scale_bytes;

  template <class Lane>
  QPN_HD void load(Lane& lane, std::byte const* at, int id) noexcept {
    operand_shape::load(lane, at, id);
    scale_bytes = lane.load_stream(
        reinterpret_cast<std::uint32_t const*>(at + record::scales_offset + 4 * id));
  }

  template <class Lane>
  QPN_HD void load_half(Lane& lane, std::byte const* at, int id, int which) noexcept {
    operand_shape::load_half(lane, at, id, which);
    scale_bytes = lane.load_stream(
        reinterpret_cast<std::uint16_t const*>(at + record::scales_offset + 4 * id + 2 * which));
  }

  /// a[step]: operand A of half h.
  template <class Lane>
  QPN_HD void fragment(Lane& lane, int f, int h, std::uint32_t (&a)[steps][4]) const noexcept {
    std::uint32_t scales[2];
    decode_scales(scale_bytes, scales);
    scale_pairs(
        lane, f, h, scales,
        [&](std::uint32_t word, std::uint32_t(&pairs)[4]) { decode_e2m1_word(lane, word, pairs); },
        [&](std::uint32_t pair, std::uint32_t scale) { return lane.multiply_half2(pair, scale); },
        a);
  }

 protected:
  /// a[step]: the pairs of half h's words, as `decode` makes them, times their rows' scales.
  template <class Lane, class Decode, class Multiply>
  QPN_HD void scale_pairs(Lane& lane, int f, int h, std::uint32_t const (&scales)[2],
                          Decode const& decode, Multiply const& multiply,
                          std::uint32_t (&a)[steps][4]) const noexcept {
    QPN_UNROLL
    for (int r = 0; r < 2; ++r) {
      std::uint32_t pairs[4];
      decode(half[h].w[2 * f + r], pairs);
      std::uint32_t const scale =
          h == 0 ? lane.broadcast_low(scales[r]) : lane.broadcast_high(scales[r]);
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) a[i / 2][r + 2 * (i % 2)] = multiply(pairs[i], scale);
    }
  }
};

/// half2 = e4m3 * 2^-8. With BlockScales the sums of each fragment are multiplied by the fp32
/// scales of its two tiles.
template <bool BlockScales>
struct weight_operand<fp8, dtype::e4m3, BlockScales> : operand_shape<fp8, 1, 2> {
  static constexpr int half_exponent = e4m3_half_exponent;
  static constexpr bool block_scales = BlockScales;

  template <class Lane>
  QPN_HD void fragment(Lane&, int, int h, std::uint32_t (&a)[steps][4]) const noexcept {
    QPN_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t pairs[2];
      decode_e4m3_word(half[h].w[j], pairs);
      a[j / 2][j % 2] = pairs[0];
      a[j / 2][j % 2 + 2] = pairs[1];
    }
  }
};

/// half2 = two f16 as published.
template <>
struct weight_operand<dense16, dtype::f16> : operand_shape<dense16, 1, 1> {
  static constexpr int half_exponent = 0;

  template <class Lane>
  QPN_HD void fragment(Lane&, int, int h, std::uint32_t (&a)[steps][4]) const noexcept {
    QPN_UNROLL
    for (int j = 0; j < 4; ++j) a[0][j] = half[h].w[j];
  }
};

/// half2 = two bf16 * 2^8, rounded to nearest even: exact for 0 and 2^-25 <= |w| < 2^8.
template <>
struct weight_operand<dense16, dtype::bf16> : operand_shape<dense16, 1, 1> {
  static constexpr int half_exponent = bf16_half_exponent;

  template <class Lane>
  QPN_HD void fragment(Lane& lane, int, int h, std::uint32_t (&a)[steps][4]) const noexcept {
    QPN_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t const word = half[h].w[j];
      a[0][j] = lane.convert_half2(bits_float(word << 16) * 256.0f,
                                   bits_float(word & 0xffff0000u) * 256.0f);
    }
  }
};

}  // namespace qpn::detail::sm80
