// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <qpn/arch/sm70/gemm_wide_params.hpp>
#include <string>
#include <vector>

#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"

// Every kernel of qpn::gemm for each kind of weight once, on the smallest shapes that pass all of
// its barriers: what racecheck, which slows a launch down a thousand times, runs of the GEMM's
// tests.

namespace qpn::test {
namespace {

class gpu_gemm_every_kernel : public testing::TestWithParam<weight_kind> {
 protected:
  [[nodiscard]] static bool has_blocks() { return GetParam().scale == scale_mode::block; }
  [[nodiscard]] static std::int64_t record_k() {
    return GetParam().format == format_id::nvfp4 ? 64
           : GetParam().format == format_id::fp8 ? 32
                                                 : 16;
  }
  /// The last record of each row is not whole.
  [[nodiscard]] static gpu_weight weight_of(std::int64_t n, std::int64_t records) {
    random_source random(static_cast<std::uint64_t>(n));
    return random_quadpair_weight(GetParam(), n, records * record_k() - 16 * (record_k() > 16),
                                  random);
  }
  static void expect_bound(gpu_gemm const& gemm, std::int64_t m, char const* method) {
    SCOPED_TRACE(testing::Message() << GetParam() << " m " << m << " seed " << m);
    std::string const route = route_name(gemm.route_of(m));
    EXPECT_NE(route.find(method), std::string::npos) << route;
    random_source random(static_cast<std::uint64_t>(m));
    gemm_operands const operands = random_operands(gemm.weight(), m, random, gemm.problem().x_type);
    EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands)));
  }
};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_gemm_every_kernel, testing::ValuesIn(all_weight_kinds),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gpu_gemm_every_kernel, of_one_team) {
  // Three tile groups: runs that cross from one into the next, and come in no pairs.
  gpu_weight const weight = weight_of(192, 24);
  gemm_problem problem = f32_problem();
  problem.candidates = 1;
  gpu_gemm const gemm(weight, problem);
  expect_bound(gemm, 8, "mt1");
  expect_bound(gemm, 15, "mt2");
  expect_bound(gemm, 40, "mt2");
  problem.max_m = gemm_candidates_max_m;
  problem.candidates = 5;
  gpu_gemm const lists(weight, problem);
  expect_bound(lists, 3, "mt1");
  expect_bound(lists, 16, "mt2");
}

TEST_P(gpu_gemm_every_kernel, of_two_teams) {
  // Four tile groups for six runs.
  gpu_weight const weight = weight_of(256, 24);
  gemm_problem problem = f32_problem();
  problem.candidates = 1;
  gpu_gemm const gemm(weight, problem);
  bool const many = GetParam().format != format_id::dense16 && !has_blocks();
  expect_bound(gemm, 30, "mt4");
  expect_bound(gemm, 37, many ? "mt8" : "mt4");
  expect_bound(gemm, 64, many ? "mt8" : "mt4");
  expect_bound(gemm, 70, many ? "mt12" : "mt4");
}

TEST_P(gpu_gemm_every_kernel, of_many_rows) {
  gpu_weight const weight = weight_of(192, 5);
  gemm_problem problem = f32_problem();
  problem.max_m = 100;
  expect_bound(gpu_gemm(weight, problem), 100, has_blocks() ? "mt2" : "wide");
  if (has_blocks()) return;
  // CTAs of 64 rows for every place of the GPU.
  gpu_weight const broad = weight_of(256 * std::int64_t{test_device().sm_count}, 2);
  ASSERT_EQ(detail::sm70::wide_ctas(broad.layout(), 100, 8), 2 * test_device().sm_count);
  expect_bound(gpu_gemm(broad, problem), 100, "wide");
}

TEST_P(gpu_gemm_every_kernel, without_matrix_instructions) {
  if (has_blocks()) GTEST_SKIP() << "simt takes no block scales";
  gpu_weight const weight = weight_of(192, 24);
  gemm_problem problem = f32_problem();
  problem.algorithm = gemm_algorithm::simt;
  problem.max_m = gemm_simt_max_m;
  gpu_gemm const gemm(weight, problem);
  for (std::int64_t m : {1, 2, 3}) expect_bound(gemm, m, "simt");
}

