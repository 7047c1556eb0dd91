// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gpu/emulated_result.hpp"
#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"

// The results of qpn::gemm on the GPU.

namespace qpn::test {
namespace {

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};
constexpr weight_kind f16_dense{format_id::dense16, scale_mode::none, dtype::f16};

class gpu_gemm_kind : public testing::TestWithParam<operand_kinds> {
 protected:
  void SetUp() override {
    if (x_type() == dtype::bf16 && tested_layout() != layout_id::sm80_mma16) {
      GTEST_SKIP() << "x in bf16 needs layout sm80_mma16";
    }
  }
  [[nodiscard]] static weight_kind kind() { return GetParam().weight; }
  [[nodiscard]] static dtype x_type() { return GetParam().x_type; }
  [[nodiscard]] static bool grouped() { return kind().format == format_id::nvfp4; }
  [[nodiscard]] static gemm_operands operands_of(gpu_weight const& weight, std::int64_t m,
                                                 random_source& random) {
    return random_operands(weight, m, random, x_type());
  }
};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_gemm_kind, testing::ValuesIn(all_operand_kinds()),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gpu_gemm_kind, keeps_the_bound_on_ragged_shapes) {
  // The last k of each row lies anywhere in a record; nvfp4 has it in groups of 16.
  std::vector<std::int64_t> const ks = grouped()
                                           ? std::vector<std::int64_t>{16, 48, 80, 272, 1040, 2064}
                                           : std::vector<std::int64_t>{1, 7, 17, 100, 271, 1041};
  std::uint64_t seed = 1;
  for (std::int64_t n : {1, 7, 31, 32, 33, 63, 64, 65, 96, 130, 200, 257, 300}) {
    for (std::int64_t k : ks) {
      random_source random(seed);
      gpu_weight const weight = random_weight(kind(), n, k, random);
      gemm_problem problem;
      problem.x_type = x_type();
      problem.y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
      gpu_gemm const gemm(weight, problem);
      for (std::int64_t m : {1, 2, 7, 8, 9, 15, 16, static_cast<int>(random.integer(17, 96))}) {
        gemm_operands operands = operands_of(weight, m, random);
        operands.x_gap = static_cast<std::int64_t>(seed % 4);
        operands.x_shift = m % 3;
        ASSERT_TRUE(keeps_bound(gemm, operands, run(gemm, operands)))
            << GetParam() << " seed " << seed;
      }
      ASSERT_TRUE(weight.is_intact());
      ++seed;
    }
  }
}

TEST_P(gpu_gemm_kind, keeps_the_bits_of_a_row_for_every_m_place_and_company) {
  // Rows of one k group are shared by several CTAs, and one CTA has parts of two tile groups.
  random_source random(2);
  gpu_weight const weight = random_weight(kind(), 330, 1616, random);
  gpu_gemm const gemm(weight, f32_problem(x_type()));
  gemm_operands const alone = operands_of(weight, 1, random);
  gemm_result const expected = run(gemm, alone);
  ASSERT_TRUE(keeps_bound(gemm, alone, expected));
  std::uint16_t const largest = x_type() == dtype::f16 ? 0x7bff : 0x7f7f;
  for (std::int64_t m = 1; m <= gemm_max_m; ++m) {
    // Beyond 16 rows one place for each m.
    for (std::int64_t place = m <= 16 ? 0 : m * 29 % (m - 1); place < m; place += m <= 16 ? 1 : m) {
      gemm_operands among = operands_of(weight, m, random);
      // Rows beside it are ordinary, large, or NaN.
      for (std::uint16_t& x : among.x) {
        if (random.integer(0, 500) == 0) x = place % 2 == 0 ? largest : 0x7fff;
      }
      std::copy(alone.x.begin(), alone.x.end(), among.x.begin() + place * weight.layout().k);
      gemm_result const result = run(gemm, among);
      EXPECT_EQ(std::memcmp(expected.y.data(), result.y.data() + place * gemm.columns(),
                            expected.y.size() * sizeof(std::uint32_t)),
                0)
          << GetParam() << " m " << m << " place " << place;
    }
  }
}

TEST_P(gpu_gemm_kind, takes_outliers_as_large_as_x_may_be) {
  random_source random(3);
  gpu_weight const weight = random_weight(kind(), 96, 1040, random);
  gpu_gemm const gemm(weight, f32_problem(x_type()));
  float const outlier = x_type() == dtype::f16 ? 5e4F : 1e29F;
  for (std::int64_t m : {1, 3, 8, 12, 16, 40, 96}) {
    gemm_operands operands;
    operands.m = m;
    operands.x = random_x(m, weight.layout().k, random, outlier, x_type());
    EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands))) << GetParam();
  }
}

