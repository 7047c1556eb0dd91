// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm70/gemm_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "support/emulated_case.hpp"

namespace qpn::test {
namespace {

class every_weight_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(gemm_program, every_weight_kind, testing::ValuesIn(all_weight_kinds),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(every_weight_kind, matches_fp64_on_ragged_shapes_split_over_ctas) {
  std::uint64_t seed = 100;
  for (std::int64_t n : {1, 24, 64, 65, 130, 200}) {
    for (std::int64_t k : {16, 80, 272, 1040}) {
      for (std::int64_t m : {1, 7, 8, 9, 16}) {
        gemm_case c;
        c.kind = GetParam();
        c.m = m;
        c.n = n;
        c.k = k;
        c.sm_count = static_cast<int>(1 + seed % 4);
        c.problem.y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
        c.seed = seed++;
        gemm_result const result = run_any(c);
        ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
      }
    }
  }
}

TEST_P(every_weight_kind, keeps_the_bits_of_a_row_in_any_company) {
  gemm_case c;
  c.kind = GetParam();
  c.n = 130;
  c.k = 592;
  c.sm_count = 2;
  c.problem.y_type = dtype::f32;
  c.seed = 7;
  random_source random(8);
  std::vector<std::uint16_t> row;
  for (std::int64_t k = 0; k < c.k; ++k) row.push_back(encode_f16(random.normal()));
  c.m = 1;
  gemm_result const alone = run_any(c, &row);
  ASSERT_TRUE(alone.problems.empty()) << joined(alone.problems);
  for (std::int64_t m = 2; m <= 16; ++m) {
    std::int64_t const place = m * 5 % m == 0 ? m - 1 : m * 5 % m;
    std::vector<std::uint16_t> x;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t k = 0; k < c.k; ++k) {
        x.push_back(i == place ? row[static_cast<std::size_t>(k)]
                               : encode_f16(1000.0F * random.normal()));
      }
    }
    c.m = m;
    c.options.seed = static_cast<std::uint64_t>(m);
    c.options.resident = 1 + static_cast<int>(m % 3);
    gemm_result const among = run_any(c, &x);
    ASSERT_TRUE(among.problems.empty()) << joined(among.problems);
    EXPECT_EQ(std::memcmp(alone.y.data(), among.y.data() + place * c.n,
                          static_cast<std::size_t>(c.n) * sizeof(float)),
              0)
        << c.text() << " place " << place;
  }
}

TEST_P(every_weight_kind, takes_outliers_up_to_6e4) {
  for (std::int64_t m : {3, 12}) {
    gemm_case c;
    c.kind = GetParam();
    c.m = m;
    c.n = 96;
    c.k = 400;
    c.sm_count = 3;
    c.outlier = 5e4F;
    c.problem.y_type = dtype::f32;
    c.seed = 31 + static_cast<std::uint64_t>(m);
    gemm_result const result = run_any(c);
    EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  }
}

TEST(gemm_program, reads_x_of_any_alignment_and_stride) {
  std::uint64_t seed = 500;
  for (weight_kind kind : all_weight_kinds) {
    for (std::int64_t gap : {0, 1, 8, 1000}) {
      for (bool misaligned : {false, true}) {
        gemm_case c;
        c.kind = kind;
        c.m = 1 + static_cast<std::int64_t>(seed % 16);
        c.n = 70;
        // nvfp4 has k in groups of 16; the others end anywhere.
        c.k = kind.format == format_id::nvfp4 ? 208 : 201 + static_cast<std::int64_t>(seed % 7);
        c.x_gap = gap;
        c.x_misaligned = misaligned;
        c.sm_count = 2;
        c.seed = seed++;
        gemm_result const result = run_any(c);
        EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
      }
    }
  }
}

TEST(gemm_program, every_interleaving_of_ctas_gives_the_same_bits) {
  gemm_case c;
  c.n = 200;
  c.k = 1600;
  c.m = 11;
  c.sm_count = 4;
  c.problem.y_type = dtype::f32;
  c.seed = 3;
  std::optional<std::vector<float>> first;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    c.options.seed = seed;
    c.options.resident = 1 + static_cast<int>(seed % 5);
    gemm_result const result = run_any(c);
    ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
    if (!first) first = result.y;
    EXPECT_EQ(*first, result.y) << "schedule seed " << seed;
  }
}

TEST(gemm_program, adds_bias_and_residual_and_multiplies_gate_by_up) {
  std::uint64_t seed = 60;
  for (weight_kind kind : all_weight_kinds) {
    for (bool gate : {false, true}) {
      gemm_case c;
      c.kind = kind;
      c.m = 5 + static_cast<std::int64_t>(seed % 9);
      c.n = 128;
      c.k = 96;
      c.sm_count = 1 + static_cast<int>(seed % 3);
      c.bias = true;
      c.residual = true;
      c.problem.y_type = dtype::f32;
      c.problem.act = gate ? activation::silu_gate : activation::none;
      c.seed = seed++;
      gemm_result const result = run_any(c);
      EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
    }
  }
}

