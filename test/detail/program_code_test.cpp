// SPDX-License-Identifier: Apache-2.0
#include "qpn/detail/program_code.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/devices.hpp"

namespace qpn::test {
namespace {

using detail::program_code;

constexpr program_code for_sm80{80, false};
constexpr program_code for_sm90{90, false};
constexpr program_code for_sm90a{90, true};

gemm_plan<nvfp4> large_plan(std::int64_t max_m, dtype x_type = dtype::f16) {
  packed_layout layout;
  EXPECT_TRUE(make_packed_layout(format_id::nvfp4, scale_mode::tensor, 8768, 5120, dtype::f16,
                                 hopper_h200(), layout)
                  .ok());
  gemm_problem problem;
  problem.max_m = max_m;
  problem.x_type = x_type;
  gemm_plan<nvfp4> plan;
  status const planned = make_gemm_plan(layout, problem, hopper_h200(), plan);
  EXPECT_TRUE(planned.ok()) << planned.what;
  return plan;
}

std::string fit_name(gemm_plan<nvfp4> const& plan, std::int64_t m, program_code code) {
  gemm_route fit;
  status const done = detail::fit_mma16_route(plan, m, code, fit);
  EXPECT_TRUE(done.ok()) << done.what;
  return route_name(fit);
}

TEST(program_code, for_sm90a_runs_what_the_plan_says) {
  gemm_plan<nvfp4> const plan = large_plan(512);
  for (std::int64_t m = 1; m <= 512; m += 7) {
    EXPECT_EQ(fit_name(plan, m, for_sm90a), route_name(route(plan, m))) << "m " << m;
  }
  EXPECT_EQ(fit_name(plan, 64, for_sm90a), "sm90/nvfp4/group");
  EXPECT_EQ(fit_name(plan, 97, for_sm90a), "sm90/nvfp4/wide");
}

TEST(program_code, without_sm90a_runs_kernels_of_m16n8k16_in_place_of_warpgroups) {
  gemm_plan<nvfp4> const plan = large_plan(96);
  EXPECT_EQ(fit_name(plan, 8, for_sm90), "sm90/nvfp4/mt1");
  for (std::int64_t m = 17; m <= 96; ++m) {
    EXPECT_EQ(fit_name(plan, m, for_sm90), "sm90/nvfp4/mt4") << "m " << m;
    EXPECT_EQ(fit_name(plan, m, for_sm80), "sm80/nvfp4/mt4") << "m " << m;
  }
  EXPECT_EQ(fit_name(large_plan(96, dtype::bf16), 40, for_sm90), "sm90/nvfp4/mt4/bf16");
}

TEST(program_code, without_sm90a_refuses_many_rows_by_name) {
  gemm_plan<nvfp4> const plan = large_plan(512);
  for (program_code const code : {for_sm80, for_sm90}) {
    gemm_route fit{gemm_arch::sm70, gemm_operand::fp8, gemm_method::simt, true};
    status const refused = detail::fit_mma16_route(plan, 97, code, fit);
    EXPECT_EQ(refused.code, status_code::not_compiled_for_arch);
    EXPECT_NE(std::string(refused.what).find("sm_90a"), std::string::npos);
    EXPECT_EQ(fit.method, gemm_method::simt) << "a refused route must not be written";
  }
}

TEST(program_code, older_than_sm80_refuses_every_row) {
  gemm_plan<nvfp4> const plan = large_plan(96);
  for (int const arch : {0, 70, 75}) {
    gemm_route fit;
    status const refused = detail::fit_mma16_route(plan, 1, {arch, false}, fit);
    EXPECT_EQ(refused.code, status_code::not_compiled_for_arch) << arch;
    EXPECT_NE(std::string(refused.what).find("sm_80"), std::string::npos);
  }
}

}  // namespace
}  // namespace qpn::test