TEST_P(gpu_gemm_kind, gives_the_same_bits_for_any_alignment_and_stride_of_x) {
  random_source random(4);
  gpu_weight const weight = random_weight(kind(), 130, grouped() ? 1040 : 1043, random);
  gpu_gemm const gemm(weight, f32_problem(x_type()));
  for (std::int64_t m : {1, 8, 13, 50}) {
    gemm_operands operands = operands_of(weight, m, random);
    gemm_result const expected = run(gemm, operands);
    for (std::int64_t gap : {0, 1, 5, 8, 1000}) {
      for (std::int64_t shift : {0, 1, 4, 7, 8}) {
        operands.x_gap = gap;
        operands.x_shift = shift;
        EXPECT_EQ(run(gemm, operands).y, expected.y)
            << GetParam() << " m " << m << " gap " << gap << " shift " << shift;
      }
    }
  }
}

TEST_P(gpu_gemm_kind, gives_the_same_bits_for_every_max_m_of_the_plan) {
  random_source random(5);
  gpu_weight const weight = random_weight(kind(), 200, 2048, random);
  gpu_gemm const all(weight, f32_problem(x_type()));
  for (std::int64_t max_m : {1, 5, 8, 9, 12, 17, 33, 65}) {
    gemm_problem problem = f32_problem(x_type());
    problem.max_m = max_m;
    gpu_gemm const some(weight, problem);
    gemm_operands const operands = operands_of(weight, max_m, random);
    EXPECT_EQ(run(some, operands).y, run(all, operands).y) << GetParam() << " max_m " << max_m;
  }
}

TEST_P(gpu_gemm_kind, agrees_with_the_emulator) {
  std::uint64_t seed = 60;
  for (std::int64_t n : {40, 130}) {
    for (std::int64_t m : {1, 8, 11, 37}) {
      random_source random(seed++);
      gpu_weight const weight = random_weight(kind(), n, 592, random, 2);
      gpu_gemm const gemm(weight, f32_problem(x_type()));
      gemm_operands operands = operands_of(weight, m, random);
      gemm_result const on_gpu = run(gemm, operands);

      std::vector<float> const emulated = emulated_y(gemm, operands);
      for (std::int64_t j = 0; j < n; ++j) {
        std::vector<bounded> const column = bounded_column(gemm, operands, j);
        for (std::int64_t i = 0; i < m; ++i) {
          auto const at = static_cast<std::size_t>(i * n + j);
          EXPECT_NEAR(value_of(on_gpu.y[at], dtype::f32), emulated[at],
                      column[static_cast<std::size_t>(i)].bound)
              << GetParam() << " row " << i << " column " << j;
        }
      }
    }
  }
}

/// A projection of Qwen3.8-27B at four ranks.
struct projection {
  char const* name;
  weight_kind kind;
  std::int64_t n;
  std::int64_t k;
  char const* route;  ///< of m = 1, without architecture
};

class gpu_gemm_projection : public testing::TestWithParam<projection> {};

constexpr weight_kind fp8_tensor{format_id::fp8, scale_mode::tensor, dtype::f16};
constexpr weight_kind fp8_channel{format_id::fp8, scale_mode::channel, dtype::f16};
INSTANTIATE_TEST_SUITE_P(
    gpu, gpu_gemm_projection,
    testing::Values(projection{"mlp_gate_up", nvfp4_tensor, 8704, 5120, "nvfp4/mt1"},
                    projection{"mlp_down", nvfp4_tensor, 5120, 4352, "nvfp4/mt1"},
                    projection{"gdn_in_proj", fp8_tensor, 4096, 5120, "fp8/mt1"},
                    projection{"attention_qkv", fp8_channel, 3584, 5120, "fp8/mt1"},
                    projection{"out_proj", fp8_channel, 5120, 1536, "fp8/mt1"},
                    projection{"lm_head", nvfp4_tensor, 62080, 5120, "nvfp4/mt1"},
                    projection{"gdn_in_proj_ba",
                               {format_id::dense16, scale_mode::none, dtype::bf16},
                               24,
                               5120,
                               "bf16/mt1"},
                    projection{"gdn_in_proj_ba_f16", f16_dense, 24, 5120, "f16/mt1"}),
    [](auto const& tested) { return tested.param.name; });

TEST_P(gpu_gemm_projection, keeps_the_bound_on_a_sample_of_columns) {
  projection const& tested = GetParam();
  random_source random(7);
  gpu_weight const weight = random_weight(tested.kind, tested.n, tested.k, random);
  gpu_gemm const gemm(weight, f32_problem());
  std::string const route = route_name(gemm.route_of(1));
  std::int32_t const capability = test_device().compute_capability;
  bool const own = tested_layout() == layout_for(test_device());
  std::string const arch = !own || capability < 80 ? "sm70/" : capability < 90 ? "sm80/" : "sm90/";
  EXPECT_EQ(route, arch + tested.route + (own ? "" : "/emulated"));
  std::vector<std::int64_t> columns{0, tested.n - 1};
  for (int i = 0; i < 62; ++i) columns.push_back(random.integer(0, tested.n - 1));
  for (std::int64_t m : {1, 5, 16, 40}) {
    gemm_operands const operands = random_operands(weight, m, random);
    EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands), columns));
  }
}

