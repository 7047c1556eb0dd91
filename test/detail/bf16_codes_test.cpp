// SPDX-License-Identifier: Apache-2.0
#include "qpn/detail/bf16_codes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <qpn/detail/quadpair_codes.hpp>
#include <qpn/dtype.hpp>

#include "support/emulator/warp_math.hpp"
#include "support/random.hpp"

namespace qpn::test {
namespace {

struct host_lane {
  [[nodiscard]] std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b,
                                           std::uint32_t selector) const {
    return test::byte_permute(a, b, selector);
  }
  [[nodiscard]] std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) const {
    return test::multiply_bf16x2(a, b);
  }
};

double value_of(std::uint32_t pair, int high) {
  return static_cast<double>(decode_bf16(static_cast<std::uint16_t>(pair >> 16 * high)));
}

/// Equal numbers with equal signs: tells -0 from 0.
bool is_same(double value, double expected) {
  return value == expected && std::signbit(value) == std::signbit(expected);
}

TEST(bf16_codes, e2m1_words_decode_to_every_pair_of_codes_in_every_place) {
  host_lane const lane;
  random_source random(1);
  for (int place = 0; place < 4; ++place) {
    for (int pair = 0; pair < 256; ++pair) {
      std::uint8_t codes[8];
      for (std::uint8_t& code : codes) code = random.byte() & 0xf;
      codes[2 * place] = static_cast<std::uint8_t>(pair & 0xf);
      codes[2 * place + 1] = static_cast<std::uint8_t>(pair >> 4);
      std::uint32_t pairs[4] = {};
      detail::decode_e2m1_word_bf16(lane, detail::pack_e2m1_word(codes), pairs);
      for (int i = 0; i < 8; ++i) {
        double const expected = std::ldexp(static_cast<double>(decode_e2m1(codes[i])), -126);
        ASSERT_TRUE(is_same(value_of(pairs[i / 2], i % 2), expected))
            << "pair " << pair << " at " << place << ", code " << i << ", seed " << random.seed();
      }
    }
  }
}

TEST(bf16_codes, every_code_times_every_block_scale_is_exact) {
  host_lane const lane;
  for (int scale = 0; scale < 0x7f; ++scale) {
    auto const e4m3 = static_cast<std::uint8_t>(scale);
    std::uint32_t const byte = detail::encode_block_scale(e4m3);
    for (int place = 0; place < 4; ++place) {
      // The other three bytes are another scale's.
      std::uint32_t const bytes = byte << 8 * place | (0x6b6b6b6bu & ~(0xffu << 8 * place));
      std::uint32_t scales[2] = {};
      detail::decode_scales_bf16(lane, bytes, scales);
      std::uint32_t const one = scales[place % 2] >> 16 * (place / 2) & 0xffffu;
      std::uint32_t const both = one * 0x10001u;
      for (std::uint8_t first = 0; first < 16; first = static_cast<std::uint8_t>(first + 8)) {
        std::uint8_t codes[8];
        for (std::uint8_t i = 0; i < 8; ++i) codes[i] = static_cast<std::uint8_t>(first + i);
        std::uint32_t pairs[4] = {};
        detail::decode_e2m1_word_bf16(lane, detail::pack_e2m1_word(codes), pairs);
        for (int i = 0; i < 8; ++i) {
          double const expected = std::ldexp(
              static_cast<double>(decode_e2m1(codes[i])) * static_cast<double>(decode_e4m3(e4m3)),
              detail::nvfp4_bf16_exponent);
          std::uint32_t const product = lane.multiply_bf16x2(pairs[i / 2], both);
          ASSERT_TRUE(is_same(value_of(product, i % 2), expected))
              << "scale " << scale << " at " << place << ", code " << int{codes[i]};
        }
      }
    }
  }
}

TEST(bf16_codes, e4m3_words_decode_to_every_pair_of_codes_in_every_place) {
  host_lane const lane;
  random_source random(2);
  for (int place = 0; place < 2; ++place) {
    for (int pair = 0; pair < 65536; ++pair) {
      std::uint8_t codes[4] = {random.byte(), random.byte(), random.byte(), random.byte()};
      codes[2 * place] = static_cast<std::uint8_t>(pair);
      codes[2 * place + 1] = static_cast<std::uint8_t>(pair >> 8);
      std::uint32_t pairs[2] = {};
      detail::decode_e4m3_word_bf16(lane, detail::pack_e4m3_word(codes), pairs);
      for (int i = 0; i < 4; ++i) {
        if (is_nan_e4m3(codes[i])) continue;
        ASSERT_TRUE(
            is_same(value_of(pairs[i / 2], i % 2), static_cast<double>(decode_e4m3(codes[i]))))
            << "code " << int{codes[i]} << " at " << i << ", seed " << random.seed();
      }
    }
  }
}

}  // namespace
}  // namespace qpn::test
