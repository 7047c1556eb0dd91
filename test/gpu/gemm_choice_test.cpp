// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/gemm_call.hpp"

// Up to gemm_max_m rows every choice of a table gives the bits of the rules' choice.

namespace qpn::test {
namespace {

std::vector<gemm_choice> choices_for(std::int64_t m, bool over_wgmma, format_id format) {
  std::vector<gemm_choice> choices = {{gemm_method::mt1}, {gemm_method::mt2}, {gemm_method::mt4}};
  for (int const row_tiles : {1, 2}) {
    detail::sm80::register_choices const free = detail::sm80::free_registers(format, row_tiles);
    for (int i = 0; i < free.count; ++i) {
      choices.push_back(
          {narrow_method(row_tiles), 0, 0, 0, 0, static_cast<std::int16_t>(free.values[i])});
    }
  }
  if (!over_wgmma) return choices;
  for (gemm_choice const group :
       {gemm_choice{gemm_method::group, 32, 1}, gemm_choice{gemm_method::group, 64, 1},
        gemm_choice{gemm_method::group, 64, 2}, gemm_choice{gemm_method::group, 96, 1},
        gemm_choice{gemm_method::group, 96, 3}}) {
    if (m <= group.rows) choices.push_back(group);
  }
  return choices;
}

class gpu_gemm_choice : public testing::TestWithParam<operand_kinds> {};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_gemm_choice,
                         testing::Values(operand_kinds{all_weight_kinds[0], dtype::f16},
                                         operand_kinds{all_weight_kinds[3], dtype::f16},
                                         operand_kinds{all_weight_kinds[0], dtype::bf16},
                                         operand_kinds{all_weight_kinds[3], dtype::bf16}),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gpu_gemm_choice, changes_no_bit_of_y) {
  constexpr std::uint64_t seed = 41;
  random_source random(seed);
  gpu_weight const weight = random_weight(GetParam().weight, 1190, 2064, random);
  packed_layout const& layout = weight.layout();
  if (layout.id != layout_id::sm80_mma16) GTEST_SKIP() << "the layout leaves nothing to choose";
  bool const over_wgmma = detail::sm90::has_wide(layout, test_device().compute_capability);
  for (std::int64_t const m : {3, 12, 25, 40, 90}) {
    gemm_problem problem;
    problem.x_type = GetParam().x_type;
    problem.y_type = dtype::f32;
    gemm_operands const operands = random_operands(weight, m, random, problem.x_type);
    std::vector<std::uint32_t> const expected = run(gpu_gemm(weight, problem), operands).y;
    for (gemm_choice const choice : choices_for(m, over_wgmma, layout.format)) {
      gemm_tuning_row const row = {layout.format, layout.n, layout.k, m, m, choice};
      problem.tuning = {&row, 1};
      gpu_gemm const gemm(weight, problem);
      EXPECT_EQ(gemm.route_of(m).method, choice.method);
      EXPECT_EQ(run(gemm, operands).y, expected)
          << GetParam() << " m " << m << " method " << static_cast<int>(choice.method) << " rows "
          << choice.rows << " groups " << int{choice.groups} << " registers " << choice.registers
          << " seed " << seed;
    }
    problem.tuning = {};
  }
}

}  // namespace
}  // namespace qpn::test