TEST(gpu_gemm_epilogue, adds_bias_and_residuals_of_every_type) {
  std::uint64_t seed = 80;
  for (weight_kind kind : all_weight_kinds) {
    for (dtype y_type : {dtype::f16, dtype::bf16, dtype::f32}) {
      for (dtype residual_type : {dtype::f16, dtype::bf16, dtype::f32}) {
        for (bool in_place : {false, true}) {
          if (in_place && residual_type != y_type) continue;
          random_source random(seed);
          gpu_weight const weight = random_weight(kind, 100, 608, random);
          gemm_problem problem;
          problem.y_type = y_type;
          gpu_gemm const gemm(weight, problem);
          gemm_operands operands =
              random_operands(weight, 1 + static_cast<std::int64_t>(seed * 7 % 96), random);
          if (seed % 3 != 0) operands.bias = random.normals(100);
          operands.residual = random_values(operands.m * 100, residual_type, random);
          operands.residual_type = residual_type;
          operands.in_place = in_place;
          EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands)))
              << kind << " seed " << seed << (in_place ? " in place" : "");
          ++seed;
        }
      }
    }
  }
}

TEST(gpu_gemm_epilogue, multiplies_silu_of_gate_by_up) {
  std::uint64_t seed = 140;
  for (weight_kind kind : all_weight_kinds) {
    for (std::int64_t n : {64, 320}) {
      random_source random(seed);
      gpu_weight const weight = random_weight(kind, n, 208, random);
      gemm_problem problem;
      problem.y_type = seed % 2 == 0 ? dtype::f32 : dtype::bf16;
      problem.act = activation::silu_gate;
      gpu_gemm const gemm(weight, problem);
      ASSERT_EQ(gemm.columns(), n / 2);
      for (std::int64_t m : {1, 9, 33}) {
        gemm_operands operands = random_operands(weight, m, random);
        // Sums are between -1e2 and 1e2 for all kinds, so that silu is not only 0 and x.
        for (std::uint16_t& x : operands.x) x = encode_f16(decode_f16(x) * 0x1p-9F);
        EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands))) << kind << " seed " << seed;
        operands.bias = random.normals(n);
        operands.residual = random_values(m * n / 2, dtype::f32, random);
        EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands))) << kind << " seed " << seed;
      }
      ++seed;
    }
  }
}

TEST(gpu_gemm_epilogue, saturates_or_overflows_as_asked) {
  random_source random(9);
  gpu_weight const weight = random_weight(f16_dense, 40, 64, random);
  for (dtype y_type : {dtype::f16, dtype::bf16}) {
    for (overflow_policy overflow : {overflow_policy::saturate, overflow_policy::infinite}) {
      gemm_problem problem;
      problem.y_type = y_type;
      problem.overflow = overflow;
      gpu_gemm const gemm(weight, problem);
      gemm_operands operands;
      operands.m = 2;
      operands.x.assign(2 * 64, 0);
      float const large = y_type == dtype::f16 ? 1e6F : 3.4e38F;
      operands.bias.assign(40, large);
      operands.bias[1] = -large;
      operands.bias[2] = INFINITY;
      std::vector<std::uint32_t> const y = run(gemm, operands).y;
      std::uint32_t const infinity = y_type == dtype::f16 ? 0x7c00 : 0x7f80;
      std::uint32_t const expected =
          overflow == overflow_policy::saturate ? infinity - 1 : infinity;
      for (std::size_t row : {0, 40}) {
        EXPECT_EQ(y[row], expected);
        EXPECT_EQ(y[row + 1], expected | 0x8000u);
        EXPECT_EQ(y[row + 2], infinity) << "infinities stay";
      }
    }
  }
}

TEST(gpu_gemm_nan, stays_in_its_row_of_x) {
  random_source random(10);
  gpu_weight const weight = random_weight(nvfp4_tensor, 130, 592, random);
  gpu_gemm const gemm(weight, f32_problem());
  gemm_operands operands = random_operands(weight, 70, random);
  gemm_result const before = run(gemm, operands);
  operands.x[4 * 592 + 77] = 0x7e00;
  gemm_result const after = run(gemm, operands);
  for (std::size_t i = 0; i < after.y.size(); ++i) {
    if (i / 130 == 4) {
      EXPECT_TRUE(std::isnan(value_of(after.y[i], dtype::f32))) << "column " << i % 130;
    } else {
      EXPECT_EQ(after.y[i], before.y[i]) << "row " << i / 130;
    }
  }
}

}  // namespace
}  // namespace qpn::test
