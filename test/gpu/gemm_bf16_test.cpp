// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"
#include "support/expected_candidates.hpp"
#include "support/pattern_weights.hpp"

// qpn::gemm<dtype::bf16> on the GPU, beyond what gemm_test.cpp holds both types of x to.

namespace qpn::test {
namespace {

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};
constexpr weight_kind fp8_tensor{format_id::fp8, scale_mode::tensor, dtype::f16};
constexpr weight_kind bf16_dense{format_id::dense16, scale_mode::none, dtype::bf16};

class gpu_gemm_bf16 : public testing::Test {
 protected:
  void SetUp() override {
    if (tested_layout() != layout_id::sm80_mma16) {
      GTEST_SKIP() << "x in bf16 needs layout sm80_mma16";
    }
  }
};

/// Sixteen rows of x that pick one k each give the columns of the weight, bit for bit.
void expect_exact_columns(published_weight published) {
  gpu_weight const weight(std::move(published));
  gpu_gemm const gemm(weight, f32_problem(dtype::bf16));
  std::int64_t const n = weight.layout().n;
  gemm_operands operands;
  operands.m = 16;
  operands.x = identity(16, dtype::bf16);
  std::vector<std::uint32_t> const y = run(gemm, operands).y;
  for (std::int64_t j = 0; j < n; ++j) {
    std::vector<double> const row = weight.row(j);
    for (std::int64_t i = 0; i < 16; ++i) {
      ASSERT_EQ(static_cast<double>(value_of(y[static_cast<std::size_t>(i * n + j)], dtype::f32)),
                row[static_cast<std::size_t>(i)])
          << "row " << j << " k " << i;
    }
  }
}

TEST_F(gpu_gemm_bf16, every_code_with_every_scale_is_exact) {
  expect_exact_columns(every_block_scale());
  expect_exact_columns(every_e4m3_code());
  expect_exact_columns(every_16_bit_weight(dtype::bf16));
}

TEST_F(gpu_gemm_bf16, rows_of_any_size_give_sums_of_their_size) {
  for (weight_kind const kind : {nvfp4_tensor, fp8_tensor, bf16_dense}) {
    random_source random(31);
    gpu_weight const weight = random_weight(kind, 130, 592, random);
    gpu_gemm const gemm(weight, f32_problem(dtype::bf16));
    gemm_operands operands = random_operands(weight, 9, random, dtype::bf16);
    std::vector<std::uint16_t> const x = operands.x;
    std::vector<std::uint32_t> const expected = run(gemm, operands).y;
    for (int const exponent : {-70, 70}) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        operands.x[i] = encode_bf16(std::ldexp(decode_bf16(x[i]), exponent));
      }
      std::vector<std::uint32_t> y = run(gemm, operands).y;
      for (std::uint32_t& bits : y) {
        bits = bits_of(std::ldexp(value_of(bits, dtype::f32), -exponent), dtype::f32);
      }
      EXPECT_EQ(y, expected) << kind << " times 2^" << exponent << " seed 31";
    }
  }
}

TEST_F(gpu_gemm_bf16, has_every_epilogue) {
  std::uint64_t seed = 200;
  for (operand_kinds const kinds : all_operand_kinds()) {
    if (kinds.x_type != dtype::bf16) continue;
    for (dtype const y_type : {dtype::f16, dtype::bf16, dtype::f32}) {
      for (bool const gate : {false, true}) {
        random_source random(seed);
        gpu_weight const weight = random_weight(kinds.weight, 320, 208, random);
        gemm_problem problem;
        problem.x_type = dtype::bf16;
        problem.y_type = y_type;
        problem.act = gate ? activation::silu_gate : activation::none;
        gpu_gemm const gemm(weight, problem);
        gemm_operands operands = random_operands(
            weight, 1 + static_cast<std::int64_t>(seed * 11 % 96), random, dtype::bf16);
        // Sums are between -1e2 and 1e2 for all kinds, so that silu is not only 0 and x.
        for (std::uint16_t& x : operands.x) x = encode_bf16(decode_bf16(x) * 0x1p-9F);
        operands.bias = random.normals(320);
        operands.residual = random_values(operands.m * gemm.columns(), y_type, random);
        operands.residual_type = y_type;
        operands.in_place = seed % 2 == 0;
        EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands)))
            << kinds << " seed " << seed << (gate ? " gate" : "");
        ++seed;
      }
    }
  }
}

