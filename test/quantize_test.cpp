// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <qpn/dtype.hpp>
#include <qpn/quantize.hpp>
#include <vector>

#include "support/random.hpp"

namespace {

using qpn::status_code;
using qpn::test::random_source;

struct nvfp4_result {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scales;
  float global_scale = std::nanf("");
};

nvfp4_result quantize_nvfp4(std::vector<float> const& w, std::int64_t n, std::int64_t k) {
  nvfp4_result result;
  result.codes.resize(w.size() / 2);
  result.block_scales.resize(w.size() / 16);
  qpn::status const done = qpn::quantize_nvfp4(w.data(), n, k, result.codes.data(),
                                               result.block_scales.data(), result.global_scale);
  EXPECT_TRUE(done.ok()) << done.what;
  return result;
}

unsigned code_at(nvfp4_result const& result, std::size_t index) {
  return result.codes[index / 2] >> (index % 2 * 4) & 0xfu;
}

/// How much farther from `value` the chosen one is than the best of all; 0 for a correct rounding.
template <class Decode>
double excess_distance(double value, double chosen, int codes, Decode decode) {
  double best = std::numeric_limits<double>::infinity();
  for (int code = 0; code < codes; ++code) {
    double const candidate = static_cast<double>(decode(static_cast<std::uint8_t>(code)));
    if (!std::isnan(candidate)) best = std::fmin(best, std::fabs(candidate - value));
  }
  return std::fabs(chosen - value) - best;
}

double amax_of(float const* w, std::int64_t count) {
  double amax = 0.0;
  for (std::int64_t i = 0; i < count; ++i)
    amax = std::fmax(amax, std::fabs(static_cast<double>(w[i])));
  return amax;
}

}  // namespace

TEST(quantize_nvfp4, ties_round_to_the_even_code_in_a_hand_computed_group) {
  // The second group makes amax 2688 = 6 x 448, so global_scale is 1; the first has amax 6, so its
  // scale is 1.
  std::vector<float> w = {0.25f,  0.75f,  1.25f,  1.75f, 2.5f, 3.5f,  5.0f,  6.0f,
                          -0.25f, -0.75f, -1.25f, -5.0f, 0.0f, -0.0f, 0.26f, 5.01f};
  w.resize(32, 0.0f);
  w[16] = -2688.0f;
  w[17] = 448.0f;
  nvfp4_result const result = quantize_nvfp4(w, 1, 32);
  EXPECT_EQ(result.global_scale, 1.0f);
  EXPECT_EQ(result.block_scales[0], 0x38);  // 1
  EXPECT_EQ(result.block_scales[1], 0x7e);  // 448
  unsigned const expected[] = {0, 2, 2, 4, 4, 6, 6, 7, 8, 10, 10, 14, 0, 8, 1, 7, 15, 2, 0};
  for (std::size_t i = 0; i < std::size(expected); ++i)
    EXPECT_EQ(code_at(result, i), expected[i]) << "k " << i;
}

TEST(quantize_nvfp4, every_choice_is_the_nearest_by_an_fp64_reference) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    random_source random(seed);
    std::int64_t const n = random.integer(1, 9);
    std::int64_t const k = 16 * random.integer(1, 9);
    std::vector<float> w = random.normals(n * k);
    // Groups of very different sizes, so that block scales use their whole range.
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] *= std::exp2f(static_cast<float>((i / 16 * 7) % 23) - 15.0f);
    nvfp4_result const result = quantize_nvfp4(w, n, k);
    double const global = amax_of(w.data(), n * k) / 2688.0;
    ASSERT_NEAR(static_cast<double>(result.global_scale) / global, 1.0, 1e-7) << "seed " << seed;
    for (std::size_t group = 0; group < w.size() / 16; ++group) {
      double const scale = static_cast<double>(qpn::decode_e4m3(result.block_scales[group]));
      double const wanted =
          amax_of(w.data() + group * 16, 16) / 6.0 / static_cast<double>(result.global_scale);
      ASSERT_GT(scale, 0.0);
      if (wanted > 0x1p-10) {
        ASSERT_LE(excess_distance(wanted, scale, 256, qpn::decode_e4m3), 1e-6 * wanted)
            << "group " << group << ", seed " << seed;
      }
      for (std::size_t i = group * 16; i < group * 16 + 16; ++i) {
        double const quotient =
            static_cast<double>(w[i]) / (scale * static_cast<double>(result.global_scale));
        double const value =
            static_cast<double>(qpn::decode_e2m1(static_cast<std::uint8_t>(code_at(result, i))));
        ASSERT_LE(excess_distance(quotient, value, 16, qpn::decode_e2m1),
                  1e-6 * std::fabs(quotient))
            << "index " << i << ", seed " << seed;
      }
    }
  }
}

