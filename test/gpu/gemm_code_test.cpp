// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "gpu/gemm_call.hpp"
#include "gpu/gemm_code_launch.hpp"

// Calls of programs that lack device code for the GPU, on one that runs code for sm_90a.

namespace qpn::test {
namespace {

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};

using code_launch = status (*)(gemm_plan<nvfp4> const&, gemm_args const&, workspace_view,
                               cudaStream_t) noexcept;

class gpu_gemm_code : public testing::Test {
 protected:
  void SetUp() override {
    if (test_device().compute_capability != 90 || tested_layout() != layout_id::sm80_mma16) {
      GTEST_SKIP() << "for the own kernels of compute capability 9.0";
    }
  }

  /// The plan of a weight that is large enough for warpgroups.
  [[nodiscard]] static gemm_plan<nvfp4> plan_of(gpu_gemm const& gemm) {
    gemm_plan<nvfp4> plan;
    require(make_gemm_plan(gemm.weight().layout(), gemm.problem(), test_device(), plan));
    return plan;
  }
  [[nodiscard]] static gemm_problem problem_of(std::int64_t max_m) {
    gemm_problem problem = f32_problem(dtype::bf16);
    problem.max_m = max_m;
    return problem;
  }
};

TEST_F(gpu_gemm_code, without_sm90a_gives_the_same_bits_and_counts_a_fallback) {
  random_source random(41);
  gpu_weight const weight = random_weight(nvfp4_tensor, 8768, 5120, random);
  gpu_gemm const gemm(weight, problem_of(96));
  struct tested {
    code_launch launch;
    gemm_arch arch;
  };
  for (auto const& [launch, arch] : {tested{&launch_with_code_for<90>, gemm_arch::sm90},
                                     tested{&launch_with_code_for<80>, gemm_arch::sm80}}) {
    for (std::int64_t const m : {7, 64}) {
      gemm_operands const operands = random_operands(weight, m, random, dtype::bf16);
      gemm_result const expected = run(gemm, operands);
      gpu_call call(gemm, operands);
      gemm_census census;
      call.args().census = &census;
      device_stream const stream;
      status const launched = launch(plan_of(gemm), call.args(), gemm.workspace(), stream.get());
      ASSERT_TRUE(launched.ok()) << launched.what;
      stream.wait();
      EXPECT_EQ(call.result().y, expected.y) << "m " << m << " seed 41";
      gemm_route const planned = gemm.route_of(m);
      gemm_route taken = planned;
      taken.arch = arch;
      if (m == 64) {
        EXPECT_EQ(planned.method, gemm_method::group);
        taken.method = gemm_method::mt4;
      }
      EXPECT_EQ(census.launches(taken), 1u) << route_name(taken);
      EXPECT_EQ(census.fallbacks, route_index(taken) == route_index(planned) ? 0u : 1u);
    }
  }
}

TEST_F(gpu_gemm_code, that_is_missing_is_a_status_and_no_error_is_left_behind) {
  random_source random(42);
  gpu_weight const weight = random_weight(nvfp4_tensor, 130, 592, random);
  gpu_gemm const gemm(weight, problem_of(128));
  struct tested {
    code_launch launch;
    std::int64_t m;
  };
  for (auto const& [launch, m] :
       {tested{&launch_with_code_for<89>, 1}, tested{&launch_with_code_for<89>, 128},
        tested{&launch_with_code_for<90>, 97}, tested{&launch_with_code_for<80>, 97}}) {
    gpu_call call(gemm, random_operands(weight, m, random, dtype::bf16));
    gemm_census census;
    call.args().census = &census;
    device_stream const stream;
    status const refused = launch(plan_of(gemm), call.args(), gemm.workspace(), stream.get());
    EXPECT_EQ(refused.code, status_code::not_compiled_for_arch) << refused.what << " m " << m;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    stream.wait();
    EXPECT_EQ(call.result().y,
              std::vector<std::uint32_t>(static_cast<std::size_t>(m * 130), 0xffffffffu));
    EXPECT_EQ(census.launches(gemm.route_of(m)), 0u);
  }
}

}  // namespace
}  // namespace qpn::test
