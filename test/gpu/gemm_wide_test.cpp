// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <qpn/arch/sm90/gemm_wide_plan.hpp>
#include <string>
#include <vector>

#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"
#include "gpu/gemm_dense_launch.hpp"

// qpn::gemm and qpn::gemm_dense for more rows than the narrow kernels take, on the GPU.

namespace qpn::test {
namespace {

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};

gemm_problem wide_problem(std::int64_t max_m, dtype y_type = dtype::f32) {
  gemm_problem problem;
  problem.max_m = max_m;
  problem.y_type = y_type;
  return problem;
}

/// Panels of 64 weight rows, from the first m on that may have them.
gemm_problem dense_problem(gpu_weight const& weight, std::int64_t max_m,
                           dtype y_type = dtype::f32) {
  gemm_problem problem = wide_problem(max_m, y_type);
  problem.dense_min_m = gemm_max_m + 1;
  problem.dense_bytes = dense_panel_bytes(weight.layout(), max_m, 64);
  return problem;
}

/// Whether many rows have a kernel of their own; else those of fewer rows take them.
bool has_fused(gpu_weight const& weight) {
  return weight.layout().id == layout_id::sm70_quadpair ||
         detail::sm90::has_wide(weight.layout(), test_device().compute_capability);
}

class gpu_gemm_wide_kind : public testing::TestWithParam<weight_kind> {
 protected:
  /// A length that ends anywhere in a step; nvfp4 has it in groups of 16.
  [[nodiscard]] static std::int64_t length(std::uint64_t seed) {
    std::int64_t const lengths[] = {16, 64, 80, 208, 288};
    bool const grouped = GetParam().format == format_id::nvfp4;
    return lengths[seed % 5] + (grouped ? 0 : static_cast<std::int64_t>(seed % 3));
  }
};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_gemm_wide_kind, testing::ValuesIn(kinds_without_scale_blocks),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gpu_gemm_wide_kind, keeps_the_bound_on_ragged_shapes_fused_and_in_panels) {
  std::uint64_t seed = 1;
  for (std::int64_t m : {97, 128, 129, 200}) {
    for (std::int64_t n : {24, 130, 300}) {
      random_source random(seed);
      gpu_weight const weight = random_weight(GetParam(), n, length(seed), random);
      dtype const y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
      gemm_operands operands = random_operands(weight, m, random);
      operands.x_gap = static_cast<std::int64_t>(seed % 4);
      operands.x_shift = static_cast<std::int64_t>(seed % 3);
      gpu_gemm const fused(weight, wide_problem(m, y_type));
      ASSERT_EQ(fused.route_of(m).method, has_fused(weight) ? gemm_method::wide : gemm_method::mt4);
      ASSERT_TRUE(keeps_bound(fused, operands, run(fused, operands)))
          << GetParam() << " seed " << seed;
      gpu_gemm const dense(weight, dense_problem(weight, m + 3, y_type));
      ASSERT_EQ(dense.route_of(m).method, gemm_method::dense);
      ASSERT_TRUE(keeps_bound(dense, operands, run(dense, operands)))
          << GetParam() << " seed " << seed;
      ASSERT_TRUE(weight.is_intact());
      ++seed;
    }
  }
}

TEST_P(gpu_gemm_wide_kind, adds_bias_and_residual_and_multiplies_silu_of_gate_by_up) {
  std::uint64_t seed = 40;
  for (bool gate : {false, true}) {
    for (bool panels : {false, true}) {
      random_source random(seed);
      gpu_weight const weight = random_weight(GetParam(), 192, 208, random);
      dtype const y_type = seed % 2 == 0 ? dtype::f32 : dtype::bf16;
      gemm_problem problem =
          panels ? dense_problem(weight, 110, y_type) : wide_problem(110, y_type);
      problem.act = gate ? activation::silu_gate : activation::none;
      gpu_gemm const gemm(weight, problem);
      gemm_operands operands = random_operands(weight, 110, random);
      for (std::uint16_t& x : operands.x) x = encode_f16(decode_f16(x) * 0x1p-9F);
      operands.bias = random.normals(192);
      operands.residual = random_values(110 * gemm.columns(), y_type, random);
      operands.residual_type = y_type;
      operands.in_place = seed % 4 < 2;
      EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands)))
          << GetParam() << " seed " << seed << (gate ? " gate" : "") << (panels ? " panels" : "");
      ++seed;
    }
  }
}

