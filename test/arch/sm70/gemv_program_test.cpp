// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm70/gemv_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "support/emulated_case.hpp"

namespace qpn::test {
namespace {

gemm_problem simt_problem(dtype y_type = dtype::f32) {
  gemm_problem problem;
  problem.max_m = gemm_simt_max_m;
  problem.algorithm = gemm_algorithm::simt;
  problem.y_type = y_type;
  return problem;
}

gemm_case simt_case(weight_kind kind = kinds_without_scale_blocks[0]) {
  gemm_case c;
  c.kind = kind;
  c.problem = simt_problem();
  return c;
}

class gemv_weight_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(gemv_program, gemv_weight_kind,
                         testing::ValuesIn(kinds_without_scale_blocks),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gemv_weight_kind, matches_fp64_on_ragged_shapes_split_over_ctas) {
  std::uint64_t seed = 100;
  for (std::int64_t n : {1, 24, 64, 65, 130, 200}) {
    for (std::int64_t k : {16, 80, 272, 1040}) {
      for (std::int64_t m : {1, 2, 3}) {
        gemm_case c = simt_case(GetParam());
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

TEST_P(gemv_weight_kind, keeps_the_bits_of_a_row_in_any_company) {
  gemm_case c = simt_case(GetParam());
  c.n = 130;
  c.k = 592;
  c.sm_count = 2;
  c.seed = 7;
  random_source random(8);
  std::vector<std::uint16_t> row;
  for (std::int64_t k = 0; k < c.k; ++k) row.push_back(encode_f16(random.normal()));
  c.m = 1;
  gemm_result const alone = run_any(c, &row);
  ASSERT_TRUE(alone.problems.empty()) << joined(alone.problems);
  for (std::int64_t m = 2; m <= gemm_simt_max_m; ++m) {
    for (std::int64_t place = 0; place < m; ++place) {
      std::vector<std::uint16_t> x;
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t k = 0; k < c.k; ++k) {
          x.push_back(i == place ? row[static_cast<std::size_t>(k)]
                                 : encode_f16(1000.0F * random.normal()));
        }
      }
      c.m = m;
      c.options.seed = static_cast<std::uint64_t>(10 * m + place);
      c.options.resident = 1 + static_cast<int>(place);
      gemm_result const among = run_any(c, &x);
      ASSERT_TRUE(among.problems.empty()) << joined(among.problems);
      EXPECT_EQ(std::memcmp(alone.y.data(), among.y.data() + place * c.n,
                            static_cast<std::size_t>(c.n) * sizeof(float)),
                0)
          << c.text() << " place " << place;
    }
  }
}

TEST_P(gemv_weight_kind, adds_the_fmas_of_each_warp_in_the_order_of_k) {
  // One CTA, one tile group, whole records: 8 warps with two steps each.
  gemm_case c = simt_case(GetParam());
  c.m = 2;
  c.n = 64;
  std::int64_t const record_k = c.kind.format == format_id::nvfp4 ? 64
                                : c.kind.format == format_id::fp8 ? 32
                                                                  : 16;
  c.k = 16 * record_k;
  c.seed = 11;
  random_source random(12);
  std::vector<std::uint16_t> x;
  for (std::int64_t i = 0; i < c.m * c.k; ++i) x.push_back(encode_f16(random.normal()));
  gemm_result const result = run_any(c, &x);
  ASSERT_TRUE(result.problems.empty()) << joined(result.problems);

  random_source again(c.seed);
  packed_gpu_weight weight(published_weight(c.kind, {c.n}, c.k, again), c.sm_count);
  ASSERT_EQ(weight.layout.ctas, 1);
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < c.n; ++j) {
      // Dividing by a row's fp32 scale gives the codes times block scales back, exactly.
      double scale = 1.0;
      if (weight.layout.scale != scale_mode::none) {
        std::int64_t const at = weight.layout.scale == scale_mode::tensor ? j / tile_n : j;
        float of_row = 0.0F;
        std::memcpy(&of_row, weight.bytes.data() + weight.layout.scales_offset + 4 * at, 4);
        scale = static_cast<double>(of_row);
      }
      float total = 0.0F;
      for (std::int64_t warp = 0; warp < 8; ++warp) {
        float sum = 0.0F;
        for (std::int64_t k = warp * c.k / 8; k < (warp + 1) * c.k / 8; ++k) {
          auto const w = static_cast<float>(
              std::round(weight.values[static_cast<std::size_t>(j * c.k + k)] / scale * 0x1p32) *
              0x1p-32);
          sum = std::fma(decode_f16(x[static_cast<std::size_t>(i * c.k + k)]), w, sum);
        }
        total = warp == 0 ? sum : total + sum;
      }
      auto const expected = total * static_cast<float>(scale);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(result.y[static_cast<std::size_t>(i * c.n + j)]),
                std::bit_cast<std::uint32_t>(expected))
          << c.text() << " row " << i << " column " << j;
    }
  }
}

TEST_P(gemv_weight_kind, takes_outliers_up_to_6e4) {
  for (std::int64_t m : {1, 3}) {
    gemm_case c = simt_case(GetParam());
    c.m = m;
    c.n = 96;
    c.k = 400;
    c.sm_count = 3;
    c.outlier = 5e4F;
    c.seed = 31 + static_cast<std::uint64_t>(m);
    gemm_result const result = run_any(c);
    EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  }
}

TEST(gemv_program, reads_x_of_any_alignment_and_stride) {
  std::uint64_t seed = 500;
  for (weight_kind kind : kinds_without_scale_blocks) {
    for (std::int64_t gap : {0, 1, 8, 1000}) {
      for (bool misaligned : {false, true}) {
        gemm_case c = simt_case(kind);
        c.m = 1 + static_cast<std::int64_t>(seed % 3);
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

TEST(gemv_program, gives_the_same_bits_for_any_alignment_of_x) {
  gemm_case c = simt_case();
  c.m = 3;
  c.n = 130;
  c.k = 592;
  c.sm_count = 2;
  c.seed = 13;
  random_source random(14);
  std::vector<std::uint16_t> x;
  for (std::int64_t i = 0; i < c.m * c.k; ++i) x.push_back(encode_f16(random.normal()));
  gemm_result const by_words = run_any(c, &x);
  c.x_misaligned = true;
  gemm_result const by_elements = run_any(c, &x);
  EXPECT_EQ(by_words.y, by_elements.y);
  EXPECT_TRUE(by_words.problems.empty() && by_elements.problems.empty());
}

TEST(gemv_program, every_interleaving_of_ctas_gives_the_same_bits) {
  gemm_case c = simt_case();
  c.n = 200;
  c.k = 1600;
  c.m = 3;
  c.sm_count = 4;
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

TEST(gemv_program, adds_bias_and_residual_and_multiplies_gate_by_up) {
  std::uint64_t seed = 60;
  for (weight_kind kind : kinds_without_scale_blocks) {
    for (bool gate : {false, true}) {
      gemm_case c = simt_case(kind);
      c.m = 1 + static_cast<std::int64_t>(seed % 3);
      c.n = 128;
      c.k = 96;
      c.sm_count = 1 + static_cast<int>(seed % 2);
      c.bias = true;
      c.residual = true;
      c.problem.act = gate ? activation::silu_gate : activation::none;
      c.seed = seed++;
      gemm_result const result = run_any(c);
      EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
    }
  }
}

TEST(gemv_program, a_nan_in_x_stays_in_its_row) {
  gemm_case c = simt_case();
  c.m = 3;
  c.n = 64;
  c.k = 128;
  c.problem.candidates = 1;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * c.k), 0x3c00);
  x[static_cast<std::size_t>(c.k + 5)] = 0x7e00;
  gemm_result const result = run_any(c, &x);
  EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(result.values[i]), i == 1) << i;
}

TEST(gemv_program, argmax_is_that_of_the_stored_row_with_the_lowest_index_at_ties) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    gemm_case c = simt_case(kinds_without_scale_blocks[seed]);
    c.m = 1 + static_cast<std::int64_t>(seed % 3);
    c.n = 200;
    c.k = 320;
    c.sm_count = 3;
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
  gemm_case zero = simt_case();
  zero.m = 2;
  zero.n = 130;
  zero.problem.candidates = 1;
  std::vector<std::uint16_t> const x(static_cast<std::size_t>(2 * zero.k), 0);
  EXPECT_EQ(run_any(zero, &x).ids, (std::vector<std::int32_t>{0, 0}));
}

// Exact values.

TEST(gemv_program_patterns, every_e2m1_code_with_every_block_scale_is_exact) {
  expect_exact_weights<nvfp4>(every_block_scale(), simt_problem());
}

TEST(gemv_program_patterns, every_finite_e4m3_code_is_exact) {
  expect_exact_weights<fp8>(every_e4m3_code(), simt_problem());
}

TEST(gemv_program_patterns, every_f16_and_every_bf16_that_the_kernel_holds_is_exact) {
  for (dtype type : {dtype::f16, dtype::bf16}) {
    expect_exact_weights<dense16>(every_16_bit_weight(type), simt_problem());
  }
}

TEST(gemv_program_patterns, every_finite_activation_is_exact) {
  constexpr std::int64_t size = 2048;
  packed_gpu_weight weight(identity_weight(size), 4);
  std::vector<std::uint16_t> x;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    x.push_back((code & 0x7c00u) == 0x7c00u ? std::uint16_t{0} : static_cast<std::uint16_t>(code));
  }
  for (std::size_t first = 0; first < x.size(); first += 2 * size) {
    std::vector<float> const y = multiply<fp8>(weight, x.data() + first, 2, {}, simt_problem());
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], decode_f16(x[first + i]));
  }
}

