// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/emulated_result.hpp"
#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"

// The results of qpn::gemm with gemm_algorithm::simt on the GPU.

namespace qpn::test {
namespace {

gemm_problem simt_problem(dtype y_type = dtype::f32) {
  gemm_problem problem;
  problem.max_m = gemm_simt_max_m;
  problem.algorithm = gemm_algorithm::simt;
  problem.y_type = y_type;
  return problem;
}

class gpu_gemv_kind : public testing::TestWithParam<weight_kind> {
 protected:
  [[nodiscard]] static bool grouped() { return GetParam().format == format_id::nvfp4; }
};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_gemv_kind, testing::ValuesIn(kinds_without_scale_blocks),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gpu_gemv_kind, keeps_the_bound_on_ragged_shapes) {
  std::vector<std::int64_t> const ks = grouped() ? std::vector<std::int64_t>{16, 80, 272, 2064}
                                                 : std::vector<std::int64_t>{1, 17, 271, 2051};
  std::uint64_t seed = 1;
  for (std::int64_t n : {1, 31, 33, 64, 65, 130, 300}) {
    for (std::int64_t k : ks) {
      random_source random(seed);
      gpu_weight const weight = random_quadpair_weight(GetParam(), n, k, random);
      dtype const y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
      gpu_gemm const gemm(weight, simt_problem(y_type));
      for (std::int64_t m : {1, 2, 3}) {
        gemm_operands operands = random_operands(weight, m, random);
        operands.x_gap = static_cast<std::int64_t>(seed % 4);
        operands.x_shift = m % 3;
        if (seed % 2 == 0) operands.bias = random.normals(n);
        if (seed % 3 == 0) operands.residual = random_values(m * n, dtype::f32, random);
        ASSERT_TRUE(keeps_bound(gemm, operands, run(gemm, operands)))
            << GetParam() << " seed " << seed;
      }
      ASSERT_TRUE(weight.is_intact());
      ++seed;
    }
  }
}

TEST_P(gpu_gemv_kind, keeps_the_bits_of_a_row_for_every_m_place_company_and_launch) {
  random_source random(2);
  gpu_weight const weight = random_quadpair_weight(GetParam(), 330, 1616, random);
  gpu_gemm const gemm(weight, simt_problem());
  gemm_operands const alone = random_operands(weight, 1, random);
  gemm_result const expected = run(gemm, alone);
  ASSERT_TRUE(keeps_bound(gemm, alone, expected));
  for (int launch = 0; launch < 20; ++launch) {
    for (std::int64_t m = 1; m <= gemm_simt_max_m; ++m) {
      for (std::int64_t place = 0; place < m; ++place) {
        gemm_operands among = random_operands(weight, m, random);
        // Rows beside it are ordinary, large, or NaN.
        for (std::uint16_t& x : among.x) {
          if (random.integer(0, 500) == 0) x = place % 2 == 0 ? 0x7bff : 0x7e00;
        }
        std::copy(alone.x.begin(), alone.x.end(), among.x.begin() + place * weight.layout().k);
        gemm_result const result = run(gemm, among);
        ASSERT_EQ(std::memcmp(expected.y.data(), result.y.data() + place * gemm.columns(),
                              expected.y.size() * sizeof(std::uint32_t)),
                  0)
            << GetParam() << " m " << m << " place " << place << " launch " << launch;
      }
    }
  }
}

TEST_P(gpu_gemv_kind, gives_the_bits_of_the_emulator) {
  std::uint64_t seed = 60;
  for (std::int64_t n : {40, 130}) {
    for (std::int64_t m : {1, 2, 3}) {
      random_source random(seed++);
      gpu_weight const weight = random_quadpair_weight(GetParam(), n, 592, random, 2);
      gpu_gemm const gemm(weight, simt_problem());
      gemm_operands const operands = random_operands(weight, m, random);
      gemm_result const on_gpu = run(gemm, operands);
      std::vector<float> const emulated = emulated_y(gemm, operands);
      for (std::size_t i = 0; i < emulated.size(); ++i) {
        ASSERT_EQ(on_gpu.y[i], detail::float_bits(emulated[i])) << GetParam() << " element " << i;
      }
    }
  }
}

TEST_P(gpu_gemv_kind, is_native_and_keeps_the_bound_on_a_projection) {
  random_source random(7);
  gpu_weight const weight = random_quadpair_weight(GetParam(), 3584, 5120, random);
  gpu_gemm const gemm(weight, simt_problem());
  EXPECT_FALSE(gemm.route_of(1).emulated);
  EXPECT_EQ(gemm.route_of(1).method, gemm_method::simt);
  std::vector<std::int64_t> columns{0, 3583};
  for (int i = 0; i < 62; ++i) columns.push_back(random.integer(0, 3583));
  for (std::int64_t m : {1, 3}) {
    gemm_operands const operands = random_operands(weight, m, random);
    EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands), columns));
  }
}

TEST_P(gpu_gemv_kind, multiplies_silu_of_gate_by_up) {
  random_source random(8);
  gpu_weight const weight = random_quadpair_weight(GetParam(), 320, 208, random);
  gemm_problem problem = simt_problem();
  problem.act = activation::silu_gate;
  gpu_gemm const gemm(weight, problem);
  for (std::int64_t m : {1, 3}) {
    gemm_operands operands = random_operands(weight, m, random);
    // Sums are between -1e2 and 1e2 for all kinds, so that silu is not only 0 and x.
    for (std::uint16_t& x : operands.x) x = encode_f16(decode_f16(x) * 0x1p-9F);
    operands.bias = random.normals(320);
    EXPECT_TRUE(keeps_bound(gemm, operands, run(gemm, operands))) << GetParam();
  }
}

}  // namespace
}  // namespace qpn::test
