// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"

namespace qpn::detail {

[[nodiscard]] QPN_HD constexpr std::uint32_t float_bits(float value) noexcept {
  return __builtin_bit_cast(std::uint32_t, value);
}

[[nodiscard]] QPN_HD constexpr float bits_float(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

/// |bits| > infinity. Takes the bits so that -ffast-math cannot remove the test.
[[nodiscard]] QPN_HD constexpr bool is_nan_bits(std::uint32_t bits) noexcept {
  return (bits & 0x7fffffffu) > 0x7f800000u;
}

[[nodiscard]] QPN_HD constexpr bool is_finite(float value) noexcept {
  return (float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

/// The magnitude of a finite float in a binary format with `ManBits` stored mantissa bits, exponent
/// bias `Bias` and subnormals, rounded to nearest with ties to even, as exponent and mantissa bits
/// without the sign. The result grows past the format's largest exponent where the value does: the
/// caller saturates.
template <int ManBits, int Bias>
[[nodiscard]] QPN_HD constexpr std::uint32_t round_magnitude(
    std::uint32_t magnitude_bits) noexcept {
  int const exponent = static_cast<int>(magnitude_bits >> 23) - 127;
  int const drop = 23 - ManBits;
  int const min_exponent = 1 - Bias;
  std::uint32_t significand = 0;
  int shift = drop;
  if (exponent >= min_exponent) {
    significand = magnitude_bits - (static_cast<std::uint32_t>(127 - Bias) << 23);
  } else {
    // Subnormal in the target: shift the explicit significand. By more than 24 places nothing is
    // left, since the value is below half of the smallest step.
    shift = drop + (min_exponent - exponent);
    if (shift > 24) return 0;
    significand = (magnitude_bits & 0x7fffffu) | 0x800000u;
  }
  std::uint32_t const half_less_one = (1u << (shift - 1)) - 1u;
  return (significand + half_less_one + ((significand >> shift) & 1u)) >> shift;
}

/// The finite value with exponent and mantissa bits `magnitude` in the same family of formats;
/// always exact in fp32.
template <int ManBits, int Bias>
[[nodiscard]] QPN_HD constexpr float expand_magnitude(std::uint32_t magnitude) noexcept {
  if (magnitude < (1u << ManBits)) {  // subnormal: magnitude x 2^(1 - Bias - ManBits)
    return static_cast<float>(magnitude) *
           bits_float(static_cast<std::uint32_t>(127 + 1 - Bias - ManBits) << 23);
  }
  return bits_float((magnitude << (23 - ManBits)) + (static_cast<std::uint32_t>(127 - Bias) << 23));
}

}  // namespace qpn::detail