TEST_P(gpu_gemm_every_kernel, of_the_gpus_own_layout) {
  random_source random(1);
  gpu_weight const weight = random_weight(GetParam(), 192, 24 * record_k(), random);
  bool const is_f16 =
      GetParam().format == format_id::dense16 && GetParam().dense_type == dtype::f16;
  for (dtype const x_type : {dtype::f16, dtype::bf16}) {
    if (x_type == dtype::bf16 && (is_f16 || tested_layout() != layout_id::sm80_mma16)) continue;
    gpu_gemm const gemm(weight, f32_problem(x_type));
    expect_bound(gemm, 8, "mt1");
    expect_bound(gemm, 15, "mt2");
    expect_bound(gemm, 70, "mt");
  }
}

// Weights for each count of registers that sm80::choose_registers has on an H200, whole strips and
// halves: the row's bits are those of the kernel with four row tiles, which has one count.
struct register_case {
  weight_kind kind;
  std::int64_t strips;
  char const* one_tile;  ///< registers with one row tile
};
class gpu_gemm_registers : public testing::TestWithParam<register_case> {};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_gemm_registers,
                         testing::Values(register_case{all_weight_kinds[0], 40, "halves_of_80"},
                                         register_case{all_weight_kinds[0], 160, "more_halves"},
                                         register_case{all_weight_kinds[0], 300, "128"},
                                         register_case{all_weight_kinds[0], 700, "64"},
                                         register_case{all_weight_kinds[0], 1100, "56"},
                                         register_case{all_weight_kinds[0], 1200, "waves_of_128"},
                                         register_case{all_weight_kinds[2], 40, "halves_of_80"},
                                         register_case{all_weight_kinds[2], 160, "more_halves"},
                                         register_case{all_weight_kinds[2], 1200, "128"}),
                         [](auto const& tested) {
                           return to_string(tested.param.kind) + "_" + tested.param.one_tile;
                         });

TEST_P(gpu_gemm_registers, change_no_bit) {
  if (tested_layout() != layout_id::sm80_mma16) GTEST_SKIP() << "not a kernel of this layout";
  constexpr std::uint64_t seed = 31;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  random_source random(seed);
  std::int64_t const k = 1040;  // ends in the middle of a batch
  std::int64_t const n = 32 * GetParam().strips - 7;
  gpu_weight const weight = random_weight(GetParam().kind, n, k, random);
  gpu_gemm const gemm(weight, f32_problem());
  gemm_operands const operands = random_operands(weight, 24, random);
  gemm_result const all = run(gemm, operands);
  EXPECT_TRUE(keeps_bound(gemm, operands, all, {0, 1, n / 2, n - 1}));
  for (std::int64_t const m : {1, 8, 16}) {
    gemm_operands some = operands;
    some.m = m;
    some.x.resize(static_cast<std::size_t>(m * k));
    std::vector<std::uint32_t> const y = run(gemm, some).y;
    EXPECT_TRUE(std::equal(y.begin(), y.end(), all.y.begin())) << "m " << m;
  }
}

TEST(gpu_gemm_sliced, gives_each_of_many_rows_the_bits_that_it_has_alone) {
  random_source random(12);
  weight_kind const kind{format_id::fp8, scale_mode::block, dtype::f16};
  gpu_weight const weight = random_weight(kind, 300, 1040, random);
  gemm_problem problem = f32_problem();
  problem.max_m = 250;
  gpu_gemm const gemm(weight, problem);
  gemm_operands operands = random_operands(weight, 250, random);
  operands.residual = random_values(250 * 300, dtype::f32, random);
  operands.x_gap = 3;
  gemm_result const all = run(gemm, operands);
  EXPECT_TRUE(keeps_bound(gemm, operands, all, {0, 127, 128, 299}));
  for (std::int64_t const row : {0, 95, 96, 191, 192, 249}) {
    gemm_operands alone;
    alone.m = 1;
    alone.x.assign(operands.x.begin() + row * 1040, operands.x.begin() + (row + 1) * 1040);
    alone.residual.assign(operands.residual.begin() + row * 300,
                          operands.residual.begin() + (row + 1) * 300);
    std::vector<std::uint32_t> const y = run(gemm, alone).y;
    EXPECT_TRUE(std::equal(y.begin(), y.end(), all.y.begin() + row * 300)) << "row " << row;
  }
}

}  // namespace
}  // namespace qpn::test
