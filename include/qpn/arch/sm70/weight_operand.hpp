// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_codes.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"

// Operand B of m8n8k4 from a record of layout sm70_quadpair: a lane's registers as loaded, and how
// they become fp16 pairs. A fragment is 8 consecutive k of the lane's weight row: B of two
// m8n8k4, 4 half2.
//
// The two halves of a record are the two buffers of the pipeline: as soon as the last fragment of
// a half is decoded, the same half of the next record is loaded into its registers, and travels
// while the other half is multiplied.

namespace qpn::detail::sm70 {

/// How a warp loads weights: alone, or while another warp of its CTA loads the same.
template <class Lane, bool Together>
struct weight_reader {
  Lane& lane;

  template <class T>
  [[nodiscard]] QPN_HD T load_stream(T const* p) noexcept {
    if constexpr (Together) {
      return lane.load_together(p);
    } else {
      return lane.load_stream(p);
    }
  }
};

template <class Format, dtype Code>
struct weight_operand;

/// What all operands share: 32 bytes of codes per lane and record.
template <class Format>
struct operand_registers {
  using record = quadpair_record<Format>;
  static constexpr int record_k = record::k;
  static constexpr int record_bytes = record::bytes;
  static constexpr int fragments = record_k / 8;
  static constexpr int fragments_per_half = fragments / 2;
  /// Whether the products of each record get an fp32 scale before they are added up.
  static constexpr bool fp32_scales_along_k = false;

  word4 half[2];

  /// `codes` is the record's first byte + 16 * lane.
  template <class Lane>
  QPN_HD void load_half(Lane& lane, std::byte const* codes, int h) noexcept {
    half[h] = lane.load_stream(reinterpret_cast<word4 const*>(codes + h * record::half_bytes));
  }
};

/// half2 = e2m1 * 2^-14 times block scale * 2^7: exact, and weight * 2^-7.
template <>
struct weight_operand<nvfp4, dtype::e2m1> : operand_registers<nvfp4> {
  static constexpr int half_exponent = e2m1_half_exponent + scale_half_exponent;

  std::uint32_t scale_bytes;
  std::uint32_t scales[2];

  /// `scales_at` is the record's first scale + 4 * lane.
  template <class Lane>
  QPN_HD void load_scales(Lane& lane, std::byte const* scales_at) noexcept {
    scale_bytes = lane.load_stream(reinterpret_cast<std::uint32_t const*>(scales_at));
  }

  QPN_HD void begin_record() noexcept { decode_scales(scale_bytes, scales); }

  template <class Lane>
  QPN_HD void fragment(Lane& lane, int f, std::uint32_t (&b)[4]) noexcept {
    decode_e2m1_word(lane, half[f / 4].w[f % 4], b);
    int const group = f / 2;
    std::uint32_t const scale =
        group < 2 ? lane.broadcast_low(scales[group]) : lane.broadcast_high(scales[group - 2]);
    for (std::uint32_t& pair : b) pair = lane.multiply_half2(pair, scale);
  }
};

/// half2 = e4m3 * 2^-8.
template <>
struct weight_operand<fp8, dtype::e4m3> : operand_registers<fp8> {
  static constexpr int half_exponent = e4m3_half_exponent;

  template <class Lane>
  QPN_HD void load_scales(Lane&, std::byte const*) noexcept {}
  QPN_HD void begin_record() noexcept {}

  template <class Lane>
  QPN_HD void fragment(Lane&, int f, std::uint32_t (&b)[4]) noexcept {
    for (int i = 0; i < 2; ++i) {
      std::uint32_t pair[2];
      decode_e4m3_word(half[f / 2].w[f % 2 * 2 + i], pair);
      b[2 * i] = pair[0];
      b[2 * i + 1] = pair[1];
    }
  }
};

/// The same with an fp32 scale for each block of 128 x 128 weights, which the kernel multiplies the
/// sums of a record by: a record is 32 k of 32 rows, and lies in one block.
struct block_scaled_fp8 : weight_operand<fp8, dtype::e4m3> {
  static constexpr bool fp32_scales_along_k = true;
  static constexpr int records_per_scale = static_cast<int>(scale_block) / record_k;
};

/// half2 = two f16 as published.
template <>
struct weight_operand<dense16, dtype::f16> : operand_registers<dense16> {
  static constexpr int half_exponent = 0;

  template <class Lane>
  QPN_HD void load_scales(Lane&, std::byte const*) noexcept {}
  QPN_HD void begin_record() noexcept {}

  template <class Lane>
  QPN_HD void fragment(Lane&, int f, std::uint32_t (&b)[4]) noexcept {
    for (int i = 0; i < 4; ++i) b[i] = half[f].w[i];
  }
};

/// half2 = two bf16 * 2^8, rounded to nearest even: exact for 0 and 2^-25 <= |w| < 2^8.
template <>
struct weight_operand<dense16, dtype::bf16> : operand_registers<dense16> {
  static constexpr int half_exponent = bf16_half_exponent;

  template <class Lane>
  QPN_HD void load_scales(Lane&, std::byte const*) noexcept {}
  QPN_HD void begin_record() noexcept {}

  template <class Lane>
  QPN_HD void fragment(Lane& lane, int f, std::uint32_t (&b)[4]) noexcept {
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const word = half[f].w[i];
      b[i] = lane.convert_half2(bits_float(word << 16) * 256.0f,
                                bits_float(word & 0xffff0000u) * 256.0f);
    }
  }
};

}  // namespace qpn::detail::sm70
