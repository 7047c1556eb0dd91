// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <qpn/detail/quadpair_codes.hpp>
#include <qpn/dtype.hpp>

#include "support/random.hpp"

namespace {

using namespace qpn::detail;
using qpn::test::random_source;

/// PRMT as the PTX ISA defines it for selectors without sign replication.
struct host_lane {
  [[nodiscard]] constexpr std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b,
                                                     std::uint32_t selector) const noexcept {
    std::uint64_t const bytes = static_cast<std::uint64_t>(b) << 32 | a;
    std::uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      std::uint32_t const index = selector >> 4 * i & 0x7u;
      result |= static_cast<std::uint32_t>(bytes >> 8 * index & 0xffu) << 8 * i;
    }
    return result;
  }
};

constexpr std::uint16_t half_of(std::uint32_t half2, int high) {
  return static_cast<std::uint16_t>(half2 >> 16 * high);
}

double value_of(std::uint16_t half) {
  return static_cast<double>(qpn::decode_f16(half));
}

/// Equal numbers with equal signs: tells -0 from 0.
void expect_same(double value, double expected) {
  EXPECT_EQ(value, expected);
  EXPECT_EQ(std::signbit(value), std::signbit(expected));
}

constexpr std::uint32_t first_e2m1_word() {
  std::uint8_t const codes[8] = {0xf, 0, 0, 0, 0, 0, 0, 0};
  return pack_e2m1_word(codes);
}
static_assert(first_e2m1_word() == 0x00008e00u, "code 0 lies finished in the low half");

}  // namespace

TEST(quadpair_codes, e2m1_words_decode_to_every_pair_of_codes_in_every_place) {
  host_lane const lane;
  random_source random(1);
  for (int place = 0; place < 4; ++place) {
    for (int pair = 0; pair < 256; ++pair) {
      SCOPED_TRACE(testing::Message() << "pair " << pair << ", seed " << random.seed());
      std::uint8_t codes[8];
      for (std::uint8_t& code : codes) code = random.byte() & 0xf;
      codes[2 * place] = static_cast<std::uint8_t>(pair & 0xf);
      codes[2 * place + 1] = static_cast<std::uint8_t>(pair >> 4);
      std::uint32_t halves[4] = {};
      decode_e2m1_word(lane, pack_e2m1_word(codes), halves);
      for (int i = 0; i < 8; ++i) {
        double const expected =
            std::ldexp(static_cast<double>(qpn::decode_e2m1(codes[i])), e2m1_half_exponent);
        expect_same(value_of(half_of(halves[i / 2], i % 2)), expected);
      }
    }
  }
}

TEST(quadpair_codes, e4m3_words_decode_to_every_pair_of_codes_in_every_place) {
  random_source random(2);
  for (int place = 0; place < 2; ++place) {
    for (int pair = 0; pair < 65536; ++pair) {
      std::uint8_t codes[4] = {random.byte(), random.byte(), random.byte(), random.byte()};
      codes[2 * place] = static_cast<std::uint8_t>(pair);
      codes[2 * place + 1] = static_cast<std::uint8_t>(pair >> 8);
      std::uint32_t halves[2] = {};
      decode_e4m3_word(pack_e4m3_word(codes), halves);
      for (int i = 0; i < 4; ++i) {
        if (qpn::is_nan_e4m3(codes[i])) continue;
        double const expected =
            std::ldexp(static_cast<double>(qpn::decode_e4m3(codes[i])), e4m3_half_exponent);
        double const value = value_of(half_of(halves[i / 2], i % 2));
        if (value != expected || std::signbit(value) != std::signbit(expected)) {
          FAIL() << "code " << int{codes[i]} << " at " << i << ": " << value << ", seed "
                 << random.seed();
        }
      }
    }
  }
}

TEST(quadpair_codes, packing_and_unpacking_are_inverse_on_random_words) {
  random_source random(3);
  for (int round = 0; round < 20000; ++round) {
    std::uint32_t const word = random.word();
    SCOPED_TRACE(testing::Message() << "word " << word << ", seed " << random.seed());
    std::uint8_t e2m1[8] = {};
    unpack_e2m1_word(word, e2m1);
    for (std::uint8_t const code : e2m1) ASSERT_LT(code, 16);
    ASSERT_EQ(pack_e2m1_word(e2m1), word);
    std::uint8_t e4m3[4] = {};
    unpack_e4m3_word(word, e4m3);
    ASSERT_EQ(pack_e4m3_word(e4m3), word);
    std::uint16_t dense[2] = {};
    unpack_dense_word(word, dense);
    ASSERT_EQ(pack_dense_word(dense), word);
  }
}

