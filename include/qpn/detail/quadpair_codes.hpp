// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/dtype.hpp"

// The words of layout sm70_quadpair: how codes lie in them (pack, unpack) and how registers decode
// them. The bit order is chosen so that few operations turn a word into fp16 pairs ("half2": two
// consecutive k, the even one in the low half). Decoders give the codes' values times a power of
// two, exactly; the powers come back in fp32, with the tensor or channel scale.

namespace qpn::detail {

// e2m1. A finished half has the sign at bit 15 and the three magnitude bits at bits 11..9, which is
// value * 2^-14. In the word, bytes 1, 3, 0 and 2 hold the finished high bytes of codes 0..3 at
// bits 7 and 3..1; the gaps of bytes 0..3 hold codes 4..7: the magnitude at bits 6..4, the sign at
// bit 0.

/// fp16 of decode_e2m1_word = value * 2^-14.
inline constexpr int e2m1_half_exponent = -14;

/// Code 0..3 as its byte of the word; only the low four bits count.
[[nodiscard]] QPN_HD constexpr std::uint32_t finished_e2m1(std::uint8_t code) noexcept {
  return (code & 0x8u) << 4 | (code & 0x7u) << 1;
}

/// Code 4..7 in the gaps of its byte of the word; only the low four bits count.
[[nodiscard]] QPN_HD constexpr std::uint32_t folded_e2m1(std::uint8_t code) noexcept {
  return (code & 0x7u) << 4 | (code >> 3 & 1u);
}

/// 8 e2m1 codes, in the order of k; only the low four bits of each count.
[[nodiscard]] QPN_HD constexpr std::uint32_t pack_e2m1_word(
    std::uint8_t const (&codes)[8]) noexcept {
  return (finished_e2m1(codes[2]) | folded_e2m1(codes[4])) |
         (finished_e2m1(codes[0]) | folded_e2m1(codes[5])) << 8 |
         (finished_e2m1(codes[3]) | folded_e2m1(codes[6])) << 16 |
         (finished_e2m1(codes[1]) | folded_e2m1(codes[7])) << 24;
}

/// The inverse of pack_e2m1_word.
QPN_HD constexpr void unpack_e2m1_word(std::uint32_t word, std::uint8_t (&codes)[8]) noexcept {
  int const bytes[8] = {1, 3, 0, 2, 0, 1, 2, 3};
  for (int i = 0; i < 8; ++i) {
    std::uint32_t const byte = word >> 8 * bytes[i];
    codes[i] = static_cast<std::uint8_t>(i < 4 ? (byte >> 4 & 0x8u) | (byte >> 1 & 0x7u)
                                               : (byte << 3 & 0x8u) | (byte >> 4 & 0x7u));
  }
}

/// out[j] = half2 of codes 2j and 2j + 1, times 2^-14. 9 operations, 2 of them PRMT.
/// @param lane  has byte_permute, as PTX prmt.b32
template <class Lane>
QPN_HD constexpr void decode_e2m1_word(Lane& lane, std::uint32_t x,
                                       std::uint32_t (&out)[4]) noexcept {
  std::uint32_t const finished = ((x >> 3) & 0x0e0e0e0eu) | ((x << 7) & 0x80808080u);
  out[0] = x & 0x8e008e00u;
  out[1] = (x << 8) & 0x8e008e00u;
  // Selector 4 is a byte of the zero word.
  out[2] = lane.byte_permute(finished, 0u, 0x1404u);
  out[3] = lane.byte_permute(finished, 0u, 0x3424u);
}

// e4m3. A finished half has the sign at bit 15 and the seven magnitude bits at bits 13..7, which is
// value * 2^-8. In the word, codes 0 and 1 lie finished in the low and the high half; codes 2 and 3
// lie between them: the magnitude at bits 6..0, the sign at bit 14 of their half.

/// fp16 of decode_e4m3_word = value * 2^-8.
inline constexpr int e4m3_half_exponent = -8;

/// Code 0 or 1 as its half of the word.
[[nodiscard]] QPN_HD constexpr std::uint32_t finished_e4m3(std::uint8_t code) noexcept {
  return (code & 0x80u) << 8 | (code & 0x7fu) << 7;
}

/// Code 2 or 3 in the gaps of its half of the word.
[[nodiscard]] QPN_HD constexpr std::uint32_t folded_e4m3(std::uint8_t code) noexcept {
  return (code & 0x80u) << 7 | (code & 0x7fu);
}

/// 4 e4m3 codes, in the order of k.
[[nodiscard]] QPN_HD constexpr std::uint32_t pack_e4m3_word(
    std::uint8_t const (&codes)[4]) noexcept {
  return (finished_e4m3(codes[0]) | folded_e4m3(codes[2])) |
         (finished_e4m3(codes[1]) | folded_e4m3(codes[3])) << 16;
}

/// The inverse of pack_e4m3_word.
QPN_HD constexpr void unpack_e4m3_word(std::uint32_t word, std::uint8_t (&codes)[4]) noexcept {
  for (int i = 0; i < 2; ++i) {
    std::uint32_t const half = word >> 16 * i;
    codes[i] = static_cast<std::uint8_t>((half >> 8 & 0x80u) | (half >> 7 & 0x7fu));
    codes[2 + i] = static_cast<std::uint8_t>((half >> 7 & 0x80u) | (half & 0x7fu));
  }
}

/// out[j] = half2 of codes 2j and 2j + 1, times 2^-8. 5 operations.
QPN_HD constexpr void decode_e4m3_word(std::uint32_t x, std::uint32_t (&out)[2]) noexcept {
  out[0] = x & 0xbf80bf80u;
  out[1] = ((x << 7) & 0x3f803f80u) | ((x << 1) & 0x80008000u);
}

// Block scales: the magnitude of an e4m3 value times 2^7 is a normal fp16 number or zero with three
// mantissa bits, so that its upper bits without the sign, "S0E5M3", fit a byte. A half made from it
// times a half of decode_e2m1_word is exact in fp16: 2 x 4 significant bits, between 2^-17 and 21.

/// fp16 of decode_scales = value * 2^7.
inline constexpr int scale_half_exponent = 7;

/// The S0E5M3 byte of |e4m3|; the sign is not kept. Not for NaN.
[[nodiscard]] QPN_HD constexpr std::uint8_t encode_block_scale(std::uint8_t e4m3) noexcept {
  float const magnitude = decode_e4m3(static_cast<std::uint8_t>(e4m3 & 0x7fu));
  return static_cast<std::uint8_t>(encode_f16(magnitude * 128.0f) >> 7);
}

/// The e4m3 code >= 0 of an S0E5M3 byte: the inverse of encode_block_scale.
[[nodiscard]] QPN_HD constexpr std::uint8_t decode_block_scale(std::uint8_t byte) noexcept {
  return encode_e4m3(decode_f16(static_cast<std::uint16_t>(byte << 7)) / 128.0f);
}

/// The 4 scale bytes of a lane as halves, times 2^7: out[0] = bytes 0 and 2, out[1] = bytes 1 and
/// 3, each low half first. 4 operations.
QPN_HD constexpr void decode_scales(std::uint32_t bytes, std::uint32_t (&out)[2]) noexcept {
  out[0] = (bytes << 7) & 0x7f807f80u;
  out[1] = (bytes >> 1) & 0x7f807f80u;
}

// dense16. Words are pairs as published: f16 is half2 already; a bf16 becomes fp16 of value * 2^8,
// rounded to nearest even, in the kernel's registers. That is exact for 0 and 2^-25 <= |value| <
// 2^8; below it the value moves by at most 2^-33.

/// fp16 that kernels make of a bf16 weight = value * 2^8.
inline constexpr int bf16_half_exponent = 8;

/// Whether fp16 of a bf16's value * 2^8 is finite: |value| < 255.875, which for a bf16 is < 256.
[[nodiscard]] QPN_HD constexpr bool bf16_fits_half(std::uint16_t bf16) noexcept {
  return (bf16 & 0x7fffu) < 0x4380u;
}

/// 2 f16 or bf16 codes, in the order of k.
[[nodiscard]] QPN_HD constexpr std::uint32_t pack_dense_word(
    std::uint16_t const (&codes)[2]) noexcept {
  return codes[0] | static_cast<std::uint32_t>(codes[1]) << 16;
}

/// The inverse of pack_dense_word.
QPN_HD constexpr void unpack_dense_word(std::uint32_t word, std::uint16_t (&codes)[2]) noexcept {
  codes[0] = static_cast<std::uint16_t>(word);
  codes[1] = static_cast<std::uint16_t>(word >> 16);
}

}  // namespace qpn::detail