TEST_P(gpu_gemm_wide_kind, keeps_the_bits_of_a_row_for_every_m_place_and_company) {
  random_source random(2);
  gpu_weight const weight = random_weight(GetParam(), 330, 176, random);
  gpu_gemm const gemm(weight, wide_problem(200));
  gemm_operands const first = random_operands(weight, 97, random);
  gemm_result const expected = run(gemm, first);
  ASSERT_TRUE(keeps_bound(gemm, first, expected));
  auto const k = static_cast<std::size_t>(weight.layout().k);
  for (std::int64_t m : {97, 128, 161, 200}) {
    std::int64_t const place = m * 5 / 7;
    gemm_operands among = random_operands(weight, m, random);
    // Rows beside it are ordinary, large, or NaN.
    for (std::uint16_t& x : among.x) {
      if (random.integer(0, 500) == 0) x = m % 2 == 0 ? 0x7bff : 0x7e00;
    }
    std::copy_n(first.x.begin(), k, among.x.begin() + place * weight.layout().k);
    gemm_result const result = run(gemm, among);
    EXPECT_EQ(std::memcmp(expected.y.data(), result.y.data() + place * gemm.columns(),
                          static_cast<std::size_t>(gemm.columns()) * sizeof(std::uint32_t)),
              0)
        << GetParam() << " m " << m << " place " << place;
  }
}

TEST(gpu_gemm_wide, gives_the_same_bits_with_four_and_with_eight_row_tiles) {
  // More CTAs of 64 rows than a large GPU has places.
  random_source random(3);
  gpu_weight const weight = random_weight(nvfp4_tensor, 4000, 64, random);
  gpu_gemm const gemm(weight, wide_problem(1500));
  gemm_operands const many = random_operands(weight, 1500, random);
  gemm_result const all = run(gemm, many);
  ASSERT_TRUE(keeps_bound(gemm, many, all, {0, 63, 1999, 3999}));
  gemm_operands some;
  some.m = 100;
  some.x.assign(many.x.begin() + 700 * 64, many.x.begin() + 800 * 64);
  gemm_result const part = run(gemm, some);
  EXPECT_EQ(std::memcmp(part.y.data(), all.y.data() + std::size_t{700} * 4000,
                        part.y.size() * sizeof(std::uint32_t)),
            0);
}

TEST(gpu_gemm_wide, shares_the_k_of_a_tile_where_tiles_are_few_and_keeps_its_bits) {
  random_source random(4);
  for (weight_kind const kind :
       {nvfp4_tensor, weight_kind{format_id::fp8, scale_mode::channel, dtype::f16}}) {
    gpu_weight const weight = random_weight(kind, 520, 4096, random);
    for (std::int64_t m : {97, 130, 512}) {
      gpu_gemm const gemm(weight, wide_problem(m, dtype::f16));
      gemm_operands operands = random_operands(weight, m, random);
      for (std::uint16_t& x : operands.x) x = encode_f16(decode_f16(x) * 0x1p-9F);
      gemm_result const first = run(gemm, operands);
      ASSERT_TRUE(keeps_bound(gemm, operands, first, {0, 31, 260, 519})) << kind << " m " << m;
      for (int i = 0; i < 3; ++i) ASSERT_EQ(run(gemm, operands).y, first.y) << kind << " m " << m;
    }
  }
}

TEST(gpu_gemm_wide, a_nan_stays_in_its_row_of_x) {
  random_source random(10);
  gpu_weight const weight = random_weight(nvfp4_tensor, 130, 208, random);
  for (bool panels : {false, true}) {
    gpu_gemm const gemm(weight, panels ? dense_problem(weight, 111) : wide_problem(111));
    gemm_operands operands = random_operands(weight, 111, random);
    gemm_result const before = run(gemm, operands);
    operands.x[44 * 208 + 77] = 0x7e00;
    gemm_result const after = run(gemm, operands);
    for (std::size_t i = 0; i < after.y.size(); ++i) {
      if (i / 130 == 44) {
        EXPECT_TRUE(std::isnan(value_of(after.y[i], dtype::f32))) << "column " << i % 130;
      } else {
        EXPECT_EQ(after.y[i], before.y[i]) << "row " << i / 130;
      }
    }
  }
}