TEST(quadpair_codes, every_bit_of_a_word_belongs_to_one_code) {
  // Words are bijective over GF(2) if single bits of codes become single and different bits.
  std::uint32_t e2m1 = 0;
  for (int bit = 0; bit < 32; ++bit) {
    std::uint8_t codes[8] = {};
    codes[bit / 4] = static_cast<std::uint8_t>(1 << bit % 4);
    std::uint32_t const word = pack_e2m1_word(codes);
    EXPECT_EQ(word & (word - 1), 0u);
    e2m1 |= word;
    std::uint8_t unpacked[8] = {};
    unpack_e2m1_word(word, unpacked);
    EXPECT_TRUE(std::equal(std::begin(codes), std::end(codes), unpacked)) << bit;
  }
  EXPECT_EQ(e2m1, 0xffffffffu);
  std::uint32_t e4m3 = 0;
  for (int bit = 0; bit < 32; ++bit) {
    std::uint8_t codes[4] = {};
    codes[bit / 8] = static_cast<std::uint8_t>(1 << bit % 8);
    std::uint32_t const word = pack_e4m3_word(codes);
    EXPECT_EQ(word & (word - 1), 0u);
    e4m3 |= word;
    std::uint8_t unpacked[4] = {};
    unpack_e4m3_word(word, unpacked);
    EXPECT_TRUE(std::equal(std::begin(codes), std::end(codes), unpacked)) << bit;
  }
  EXPECT_EQ(e4m3, 0xffffffffu);
}

TEST(quadpair_codes, every_scale_byte_decodes_to_its_e4m3_value_in_every_place) {
  random_source random(4);
  for (int place = 0; place < 4; ++place) {
    for (int code = 0; code < 0x7f; ++code) {
      std::uint8_t const byte = encode_block_scale(static_cast<std::uint8_t>(code));
      SCOPED_TRACE(testing::Message() << "code " << code << ", seed " << random.seed());
      std::uint32_t const others = random.word() & ~(0xffu << 8 * place);
      std::uint32_t halves[2] = {};
      decode_scales(others | static_cast<std::uint32_t>(byte) << 8 * place, halves);
      double const expected =
          std::ldexp(static_cast<double>(qpn::decode_e4m3(static_cast<std::uint8_t>(code))),
                     scale_half_exponent);
      expect_same(value_of(half_of(halves[place % 2], place / 2)), expected);
    }
  }
}

TEST(quadpair_codes, scale_bytes_return_to_e4m3_without_their_signs) {
  for (int code = 0; code < 256; ++code) {
    auto const e4m3 = static_cast<std::uint8_t>(code);
    if (qpn::is_nan_e4m3(e4m3)) continue;
    EXPECT_EQ(decode_block_scale(encode_block_scale(e4m3)), code & 0x7f);
  }
  EXPECT_EQ(encode_block_scale(0), 0) << "padding is zero bits";
}

TEST(quadpair_codes, a_code_times_a_scale_is_exact_in_fp16) {
  host_lane const lane;
  for (int code = 0; code < 16; ++code) {
    std::uint8_t const codes[8] = {static_cast<std::uint8_t>(code), 0, 0, 0, 0, 0, 0, 0};
    std::uint32_t halves[4] = {};
    decode_e2m1_word(lane, pack_e2m1_word(codes), halves);
    for (int scale = 0; scale < 0x7f; ++scale) {
      auto const e4m3 = static_cast<std::uint8_t>(scale);
      std::uint32_t scales[2] = {};
      decode_scales(encode_block_scale(e4m3), scales);
      double const product = value_of(half_of(halves[0], 0)) * value_of(half_of(scales[0], 0));
      expect_same(value_of(qpn::encode_f16(static_cast<float>(product))), product);
      double const weight = static_cast<double>(qpn::decode_e2m1(static_cast<std::uint8_t>(code))) *
                            static_cast<double>(qpn::decode_e4m3(e4m3));
      expect_same(std::ldexp(product, -e2m1_half_exponent - scale_half_exponent), weight);
    }
  }
}

TEST(quadpair_codes, bf16_that_fit_fp16_after_the_kernels_shift_are_told_from_the_others) {
  for (std::uint32_t code = 0; code <= 0xffff; ++code) {
    auto const bf16 = static_cast<std::uint16_t>(code);
    float const weight = qpn::decode_bf16(bf16);
    ASSERT_EQ(bf16_fits_half(bf16), std::fabs(weight) < 255.875f) << code;
    if (!bf16_fits_half(bf16)) continue;
    // What the kernels make of it: finite, and exact from 2^-25 on.
    double const exact = std::ldexp(static_cast<double>(weight), bf16_half_exponent);
    double const half = value_of(qpn::encode_f16(static_cast<float>(exact)));
    ASSERT_TRUE(std::isfinite(half)) << code;
    if (weight == 0.0f || std::fabs(weight) >= 0x1p-25f) {
      ASSERT_EQ(half, exact) << code;
    } else {
      ASSERT_LE(std::fabs(half - exact), 0x1p-25) << code;  // 2^-33 of the weight
    }
  }
}
