// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"

// How registers decode the words of detail/quadpair_codes.hpp for rows of x in bf16: to bf16 pairs,
// two consecutive k, the even one in the low half. A code's exponent and mantissa bits move to
// where bf16 has them, which is the value times a small power of two, subnormals included; products
// in bf16 bring it back. Both are exact: e2m1 times e4m3 has 6 significant bits, e4m3 has 4, bf16
// has 8.

namespace qpn::detail {

/// out[j] = bf16 pair of codes 2j and 2j + 1, times 2^-126. 13 operations, 2 of them PRMT.
/// @param lane  has byte_permute, as PTX prmt.b32
template <class Lane>
QPN_HD constexpr void decode_e2m1_word_bf16(Lane& lane, std::uint32_t x,
                                            std::uint32_t (&out)[4]) noexcept {
  out[0] = ((x >> 3) & 0x01c001c0u) | (x & 0x80008000u);
  // A product with two powers of two is two shifts at once: alone in its half, a code meets no bit
  // of its other self or of its neighbour's.
  constexpr std::uint32_t pair_bits = 0x81c081c0u;
  out[1] = (x & 0x008e008eu) * 0x0120u & pair_bits;  // sign by 8, magnitude by 5
  std::uint32_t const folded = x & 0x71717171u;
  for (int i = 0; i < 2; ++i) {
    // Selector 4 is a byte of the zero word.
    std::uint32_t const pair = lane.byte_permute(folded, 0u, i == 0 ? 0x4140u : 0x4342u);
    out[2 + i] = pair * 0x8004u & pair_bits;  // sign by 15, magnitude by 2
  }
}

/// What decode_e2m1_word_bf16 leaves out is in the scale: bf16 of decode_scales_bf16 = value *
/// 2^118, which makes weights of value * 2^-8.
inline constexpr int nvfp4_bf16_exponent = -8;

/// The 4 S0E5M3 scale bytes of a lane as bf16 pairs, times 2^118: out[0] = bytes 0 and 2, out[1] =
/// bytes 1 and 3, each low half first. 8 operations.
/// @param lane  has multiply_bf16x2
template <class Lane>
QPN_HD constexpr void decode_scales_bf16(Lane& lane, std::uint32_t bytes,
                                         std::uint32_t (&out)[2]) noexcept {
  constexpr std::uint32_t two_to_127 = 0x7f007f00u;
  constexpr std::uint32_t two_to_96 = 0x6f806f80u;
  std::uint32_t const pairs[2] = {(bytes << 4) & 0x0ff00ff0u,   // times 2^-105
                                  (bytes >> 4) & 0x0ff00ff0u};  // a zero byte is 0, as it must be
  for (int i = 0; i < 2; ++i) {
    out[i] = lane.multiply_bf16x2(lane.multiply_bf16x2(pairs[i], two_to_127), two_to_96);
  }
}

/// out[j] = bf16 pair of codes 2j and 2j + 1. 9 operations.
/// @param lane  has multiply_bf16x2
template <class Lane>
QPN_HD constexpr void decode_e4m3_word_bf16(Lane& lane, std::uint32_t x,
                                            std::uint32_t (&out)[2]) noexcept {
  constexpr std::uint32_t two_to_120 = 0x7b807b80u;
  out[0] = lane.multiply_bf16x2(((x >> 3) & 0x07f007f0u) | (x & 0x80008000u), two_to_120);
  out[1] = lane.multiply_bf16x2(((x << 4) & 0x07f007f0u) | ((x << 1) & 0x80008000u), two_to_120);
}

}  // namespace qpn::detail