TEST(quantize_nvfp4, zero_groups_and_zero_matrices_are_safe) {
  std::vector<float> w(32, 0.0f);
  nvfp4_result result = quantize_nvfp4(w, 1, 32);
  EXPECT_GT(result.global_scale, 0.0f);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(code_at(result, i), 0u);
  w[20] = 1.0f;
  result = quantize_nvfp4(w, 1, 32);
  EXPECT_EQ(result.block_scales[0], 0x38);
  EXPECT_EQ(result.block_scales[1], 0x7e);
  EXPECT_EQ(code_at(result, 20), 7u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(code_at(result, i), 0u);
}

TEST(quantize_nvfp4, a_group_below_the_smallest_scale_keeps_a_scale_that_is_not_zero) {
  std::vector<float> w(32, 1e-9f);
  w[16] = 1.0f;
  nvfp4_result const result = quantize_nvfp4(w, 1, 32);
  EXPECT_EQ(result.block_scales[0], 0x01);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(code_at(result, i), 0u);
}

TEST(quantize_nvfp4, subnormal_and_largest_weights_are_safe) {
  std::vector<float> w(16, std::numeric_limits<float>::denorm_min());
  nvfp4_result result = quantize_nvfp4(w, 1, 16);
  EXPECT_TRUE(std::isnormal(result.global_scale));
  for (float& value : w) value = -(std::numeric_limits<float>::max)();
  result = quantize_nvfp4(w, 1, 16);
  EXPECT_TRUE(std::isfinite(result.global_scale));
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(code_at(result, i), 15u);
}

TEST(quantize_fp8, tensor_scale_and_codes_in_a_hand_computed_case) {
  std::vector<float> const w = {896.0f, -2.0f, 0.0f, 1.0625f * 2.0f, 1.1875f * 2.0f, -0.0f};
  std::vector<std::uint8_t> codes(6);
  float scale = 0.0f;
  ASSERT_TRUE(qpn::quantize_fp8_tensor(w.data(), 2, 3, codes.data(), scale).ok());
  EXPECT_EQ(scale, 2.0f);
  // 1.0625 lies between 1 (0x38) and 1.125 (0x39), 1.1875 between 1.125 and 1.25 (0x3a): ties to
  // the even code.
  std::vector<std::uint8_t> const expected = {0x7e, 0xb8, 0x00, 0x38, 0x3a, 0x80};
  EXPECT_EQ(codes, expected);
}

TEST(quantize_fp8, every_choice_is_the_nearest_by_an_fp64_reference) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    random_source random(seed);
    std::int64_t const n = random.integer(1, 6);
    std::int64_t const k = random.integer(1, 50);
    std::vector<float> const w = random.normals(n * k);
    std::vector<std::uint8_t> codes(w.size());
    std::vector<float> scales(static_cast<std::size_t>(n));
    ASSERT_TRUE(qpn::quantize_fp8_channel(w.data(), n, k, codes.data(), scales.data()).ok());
    for (std::int64_t row = 0; row < n; ++row) {
      double const scale = static_cast<double>(scales[static_cast<std::size_t>(row)]);
      ASSERT_NEAR(scale / (amax_of(w.data() + row * k, k) / 448.0), 1.0, 1e-7) << "seed " << seed;
      for (std::int64_t i = row * k; i < row * k + k; ++i) {
        double const quotient = static_cast<double>(w[static_cast<std::size_t>(i)]) / scale;
        double const value =
            static_cast<double>(qpn::decode_e4m3(codes[static_cast<std::size_t>(i)]));
        ASSERT_LE(excess_distance(quotient, value, 256, qpn::decode_e4m3),
                  1e-6 * std::fabs(quotient))
            << "index " << i << ", seed " << seed;
      }
    }
  }
}

TEST(quantize_fp8, a_row_of_zeros_gets_zero_codes_and_a_scale_that_is_not_zero) {
  std::vector<float> const w = {1.0f, -2.0f, 0.0f, 0.0f};
  std::vector<std::uint8_t> codes(4);
  std::vector<float> scales(2);
  ASSERT_TRUE(qpn::quantize_fp8_channel(w.data(), 2, 2, codes.data(), scales.data()).ok());
  EXPECT_EQ(codes[1], 0xfe);
  EXPECT_EQ(codes[2], 0);
  EXPECT_GT(scales[1], 0.0f);
}

TEST(quantize, non_finite_weights_are_refused_with_their_place) {
  for (float const bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> w(3 * 16, 1.0f);
    w[2 * 16 + 5] = bad;
    std::vector<std::uint8_t> codes(w.size());
    std::vector<std::uint8_t> block_scales(3);
    std::vector<float> scales(3);
    float scale = 0.0f;
    for (qpn::status const& refused :
         {qpn::quantize_nvfp4(w.data(), 3, 16, codes.data(), block_scales.data(), scale),
          qpn::quantize_fp8_tensor(w.data(), 3, 16, codes.data(), scale),
          qpn::quantize_fp8_channel(w.data(), 3, 16, codes.data(), scales.data())}) {
      EXPECT_EQ(refused.code, status_code::invalid_value);
      EXPECT_EQ(refused.row, 2);
      EXPECT_EQ(refused.column, 5);
    }
  }
}

TEST(quantize, shapes_that_do_not_fit_are_refused) {
  std::vector<float> const w(24, 1.0f);
  std::vector<std::uint8_t> codes(24);
  std::uint8_t block_scale = 0;
  float scale = 0.0f;
  EXPECT_EQ(qpn::quantize_nvfp4(w.data(), 1, 24, codes.data(), &block_scale, scale).code,
            status_code::invalid_shape);
  EXPECT_EQ(qpn::quantize_fp8_tensor(w.data(), 0, 24, codes.data(), scale).code,
            status_code::invalid_shape);
  EXPECT_EQ(qpn::quantize_fp8_channel(w.data(), 1, 0, codes.data(), &scale).code,
            status_code::invalid_shape);
}