// Mutants: each changes one thing that the program relies on; the checks above must see it.

/// Shared: 3 x 24 steps for 4 CTAs, which share tile groups, and k ends inside a record. Else 8 x 3
/// steps for 2 CTAs of 4 whole tile groups.
std::vector<std::string> problems_of(mutation const& how, bool shared = true) {
  gemm_case c = simt_case();
  c.m = 3;
  c.n = shared ? 192 : 512;
  c.k = shared ? 1488 : 192;
  c.sm_count = 2;
  c.seed = 5;
  c.options.resident = 4;
  return problems_of_mutant(c, how);
}

TEST(gemv_program_mutants, the_program_itself_has_no_problem) {
  EXPECT_EQ(joined(problems_of({"none"}, true)), "");
  EXPECT_EQ(joined(problems_of({"none"}, false)), "");
}

TEST(gemv_program_mutants, a_dropped_barrier_is_found_wherever_it_is) {
  // A part has two barriers where the warps are added up, then a ticket with two where CTAs share
  // the tile group, else one.
  for (int which = 0; which < 4; ++which) {
    mutation how{"barrier"};
    how.drop_sync_block = which;
    EXPECT_FALSE(problems_of(how, true).empty()) << "barrier " << which << " can go unnoticed";
    if (which > 2) continue;
    EXPECT_FALSE(problems_of(how, false).empty()) << "barrier " << which << " can go unnoticed";
  }
  mutation warp{"warp barrier"};
  warp.drop_sync_warp = true;
  EXPECT_FALSE(problems_of(warp).empty());
}

TEST(gemv_program_mutants, each_other_mutant_is_found) {
  mutation fence{"no fence"};
  fence.drop_fence = true;
  mutation ticket{"lost ticket"};
  ticket.lose_ticket = true;
  mutation widened{"the other half of a pair"};
  widened.swap_widened = true;
  mutation scales{"scale of another group"};
  scales.rotate_scales = true;
  mutation halves{"scale of the other half"};
  halves.swap_scale_halves = true;
  mutation longer{"k tail one too long"};
  longer.k_change = 1;
  mutation shorter{"k tail one too short"};
  shorter.k_change = -1;
  for (mutation const& how : {fence, ticket, widened, scales, halves, longer, shorter}) {
    EXPECT_FALSE(problems_of(how).empty()) << how.name << " goes unnoticed";
  }
}

}  // namespace
}  // namespace qpn::test
