// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <qpn/dtype.hpp>
#include <vector>

#include "support/random.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace {

static_assert(qpn::decode_e2m1(0xf) == -6.0f && qpn::encode_e2m1(-5.1f) == 0xf);
static_assert(qpn::decode_e4m3(0x7e) == 448.0f && qpn::encode_e4m3(1e9f) == 0x7e);
static_assert(qpn::decode_e8m0(127) == 1.0f && qpn::encode_e8m0(2.0f) == 128);
static_assert(qpn::decode_f16(0x3c00) == 1.0f && qpn::encode_f16(-2.0f) == 0xc000);
static_assert(qpn::decode_bf16(0x3f80) == 1.0f && qpn::encode_bf16(-2.0f) == 0xc000);

/// A binary format with subnormals, described by its numbers only: what the codecs are checked
/// against.
struct binary_format {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint32_t finite_codes;  // non-negative codes below this are finite
  bool overflows;              // to the code finite_codes, else saturates
};

constexpr binary_format e2m1_format{2, 1, 1, 8, false};
constexpr binary_format e4m3_format{4, 3, 7, 127, false};
constexpr binary_format f16_format{5, 10, 15, 0x7c00, true};
constexpr binary_format bf16_format{8, 7, 127, 0x7f80, true};

double magnitude_of(binary_format format, std::uint32_t code) {
  auto const exponent = static_cast<int>(code >> format.mantissa_bits);
  double const fraction = std::ldexp(static_cast<double>(code & ((1u << format.mantissa_bits) - 1)),
                                     -format.mantissa_bits);
  if (exponent == 0) return std::ldexp(fraction, 1 - format.bias);
  return std::ldexp(1.0 + fraction, exponent - format.bias);
}

/// All magnitudes in ascending order, index = code; one beyond the largest where the format
/// overflows.
std::vector<double> magnitudes_of(binary_format format) {
  std::vector<double> magnitudes;
  for (std::uint32_t code = 0; code < format.finite_codes + (format.overflows ? 1 : 0); ++code) {
    magnitudes.push_back(magnitude_of(format, code));
  }
  return magnitudes;
}

/// The index of the nearest entry of an ascending table; ties go to the even index.
std::uint32_t nearest(std::vector<double> const& table, double value) {
  auto const above = std::lower_bound(table.begin(), table.end(), value);
  if (above == table.begin()) return 0;
  auto const index = static_cast<std::uint32_t>(above - table.begin());
  if (above == table.end()) return index - 1;
  double const up = *above - value;
  double const down = value - table[index - 1];
  if (up == down) return index % 2 == 0 ? index : index - 1;
  return up < down ? index : index - 1;
}

/// Values where rounding could go wrong, and a dense sample of all floats; finite and infinite, no
/// NaN.
std::vector<float> probes(std::vector<double> const& table, std::uint64_t seed) {
  std::vector<float> values{std::numeric_limits<float>::infinity(),
                            (std::numeric_limits<float>::max)(),
                            std::numeric_limits<float>::denorm_min(), 0.0f};
  float const infinity = std::numeric_limits<float>::infinity();
  auto const add = [&](double value) {
    auto const rounded = static_cast<float>(value);
    values.insert(values.end(),
                  {rounded, std::nextafterf(rounded, infinity), std::nextafterf(rounded, 0.0f)});
  };
  for (std::size_t code = 0; code < table.size(); ++code) {
    add(table[code]);
    if (code > 0) add((table[code - 1] + table[code]) / 2);
  }
  for (std::uint32_t word = 0; word <= 0xffffu; ++word) {
    values.push_back(std::bit_cast<float>(word << 16));
    values.push_back(qpn::decode_f16(static_cast<std::uint16_t>(word)));
  }
  for (std::uint64_t word = 0; word < (std::uint64_t{1} << 32); word += 4093) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  }
  qpn::test::random_source random(seed);
  for (int i = 0; i < 1000000; ++i) values.push_back(std::bit_cast<float>(random.word()));
  std::size_t const positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  std::erase_if(values, [](float value) { return std::isnan(value); });
  return values;
}

