// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/bits.hpp"

// Number formats and their exact codecs. Every decoder is exact in fp32. Every encoder rounds to
// the nearest representable value, ties to the even code; what lies beyond the range is stated at
// each encoder.

namespace qpn {

enum class dtype : std::uint8_t { e2m1, e4m3, e8m0, f16, bf16, f32 };

/// Bits of one element.
[[nodiscard]] QPN_HD constexpr int bits(dtype type) noexcept {
  switch (type) {
    case dtype::e2m1: return 4;
    case dtype::e4m3:
    case dtype::e8m0: return 8;
    case dtype::f16:
    case dtype::bf16: return 16;
    case dtype::f32: return 32;
  }
  return 0;
}

[[nodiscard]] constexpr char const* to_string(dtype type) noexcept {
  switch (type) {
    case dtype::e2m1: return "e2m1";
    case dtype::e4m3: return "e4m3";
    case dtype::e8m0: return "e8m0";
    case dtype::f16: return "f16";
    case dtype::bf16: return "bf16";
    case dtype::f32: return "f32";
  }
  return "unknown dtype";
}

/// Largest finite values.
inline constexpr float e2m1_max = 6.0f;
inline constexpr float e4m3_max = 448.0f;
inline constexpr float f16_max = 65504.0f;

/// e2m1: sign, 2 exponent bits (bias 1), 1 mantissa bit; magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6. No
/// infinity, no NaN. Only the low four bits of `code` count.
[[nodiscard]] QPN_HD constexpr float decode_e2m1(std::uint8_t code) noexcept {
  float const magnitude = detail::expand_magnitude<1, 1>(code & 0x7u);
  return (code & 0x8u) != 0 ? -magnitude : magnitude;
}

/// Saturates to +-6; NaN becomes +6 (code 7), as in PTX cvt.satfinite. Keeps the sign of zero.
[[nodiscard]] QPN_HD constexpr std::uint8_t encode_e2m1(float value) noexcept {
  std::uint32_t const word = detail::float_bits(value);
  if (detail::is_nan_bits(word)) return 0x7;
  std::uint32_t const magnitude = detail::round_magnitude<1, 1>(word & 0x7fffffffu);
  return static_cast<std::uint8_t>((word >> 28 & 0x8u) | (magnitude > 0x7u ? 0x7u : magnitude));
}

/// e4m3 (the "fn" variant): sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity; 0x7f and
/// 0xff are NaN; largest 448, smallest 2^-9.
[[nodiscard]] QPN_HD constexpr float decode_e4m3(std::uint8_t code) noexcept {
  std::uint32_t const sign = (code & 0x80u) << 24;
  if ((code & 0x7fu) == 0x7fu) return detail::bits_float(sign | 0x7fc00000u);
  float const magnitude = detail::expand_magnitude<3, 7>(code & 0x7fu);
  return sign != 0 ? -magnitude : magnitude;
}

[[nodiscard]] QPN_HD constexpr bool is_nan_e4m3(std::uint8_t code) noexcept {
  return (code & 0x7fu) == 0x7fu;
}

/// Saturates to +-448, infinities included; NaN becomes 0x7f. Keeps the sign of zero.
[[nodiscard]] QPN_HD constexpr std::uint8_t encode_e4m3(float value) noexcept {
  std::uint32_t const word = detail::float_bits(value);
  if (detail::is_nan_bits(word)) return 0x7f;
  std::uint32_t const magnitude = detail::round_magnitude<3, 7>(word & 0x7fffffffu);
  return static_cast<std::uint8_t>((word >> 24 & 0x80u) | (magnitude > 0x7eu ? 0x7eu : magnitude));
}

/// e8m0: 2^(code - 127); 0xff is NaN. No sign, no zero.
[[nodiscard]] QPN_HD constexpr float decode_e8m0(std::uint8_t code) noexcept {
  if (code == 0xff) return detail::bits_float(0x7fc00000u);
  return detail::bits_float(code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23);
}

/// The power of two nearest in value, so 1.5 x 2^e is a tie and goes to the even code. Zero and
/// negative values become the smallest power, 2^-127; what is above 2^127 becomes 2^127; NaN
/// becomes 0xff.
[[nodiscard]] QPN_HD constexpr std::uint8_t encode_e8m0(float value) noexcept {
  std::uint32_t const word = detail::float_bits(value);
  if (detail::is_nan_bits(word)) return 0xff;
  if (word >= 0x80000000u) return 0;
  std::uint32_t const exponent = word >> 23;
  std::uint32_t const mantissa = word & 0x7fffffu;
  // Below 2^-126 fp32 is subnormal: the neighbours are 2^-127 and 2^-126, with their tie at
  // 0x600000.
  if (exponent == 0) return mantissa > 0x600000u ? 1 : 0;
  bool const up = mantissa > 0x400000u || (mantissa == 0x400000u && (exponent & 1u) != 0);
  std::uint32_t const code = exponent + (up ? 1u : 0u);
  return static_cast<std::uint8_t>(code > 0xfeu ? 0xfeu : code);
}

/// IEEE binary16. NaN keeps its sign and payload and becomes quiet, as F16C does.
[[nodiscard]] QPN_HD constexpr float decode_f16(std::uint16_t code) noexcept {
  std::uint32_t const sign = (code & 0x8000u) << 16;
  std::uint32_t const magnitude = code & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    std::uint32_t const quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
    return detail::bits_float(sign | 0x7f800000u | quiet | (magnitude & 0x3ffu) << 13);
  }
  float const value = detail::expand_magnitude<10, 15>(magnitude);
  return sign != 0 ? -value : value;
}

/// Overflow becomes infinity. NaN keeps its sign and the upper bits of its payload and becomes
/// quiet, as F16C does.
[[nodiscard]] QPN_HD constexpr std::uint16_t encode_f16(float value) noexcept {
  std::uint32_t const word = detail::float_bits(value);
  std::uint32_t const sign = word >> 16 & 0x8000u;
  std::uint32_t const magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  std::uint32_t const rounded = detail::round_magnitude<10, 15>(magnitude);
  return static_cast<std::uint16_t>(sign | (rounded > 0x7c00u ? 0x7c00u : rounded));
}

/// As encode_f16, but finite values beyond the range become +-65504. Infinities and NaN stay what
/// they are, so that a broken row never looks healthy.
[[nodiscard]] QPN_HD constexpr std::uint16_t encode_f16_saturating(float value) noexcept {
  std::uint16_t const code = encode_f16(value);
  bool const overflowed = (code & 0x7fffu) == 0x7c00u && detail::is_finite(value);
  return overflowed ? static_cast<std::uint16_t>(code - 1u) : code;
}

/// bfloat16: the upper half of an fp32, NaN payloads included.
[[nodiscard]] QPN_HD constexpr float decode_bf16(std::uint16_t code) noexcept {
  return detail::bits_float(static_cast<std::uint32_t>(code) << 16);
}

/// Overflow becomes infinity. NaN keeps its sign and the upper bits of its payload and becomes
/// quiet.
[[nodiscard]] QPN_HD constexpr std::uint16_t encode_bf16(float value) noexcept {
  std::uint32_t const word = detail::float_bits(value);
  if (detail::is_nan_bits(word)) return static_cast<std::uint16_t>(word >> 16 | 0x40u);
  return static_cast<std::uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}

}  // namespace qpn