TEST(gemm_program, argmax_is_that_of_the_stored_row_with_the_lowest_index_at_ties) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    gemm_case c;
    c.kind = all_weight_kinds[seed];
    c.m = 1 + static_cast<std::int64_t>(seed) * 3;
    c.n = 200;
    c.k = 320;
    c.sm_count = 3;
    c.problem.y_type = dtype::f32;
    c.problem.candidates = 1;
    c.options.seed = seed;
    c.options.resident = 3;
    c.seed = seed + 40;
    gemm_result const result = run_any(c);
    ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
    for (std::int64_t i = 0; i < c.m; ++i) {
      auto const row = result.y.begin() + i * c.n;
      auto const best = std::max_element(row, row + c.n);
      EXPECT_EQ(result.ids[static_cast<std::size_t>(i)], best - row) << c.text();
      EXPECT_EQ(result.values[static_cast<std::size_t>(i)], *best) << c.text();
    }
  }
  // x = 0: every column is +0 or -0, and the first one wins.
  gemm_case zero;
  zero.m = 2;
  zero.n = 130;
  zero.problem.candidates = 1;
  std::vector<std::uint16_t> const x(static_cast<std::size_t>(2 * zero.k), 0);
  EXPECT_EQ(run_any(zero, &x).ids, (std::vector<std::int32_t>{0, 0}));
}

TEST(gemm_program, saturates_or_overflows_as_asked) {
  for (overflow_policy policy : {overflow_policy::saturate, overflow_policy::infinite}) {
    EXPECT_EQ(detail::encode_16(1e6F, dtype::f16, policy),
              policy == overflow_policy::saturate ? 0x7bff : 0x7c00);
    EXPECT_EQ(detail::encode_16(-1e6F, dtype::f16, policy),
              policy == overflow_policy::saturate ? 0xfbff : 0xfc00);
    EXPECT_EQ(detail::encode_16(INFINITY, dtype::f16, policy), 0x7c00);
    EXPECT_EQ(detail::encode_16(3.4e38F, dtype::bf16, policy),
              policy == overflow_policy::saturate ? 0x7f7f : 0x7f80);
  }
}

TEST(gemm_program, a_nan_in_x_stays_in_its_row) {
  gemm_case c;
  c.m = 3;
  c.n = 64;
  c.k = 128;
  c.problem.candidates = 1;
  c.problem.y_type = dtype::f32;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * c.k), 0x3c00);
  x[static_cast<std::size_t>(c.k + 5)] = 0x7e00;
  gemm_result const result = run_any(c, &x);
  EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  EXPECT_TRUE(std::isnan(result.values[1]));
  EXPECT_FALSE(std::isnan(result.values[0]));
  EXPECT_FALSE(std::isnan(result.values[2]));
}

TEST(gemm_program_patterns, every_e2m1_code_with_every_block_scale_is_exact) {
  expect_exact_weights<nvfp4>(every_block_scale());
}

TEST(gemm_program_patterns, every_finite_e4m3_code_is_exact) {
  expect_exact_weights<fp8>(every_e4m3_code());
}

TEST(gemm_program_patterns, every_f16_and_every_bf16_that_the_kernel_holds_is_exact) {
  for (dtype type : {dtype::f16, dtype::bf16}) {
    expect_exact_weights<dense16>(every_16_bit_weight(type));
  }
}

TEST(gemm_program_patterns, every_finite_activation_is_exact) {
  constexpr std::int64_t size = 512;
  packed_gpu_weight weight(identity_weight(size), 2);
  for (std::uint32_t first = 0; first < 65536; first += 16 * size) {
    std::vector<std::uint16_t> x;
    for (std::uint32_t i = 0; i < 16 * size; ++i) {
      auto const code = static_cast<std::uint16_t>(first + i);
      x.push_back((code & 0x7c00u) == 0x7c00u ? std::uint16_t{0} : code);
    }
    std::vector<float> const y = multiply<fp8>(weight, x.data(), 16);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], decode_f16(x[i])) << x[i];
  }
}

TEST(gemm_program, calls_of_several_plans_may_share_a_workspace) {
  random_source random(21);
  // The first has more tickets, the second more planes; both have tile groups that CTAs share.
  packed_gpu_weight wide(published_weight(all_weight_kinds[0], {700}, 576, random), 2);
  packed_gpu_weight deep(published_weight(all_weight_kinds[2], {130}, 2000, random), 4);
  workspace_needs needs;
  gemm_plan<nvfp4> wide_plan;
  gemm_plan<fp8> deep_plan;
  ASSERT_TRUE(make_gemm_plan(wide.layout, {}, volta_v100(), wide_plan).ok());
  ASSERT_TRUE(make_gemm_plan(deep.layout, {}, volta_v100(), deep_plan).ok());
  needs.add(wide_plan);
  needs.add(deep_plan);
  aligned_bytes bytes(needs.bytes());
  std::fill_n(bytes.data(), needs.zero_bytes, std::byte{0});
  workspace_view const shared{bytes.data(), needs.bytes(), needs.zero_bytes};
  std::vector<std::uint16_t> x;
  for (int i = 0; i < 16 * 2000; ++i) x.push_back(encode_f16(random.normal()));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(multiply<nvfp4>(wide, x.data(), 16, shared), multiply<nvfp4>(wide, x.data(), 16));
    EXPECT_EQ(multiply<fp8>(deep, x.data(), 16, shared), multiply<fp8>(deep, x.data(), 16));
  }
  workspace_view const small{bytes.data(), needs.bytes() - 1, needs.zero_bytes};
  EXPECT_EQ(detail::check_workspace(deep_plan, small).code, status_code::workspace_too_small);
}

}  // namespace
}  // namespace qpn::test