/// Compares decoder and encoder with the description of the format.
template <class Code>
void check_codec(binary_format format, std::function<float(Code)> const& decode,
                 std::function<Code(float)> const& encode) {
  std::vector<double> const table = magnitudes_of(format);
  std::uint32_t const sign = 1u << (format.exponent_bits + format.mantissa_bits);
  for (std::uint32_t code = 0; code < format.finite_codes; ++code) {
    ASSERT_EQ(static_cast<double>(decode(static_cast<Code>(code))), table[code]) << "code " << code;
    float const negative = decode(static_cast<Code>(code | sign));
    ASSERT_EQ(static_cast<double>(negative), -table[code]) << "code " << (code | sign);
    ASSERT_TRUE(std::signbit(negative)) << "code " << (code | sign);
    ASSERT_EQ(encode(decode(static_cast<Code>(code))), code);
    ASSERT_EQ(encode(negative), code | sign);
  }
  constexpr std::uint64_t seed = 20250101;
  for (float const value : probes(table, seed)) {
    std::uint32_t const expected =
        nearest(table, std::fabs(static_cast<double>(value))) | (std::signbit(value) ? sign : 0u);
    ASSERT_EQ(encode(value), expected) << "value " << value << ", bits "
                                       << std::bit_cast<std::uint32_t>(value) << ", seed " << seed;
  }
}

}  // namespace

TEST(dtype_e2m1, all_codes_and_roundings_agree_with_the_definition) {
  check_codec<std::uint8_t>(e2m1_format, qpn::decode_e2m1, qpn::encode_e2m1);
}

TEST(dtype_e2m1, decoding_reads_the_low_four_bits_only) {
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_EQ(qpn::decode_e2m1(static_cast<std::uint8_t>(code)),
              qpn::decode_e2m1(static_cast<std::uint8_t>(code & 0xfu)));
  }
}

TEST(dtype_e2m1, nan_becomes_the_largest_value) {
  EXPECT_EQ(qpn::encode_e2m1(std::nanf("")), 0x7);
  EXPECT_EQ(qpn::encode_e2m1(-std::nanf("")), 0x7);
}

TEST(dtype_e4m3, all_codes_and_roundings_agree_with_the_definition) {
  check_codec<std::uint8_t>(e4m3_format, qpn::decode_e4m3, qpn::encode_e4m3);
}

TEST(dtype_e4m3, nan_has_two_codes_and_encodes_to_the_positive_one) {
  for (unsigned code = 0; code < 256; ++code) {
    auto const byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(std::isnan(qpn::decode_e4m3(byte)), code == 0x7f || code == 0xff);
    EXPECT_EQ(qpn::is_nan_e4m3(byte), code == 0x7f || code == 0xff);
  }
  EXPECT_EQ(qpn::encode_e4m3(std::nanf("")), 0x7f);
  EXPECT_EQ(qpn::encode_e4m3(-std::nanf("")), 0x7f);
}

TEST(dtype_e8m0, all_codes_and_roundings_agree_with_the_definition) {
  std::vector<double> table;
  for (int code = 0; code < 255; ++code) {
    table.push_back(std::ldexp(1.0, code - 127));
    EXPECT_EQ(static_cast<double>(qpn::decode_e8m0(static_cast<std::uint8_t>(code))), table.back());
    EXPECT_EQ(qpn::encode_e8m0(static_cast<float>(table.back())), code);
  }
  EXPECT_TRUE(std::isnan(qpn::decode_e8m0(0xff)));
  EXPECT_EQ(qpn::encode_e8m0(std::nanf("")), 0xff);
  constexpr std::uint64_t seed = 20250102;
  for (float const value : probes(table, seed)) {
    ASSERT_EQ(qpn::encode_e8m0(value), nearest(table, static_cast<double>(value)))
        << "value " << value << ", seed " << seed;
  }
}

TEST(dtype_f16, all_codes_and_roundings_agree_with_the_definition) {
  check_codec<std::uint16_t>(f16_format, qpn::decode_f16, qpn::encode_f16);
}