TEST_F(gpu_gemm_bf16, lists_the_candidates_of_the_stored_row) {
  random_source random(33);
  gpu_weight const weight = random_weight(nvfp4_tensor, 1000, 592, random);
  gemm_problem problem = f32_problem(dtype::bf16);
  problem.max_m = gemm_candidates_max_m;
  problem.candidates = 7;
  gpu_gemm const gemm(weight, problem);
  gemm_operands const operands = random_operands(weight, 13, random, dtype::bf16);
  gemm_result const result = run(gemm, operands);
  ASSERT_TRUE(keeps_bound(gemm, operands, result));
  for (std::int64_t i = 0; i < 13; ++i) {
    std::vector<float> row;
    for (std::int64_t j = 0; j < 1000; ++j) {
      row.push_back(value_of(result.y[static_cast<std::size_t>(i * 1000 + j)], dtype::f32));
    }
    expected_list const list =
        expected_candidates(row.data(), 1000, 7, 0, std::numeric_limits<std::int32_t>::max());
    for (std::size_t place = 0; place < 7; ++place) {
      EXPECT_EQ(result.candidate_ids[static_cast<std::size_t>(i) * 7 + place], list.ids[place])
          << "row " << i << " place " << place << " seed 33";
    }
  }
}

TEST_F(gpu_gemm_bf16, takes_many_rows_fused_or_in_more_row_blocks) {
  std::uint64_t seed = 34;
  for (weight_kind const kind : {nvfp4_tensor, fp8_tensor, bf16_dense}) {
    random_source random(seed);
    gpu_weight const weight = random_weight(kind, 300, 592, random);
    gemm_problem problem = f32_problem(dtype::bf16);
    problem.max_m = 200;
    gpu_gemm const gemm(weight, problem);
    bool const hopper = test_device().compute_capability == 90;
    bool const fused = hopper && kind.format != format_id::dense16;
    EXPECT_EQ(gemm.route_of(200).method, fused ? gemm_method::wide : gemm_method::mt4);
    gemm_operands operands = random_operands(weight, 200, random, dtype::bf16);
    operands.x_gap = static_cast<std::int64_t>(seed % 3);
    operands.residual = random_values(200 * 300, dtype::f32, random);
    EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands))) << kind << " seed " << seed;
    ++seed;
  }
}

TEST_F(gpu_gemm_bf16, plans_and_calls_of_two_types_do_not_mix) {
  random_source random(37);
  gpu_weight const weight = random_weight(nvfp4_tensor, 64, 64, random);
  device_stream const stream;
  for (dtype const planned : {dtype::f16, dtype::bf16}) {
    gpu_gemm const gemm(weight, f32_problem(planned));
    gpu_call call(gemm, random_operands(weight, 1, random, planned));
    gemm_plan<nvfp4> plan;
    require(make_gemm_plan(weight.layout(), f32_problem(planned), test_device(), plan));
    status const refused = planned == dtype::f16
                               ? launch_gemm_bf16(plan, call.args(), gemm.workspace(), stream.get())
                               : launch_gemm(plan, call.args(), gemm.workspace(), stream.get());
    EXPECT_EQ(refused.code, status_code::invalid_value) << to_string(planned);
    stream.wait();
    EXPECT_EQ(call.result().y, std::vector<std::uint32_t>(64, 0xffffffffu));
  }
}

}  // namespace
}  // namespace qpn::test