TEST(gpu_gemm_dense, runs_few_rows_as_gemm_does_and_counts_its_route_once) {
  random_source random(11);
  gpu_weight const weight = random_weight(nvfp4_tensor, 200, 592, random);
  gpu_gemm const dense(weight, dense_problem(weight, 120));
  gpu_gemm const plain(weight, wide_problem(gemm_max_m));
  gemm_operands const few = random_operands(weight, 5, random);
  EXPECT_EQ(run(dense, few).y, run(plain, few).y);

  gpu_call call(dense, random_operands(weight, 120, random));
  gemm_census census;
  call.args().census = &census;
  call.launch(nullptr);
  require(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(census.launches(dense.route_of(120)), 1u) << "four panels, one call";
  EXPECT_EQ(dense.route_of(120).method, gemm_method::dense);
}

TEST(gpu_gemm_dense, can_be_captured_and_shares_a_workspace_with_narrow_calls) {
  random_source random(12);
  gpu_weight const weight = random_weight(nvfp4_tensor, 200, 592, random);
  gpu_gemm const gemm(weight, dense_problem(weight, 120));
  gemm_operands const many = random_operands(weight, 120, random);
  gemm_operands const few = random_operands(weight, 9, random);
  gemm_result const expected_many = run(gemm, many);
  gemm_result const expected_few = run(gemm, few);
  gpu_call many_call(gemm, many);
  gpu_call few_call(gemm, few);
  device_stream const stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  require(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  many_call.launch(stream.get());
  few_call.launch(stream.get());
  require(cudaStreamEndCapture(stream.get(), &graph));
  require(cudaGraphInstantiateWithFlags(&replay, graph, 0));
  for (int i = 0; i < 5; ++i) {
    many_call.reset();
    few_call.reset();
    require(cudaGraphLaunch(replay, stream.get()));
    stream.wait();
    ASSERT_EQ(many_call.result().y, expected_many.y) << "replay " << i;
    ASSERT_EQ(few_call.result().y, expected_few.y) << "replay " << i;
  }
  require(cudaGraphExecDestroy(replay));
  require(cudaGraphDestroy(graph));
}

TEST(gpu_gemm_dense, returns_what_the_gemm_of_the_caller_says) {
  random_source random(13);
  gpu_weight const weight = random_weight(nvfp4_tensor, 200, 80, random);
  gemm_problem const problem = dense_problem(weight, 120);
  gpu_gemm const gemm(weight, problem);
  gpu_call call(gemm, random_operands(weight, 120, random));
  gemm_plan<nvfp4> plan;
  require(make_gemm_plan(weight.layout(), problem, test_device(), plan));
  int calls = 0;
  status const failed = launch_failing_gemm_dense(plan, call.args(), gemm.workspace(), calls);
  require(cudaDeviceSynchronize());
  EXPECT_EQ(failed.code, status_code::launch_failed);
  EXPECT_EQ(failed.cuda_error, 77);
  EXPECT_STREQ(failed.what, "the caller's own sentence");
  EXPECT_EQ(calls, 2);
}

TEST(gpu_gemm_dense, is_the_only_way_into_panels) {
  random_source random(14);
  gpu_weight const weight = random_weight(nvfp4_tensor, 200, 80, random);
  gemm_problem const problem = dense_problem(weight, 120);
  gpu_gemm const gemm(weight, problem);
  gpu_call call(gemm, random_operands(weight, 120, random));
  gemm_plan<nvfp4> plan;
  require(make_gemm_plan(weight.layout(), problem, test_device(), plan));
  EXPECT_EQ(launch_gemm(plan, call.args(), gemm.workspace(), nullptr).code,
            status_code::invalid_value);
  call.args().m = gemm_max_m;
  EXPECT_TRUE(launch_gemm(plan, call.args(), gemm.workspace(), nullptr).ok());
  require(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace qpn::test