TEST(dtype_f16, infinities_are_kept) {
  EXPECT_EQ(qpn::decode_f16(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(qpn::decode_f16(0xfc00), -std::numeric_limits<float>::infinity());
}

TEST(dtype_f16, saturating_encoder_differs_only_where_a_finite_value_overflows) {
  for (float const value : probes(magnitudes_of(f16_format), 20250103)) {
    std::uint16_t const plain = qpn::encode_f16(value);
    bool const overflows = std::isfinite(value) && (plain & 0x7fff) == 0x7c00;
    std::uint32_t const expected = overflows ? (plain & 0x8000u) | 0x7bffu : plain;
    ASSERT_EQ(qpn::encode_f16_saturating(value), expected) << "value " << value;
  }
  EXPECT_EQ(qpn::encode_f16_saturating(1e30f), 0x7bff);
  EXPECT_EQ(qpn::encode_f16_saturating(-65520.0f), 0xfbff);
  EXPECT_EQ(qpn::encode_f16_saturating(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_GT(qpn::encode_f16_saturating(std::nanf("")) & 0x7fff, 0x7c00);
}

#if defined(__x86_64__)
namespace {

bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx") != 0 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
         (ecx >> 29 & 1u) != 0;
}

__attribute__((target("avx,f16c"))) float decode_f16_in_hardware(std::uint16_t code) {
  return _cvtsh_ss(code);
}

__attribute__((target("avx,f16c"))) std::uint16_t encode_f16_in_hardware(float value) {
  __m128i const words = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<std::uint16_t>(_mm_extract_epi16(words, 0));
}

}  // namespace

TEST(dtype_f16, both_codecs_give_the_bits_of_the_f16c_instructions) {
  if (!has_f16c()) GTEST_SKIP() << "this machine has no F16C";
  for (std::uint32_t code = 0; code <= 0xffffu; ++code) {
    auto const word = static_cast<std::uint16_t>(code);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(qpn::decode_f16(word)),
              std::bit_cast<std::uint32_t>(decode_f16_in_hardware(word)))
        << "code " << code;
  }
  for (std::uint64_t word = 0; word < (std::uint64_t{1} << 32); word += 251) {
    auto const value = std::bit_cast<float>(static_cast<std::uint32_t>(word));
    ASSERT_EQ(qpn::encode_f16(value), encode_f16_in_hardware(value)) << "bits " << word;
  }
}
#endif

TEST(dtype_bf16, all_codes_and_roundings_agree_with_the_definition) {
  check_codec<std::uint16_t>(bf16_format, qpn::decode_bf16, qpn::encode_bf16);
}

TEST(dtype_bf16, nan_payloads_survive_and_become_quiet) {
  for (std::uint32_t code = 0x7f81; code <= 0x7fff; ++code) {
    float const value = qpn::decode_bf16(static_cast<std::uint16_t>(code));
    ASSERT_TRUE(std::isnan(value));
    ASSERT_EQ(qpn::encode_bf16(value), code | 0x40u);
  }
  // A payload in the lower half only must not turn into infinity.
  EXPECT_TRUE(std::isnan(qpn::decode_bf16(qpn::encode_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(dtype, bits_and_names_are_those_of_the_formats) {
  EXPECT_EQ(qpn::bits(qpn::dtype::e2m1), 4);
  EXPECT_EQ(qpn::bits(qpn::dtype::e4m3), 8);
  EXPECT_EQ(qpn::bits(qpn::dtype::e8m0), 8);
  EXPECT_EQ(qpn::bits(qpn::dtype::f16), 16);
  EXPECT_EQ(qpn::bits(qpn::dtype::bf16), 16);
  EXPECT_EQ(qpn::bits(qpn::dtype::f32), 32);
  EXPECT_STREQ(qpn::to_string(qpn::dtype::e4m3), "e4m3");
  EXPECT_STREQ(qpn::to_string(static_cast<qpn::dtype>(99)), "unknown dtype");
}
