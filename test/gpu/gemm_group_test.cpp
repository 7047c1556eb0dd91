// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"

// The GEMM by warpgroups on weights that are large enough for it: its rows have the bits that the
// kernels of m16n8k16 give them, 16 at a time.

namespace qpn::test {
namespace {

std::string method_of(gpu_gemm const& gemm, std::int64_t m) {
  gemm_method const method = gemm.route_of(m).method;
  return detail::gemm_method_names[static_cast<int>(method)];
}

/// Rows [first, first + m) of the operands.
gemm_operands rows_of(gemm_operands const& all, std::int64_t first, std::int64_t m, std::int64_t k,
                      std::int64_t columns) {
  gemm_operands some = all;
  some.m = m;
  some.x.assign(all.x.begin() + first * k, all.x.begin() + (first + m) * k);
  if (!all.residual.empty()) {
    some.residual.assign(all.residual.begin() + first * columns,
                         all.residual.begin() + (first + m) * columns);
  }
  return some;
}

class gpu_gemm_groups : public testing::TestWithParam<operand_kinds> {
 protected:
  void SetUp() override {
    if (tested_layout() != layout_id::sm80_mma16) GTEST_SKIP() << "not a kernel of this layout";
  }
  /// n and k end in the middle of a strip, of a batch and, in fp8, of a record.
  static gpu_weight large_weight(random_source& random) {
    bool const nvfp4 = GetParam().weight.format == format_id::nvfp4;
    return random_weight(GetParam().weight, nvfp4 ? 8200 : 5830, nvfp4 ? 5136 : 5203, random);
  }
};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_gemm_groups,
                         testing::Values(operand_kinds{all_weight_kinds[0], dtype::f16},
                                         operand_kinds{all_weight_kinds[3], dtype::f16},
                                         operand_kinds{all_weight_kinds[0], dtype::bf16},
                                         operand_kinds{all_weight_kinds[3], dtype::bf16}),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gpu_gemm_groups, give_rows_the_bits_of_calls_with_few_rows) {
  constexpr std::uint64_t seed = 21;
  random_source random(seed);
  gpu_weight const weight = large_weight(random);
  std::int64_t const k = weight.layout().k;
  std::int64_t const n = weight.layout().n;
  for (dtype const y_type : {dtype::f32, dtype::f16, dtype::bf16}) {
    gemm_problem problem;
    problem.x_type = GetParam().x_type;
    problem.y_type = y_type;
    gpu_gemm const gemm(weight, problem);
    if (method_of(gemm, 64) != "group") GTEST_SKIP() << "not the kernels of this GPU";
    gemm_operands operands = random_operands(weight, gemm_max_m, random, problem.x_type);
    // A row of zeros, and rows that must not disturb their neighbours.
    std::fill_n(operands.x.begin() + 5 * k, k, std::uint16_t{0});
    operands.x[static_cast<std::size_t>(9 * k + 77)] = 0x7fff;
    operands.x[static_cast<std::size_t>(40 * k + 1)] =
        problem.x_type == dtype::f16 ? 0x7c00 : 0x7f80;
    if (problem.x_type == dtype::bf16) {  // sums of all sizes, and of terms of all sizes
      for (std::int64_t i = 50 * k; i < 60 * k; ++i) {
        std::uint16_t& x = operands.x[static_cast<std::size_t>(i)];
        x = encode_bf16(std::ldexp(decode_bf16(x), static_cast<int>(random.integer(-90, 60))));
      }
    }
    if (y_type != dtype::f16) operands.bias = random.normals(n);
    if (y_type == dtype::f32) operands.residual = random_values(gemm_max_m * n, dtype::f32, random);
    operands.x_gap = y_type == dtype::f16 ? 0 : 3;
    std::vector<std::uint32_t> few;
    for (std::int64_t first = 0; first < gemm_max_m; first += 16) {
      std::vector<std::uint32_t> const y = run(gemm, rows_of(operands, first, 16, k, n)).y;
      few.insert(few.end(), y.begin(), y.end());
    }
    for (std::int64_t const m : {17, 32, 33, 64, 65, 96}) {
      bool const takes_fewer = GetParam().weight.format == format_id::nvfp4;
      ASSERT_EQ(method_of(gemm, m), m > 32 || takes_fewer ? "group" : "mt4");
      gemm_operands const some = rows_of(operands, 0, m, k, n);
      std::vector<std::uint32_t> const y = run(gemm, some).y;
      EXPECT_TRUE(std::equal(y.begin(), y.end(), few.begin()))
          << GetParam() << " m " << m << " y " << to_string(y_type) << " seed " << seed;
    }
  }
}

TEST_P(gpu_gemm_groups, keep_the_bound) {
  random_source random(22);
  gpu_weight const weight = large_weight(random);
  gpu_gemm const gemm(weight, f32_problem(GetParam().x_type));
  if (method_of(gemm, 64) != "group") GTEST_SKIP() << "not the kernels of this GPU";
  gemm_operands const operands = random_operands(weight, 64, random, GetParam().x_type);
  EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands), {0, 31, 32, 63, 130, 4199}))
      << GetParam() << " seed 22";
}

TEST(gpu_gemm_group_gate, has_the_bits_of_calls_with_few_rows) {
  random_source random(23);
  gpu_weight const weight =
      random_weight({format_id::nvfp4, scale_mode::channel, dtype::f16}, 4224, 5120, random);
  gemm_problem problem;
  problem.act = activation::silu_gate;
  gpu_gemm const gemm(weight, problem);
  if (method_of(gemm, 64) != "group") GTEST_SKIP() << "not the kernels of this GPU";
  gemm_operands const operands = random_operands(weight, 48, random);
  std::vector<std::uint32_t> const all = run(gemm, operands).y;
  for (std::int64_t first = 0; first < 48; first += 16) {
    std::vector<std::uint32_t> const few =
        run(gemm, rows_of(operands, first, 16, 5120, gemm.columns())).y;
    EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin() + first * gemm.columns()))
        << "row " << first << " seed 23";
  }
}

}  // namespace
}  // namespace qpn::test
