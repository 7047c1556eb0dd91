// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm70/gemm_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "support/emulated_gemm.hpp"

namespace qpn::test {
namespace {

/// One problem on the emulator, with everything that a call may want.
struct gemm_case {
  weight_kind kind{format_id::nvfp4, scale_mode::tensor, dtype::f16};
  std::int64_t m = 1;
  std::int64_t n = 64;
  std::int64_t k = 64;
  int sm_count = 1;
  gemm_problem problem{};
  bool bias = false;
  bool residual = false;
  std::int64_t x_gap = 0;     ///< ldx - k
  bool x_misaligned = false;  ///< x starts 2 bytes behind a multiple of 16
  float outlier = 0.0F;       ///< if not 0, some activations are this large
  emulated_call_options options{};
  std::uint64_t seed = 1;

  [[nodiscard]] std::string text() const {
    return to_string(kind) + " m " + std::to_string(m) + " n " + std::to_string(n) + " k " +
           std::to_string(k) + " sms " + std::to_string(sm_count) + " seed " + std::to_string(seed);
  }
};

struct gemm_result {
  std::vector<std::string> problems;  ///< empty: all as it should be
  std::vector<float> y;               ///< [m, columns], decoded
  std::vector<std::int32_t> ids;
  std::vector<float> values;
};

/// Runs a case whose x is given, or random, and holds the result to fp64 sums.
template <class Format>
gemm_result run(gemm_case const& c, std::vector<std::uint16_t> const* given_x = nullptr) {
  random_source random(c.seed);
  packed_gpu_weight weight(published_weight(c.kind, {c.n}, c.k, random), c.sm_count);
  gemm_result result;
  auto const complain = [&](std::string const& what) {
    result.problems.push_back(c.text() + ": " + what);
  };

  std::int64_t const ldx = c.k + c.x_gap;
  aligned_bytes x_bytes(static_cast<std::size_t>(c.m * ldx) * 2 + 16);
  auto* const x = reinterpret_cast<std::uint16_t*>(x_bytes.data()) + (c.x_misaligned ? 1 : 0);
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < ldx; ++j) {
      float value = random.normal();
      if (c.outlier != 0.0F && random.integer(0, 40) == 0) value *= c.outlier;
      value = std::clamp(value, -60000.0F, 60000.0F);
      // Behind k the rows hold NaN: reading it would show.
      x[i * ldx + j] = j >= c.k ? std::uint16_t{0x7e00} : encode_f16(value);
      if (given_x != nullptr && j < c.k)
        x[i * ldx + j] = (*given_x)[static_cast<std::size_t>(i * c.k + j)];
    }
  }

  device_info device = volta_v100();
  device.sm_count = c.sm_count;
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(weight.layout, c.problem, device, plan);
  if (!planned.ok()) {
    complain(planned.what);
    return result;
  }
  std::int64_t const columns = columns_of_y(plan);
  dtype const y_type = c.problem.y_type;
  std::int64_t const ldy = columns + 3;
  aligned_bytes y(static_cast<std::size_t>(c.m * ldy * bits(y_type) / 8));
  std::vector<float> bias = random.normals(c.n);
  std::vector<float> residual = random.normals(c.m * columns);
  aligned_bytes workspace(plan.workspace_bytes);
  std::fill_n(workspace.data(), plan.workspace_zero_bytes, std::byte{0});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(c.m), -1);
  std::vector<float> values(static_cast<std::size_t>(c.m));

  gemm_args args;
  args.m = c.m;
  args.x = x;
  args.ldx = ldx;
  args.weight = weight.view();
  args.y = y.data();
  args.ldy = ldy;
  if (c.bias) args.bias = bias.data();
  if (c.residual) {
    args.residual = residual.data();
    args.residual_type = dtype::f32;
    args.ld_residual = columns;
  }
  if (c.problem.argmax) {
    args.argmax_ids = ids.data();
    args.argmax_values = values.data();
  }
  emulated_call const call =
      emulate_gemm(plan, args, {workspace.data(), workspace.size()}, c.options);
  result.ids = ids;
  result.values = values;
  if (!call.report.ok()) complain(call.report.text());
  if (!call.weights_read_once) complain("a byte of the records is not read exactly once");
  if (!call.outputs_written_once) complain("an element of y is not written exactly once");
  if (!call.workspace_is_zero) complain("tickets or keys are left behind");

  auto const read_y = [&](std::int64_t i, std::int64_t j) {
    std::int64_t const at = i * ldy + j;
    if (y_type == dtype::f32) return reinterpret_cast<float const*>(y.data())[at];
    std::uint16_t const code = reinterpret_cast<std::uint16_t const*>(y.data())[at];
    return detail::decode_16(code, y_type);
  };
  double const rounding = y_type == dtype::f32   ? std::ldexp(1.0, -23)
                          : y_type == dtype::f16 ? std::ldexp(1.0, -11)
                                                 : std::ldexp(1.0, -8);
  for (std::int64_t i = 0; i < c.m; ++i) {
    std::vector<double> sums(static_cast<std::size_t>(c.n));
    std::vector<double> bounds(static_cast<std::size_t>(c.n));
    for (std::int64_t j = 0; j < c.n; ++j) {
      double magnitude = 0.0;
      double sum = 0.0;
      for (std::int64_t k = 0; k < c.k; ++k) {
        double const product = static_cast<double>(decode_f16(x[i * ldx + k])) *
                               weight.values[static_cast<std::size_t>(j * c.k + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      double const b = c.bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
      sums[static_cast<std::size_t>(j)] = sum + b;
      bounds[static_cast<std::size_t>(j)] =
          2.0 * static_cast<double>(c.k) * std::ldexp(1.0, -24) * magnitude +
          std::ldexp(1.0, -22) * (std::abs(sum) + std::abs(b));
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      double expected = sums[static_cast<std::size_t>(j)];
      double bound = bounds[static_cast<std::size_t>(j)];
      if (c.problem.act == activation::silu_gate) {
        auto const at = static_cast<std::size_t>(j / 32 * 64 + j % 32);
        double const gate = sums[at];
        double const up = sums[at + 32];
        double const s = gate / (1.0 + std::exp(-gate));
        expected = s * up;
        bound = 1.2 * bounds[at] * std::abs(up) + bounds[at + 32] * (std::abs(s) + bounds[at]) +
                std::ldexp(1.0, -20) * std::abs(expected);
      }
      if (c.residual)
        expected += static_cast<double>(residual[static_cast<std::size_t>(i * columns + j)]);
      double const got = static_cast<double>(read_y(i, j));
      result.y.push_back(static_cast<float>(got));
      double const largest = y_type == dtype::f16 ? 65504.0 : 3.4e38;
      double const clipped = std::clamp(expected, -largest, largest);
      double const allowed = bound + rounding * std::abs(clipped) + std::ldexp(1.0, -25);
      bool const both_nan = std::isnan(got) && std::isnan(expected);
      if (!both_nan && !(std::abs(got - clipped) <= allowed)) {
        complain("row " + std::to_string(i) + " column " + std::to_string(j) + " is " +
                 std::to_string(got) + ", expected " + std::to_string(clipped) + " within " +
                 std::to_string(allowed));
        if (result.problems.size() > 5) return result;
      }
    }
  }
  return result;
}

gemm_result run_any(gemm_case const& c, std::vector<std::uint16_t> const* x = nullptr) {
  switch (c.kind.format) {
    case format_id::nvfp4: return run<nvfp4>(c, x);
    case format_id::fp8: return run<fp8>(c, x);
    case format_id::dense16: break;
  }
  return run<dense16>(c, x);
}

std::string joined(std::vector<std::string> const& lines) {
  std::string all;
  for (std::string const& line : lines) all += line + "\n";
  return all;
}

class every_weight_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(gemm_program, every_weight_kind, testing::ValuesIn(all_weight_kinds),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(every_weight_kind, matches_fp64_on_ragged_shapes_split_over_ctas) {
  std::uint64_t seed = 100;
  for (std::int64_t n : {1, 24, 64, 65, 130, 200}) {
    for (std::int64_t k : {16, 80, 272, 1040}) {
      for (std::int64_t m : {1, 7, 8, 9, 16}) {
        gemm_case c;
        c.kind = GetParam();
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

TEST_P(every_weight_kind, keeps_the_bits_of_a_row_in_any_company) {
  gemm_case c;
  c.kind = GetParam();
  c.n = 130;
  c.k = 592;
  c.sm_count = 2;
  c.problem.y_type = dtype::f32;
  c.seed = 7;
  random_source random(8);
  std::vector<std::uint16_t> row;
  for (std::int64_t k = 0; k < c.k; ++k) row.push_back(encode_f16(random.normal()));
  c.m = 1;
  gemm_result const alone = run_any(c, &row);
  ASSERT_TRUE(alone.problems.empty()) << joined(alone.problems);
  for (std::int64_t m = 2; m <= 16; ++m) {
    std::int64_t const place = m * 5 % m == 0 ? m - 1 : m * 5 % m;
    std::vector<std::uint16_t> x;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t k = 0; k < c.k; ++k) {
        x.push_back(i == place ? row[static_cast<std::size_t>(k)]
                               : encode_f16(1000.0F * random.normal()));
      }
    }
    c.m = m;
    c.options.seed = static_cast<std::uint64_t>(m);
    c.options.resident = 1 + static_cast<int>(m % 3);
    gemm_result const among = run_any(c, &x);
    ASSERT_TRUE(among.problems.empty()) << joined(among.problems);
    EXPECT_EQ(std::memcmp(alone.y.data(), among.y.data() + place * c.n,
                          static_cast<std::size_t>(c.n) * sizeof(float)),
              0)
        << c.text() << " place " << place;
  }
}

TEST_P(every_weight_kind, takes_outliers_up_to_6e4) {
  for (std::int64_t m : {3, 12}) {
    gemm_case c;
    c.kind = GetParam();
    c.m = m;
    c.n = 96;
    c.k = 400;
    c.sm_count = 3;
    c.outlier = 5e4F;
    c.problem.y_type = dtype::f32;
    c.seed = 31 + static_cast<std::uint64_t>(m);
    gemm_result const result = run_any(c);
    EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  }
}

TEST(gemm_program, reads_x_of_any_alignment_and_stride) {
  std::uint64_t seed = 500;
  for (weight_kind kind : all_weight_kinds) {
    for (std::int64_t gap : {0, 1, 8, 1000}) {
      for (bool misaligned : {false, true}) {
        gemm_case c;
        c.kind = kind;
        c.m = 1 + static_cast<std::int64_t>(seed % 16);
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

TEST(gemm_program, every_interleaving_of_ctas_gives_the_same_bits) {
  gemm_case c;
  c.n = 200;
  c.k = 1600;
  c.m = 11;
  c.sm_count = 4;
  c.problem.y_type = dtype::f32;
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

TEST(gemm_program, adds_bias_and_residual_and_multiplies_gate_by_up) {
  std::uint64_t seed = 60;
  for (weight_kind kind : all_weight_kinds) {
    for (bool gate : {false, true}) {
      gemm_case c;
      c.kind = kind;
      c.m = 5 + static_cast<std::int64_t>(seed % 9);
      c.n = 128;
      c.k = 96;
      c.sm_count = 1 + static_cast<int>(seed % 3);
      c.bias = true;
      c.residual = true;
      c.problem.y_type = dtype::f32;
      c.problem.act = gate ? activation::silu_gate : activation::none;
      c.seed = seed++;
      gemm_result const result = run_any(c);
      EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
    }
  }
}

TEST(gemm_program, argmax_is_that_of_the_stored_row_with_the_lowest_index_at_ties) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    gemm_case c;
    c.kind = all_weight_kinds[seed];
    c.m = 1 + static_cast<std::int64_t>(seed) * 3;
    c.n = 200;
    c.k = 320;
    c.sm_count = 3;
    c.problem.y_type = dtype::f32;
    c.problem.argmax = true;
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
  gemm_case zero;
  zero.m = 2;
  zero.n = 130;
  zero.problem.argmax = true;
  std::vector<std::uint16_t> const x(static_cast<std::size_t>(2 * zero.k), 0);
  EXPECT_EQ(run_any(zero, &x).ids, (std::vector<std::int32_t>{0, 0}));
}

TEST(gemm_program, saturates_or_overflows_as_asked) {
  for (overflow_policy policy : {overflow_policy::saturate, overflow_policy::infinite}) {
    EXPECT_EQ(detail::encode_16(1e6F, dtype::f16, policy),
              policy == overflow_policy::saturate ? 0x7bff : 0x7c00);
    EXPECT_EQ(detail::encode_16(-1e6F, dtype::f16, policy),
              policy == overflow_policy::saturate ? 0xfbff : 0xfc00);
    EXPECT_EQ(detail::encode_16(INFINITY, dtype::f16, policy), 0x7c00);
    EXPECT_EQ(detail::encode_16(3.4e38F, dtype::bf16, policy),
              policy == overflow_policy::saturate ? 0x7f7f : 0x7f80);
  }
}

TEST(gemm_program, a_nan_in_x_stays_in_its_row) {
  gemm_case c;
  c.m = 3;
  c.n = 64;
  c.k = 128;
  c.problem.argmax = true;
  c.problem.y_type = dtype::f32;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * c.k), 0x3c00);
  x[static_cast<std::size_t>(c.k + 5)] = 0x7e00;
  gemm_result const result = run_any(c, &x);
  EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  EXPECT_TRUE(std::isnan(result.values[1]));
  EXPECT_FALSE(std::isnan(result.values[0]));
  EXPECT_FALSE(std::isnan(result.values[2]));
}

// Exact values: with one weight or one activation in each sum nothing is rounded.

/// y f32 [m, n] of an emulated call without a problem.
template <class Format>
std::vector<float> multiply(packed_gpu_weight& weight, std::vector<std::uint16_t> const& x,
                            std::int64_t m, workspace_view shared = {}) {
  gemm_problem problem;
  problem.y_type = dtype::f32;
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(weight.layout, problem, volta_v100(), plan);
  EXPECT_TRUE(planned.ok()) << planned.what;
  aligned_bytes workspace(plan.workspace_bytes, std::byte{0});
  std::vector<float> y(static_cast<std::size_t>(m * weight.layout.n));
  gemm_args args;
  args.m = m;
  args.x = x.data();
  args.ldx = weight.layout.k;
  args.weight = weight.view();
  args.y = y.data();
  args.ldy = weight.layout.n;
  workspace_view const own{workspace.data(), workspace.size()};
  emulated_call const call = emulate_gemm(plan, args, shared.data == nullptr ? own : shared);
  EXPECT_TRUE(call.report.ok()) << call.report.text();
  EXPECT_TRUE(call.workspace_is_zero);
  return y;
}

std::vector<std::uint16_t> identity(std::int64_t rows) {
  std::vector<std::uint16_t> x(static_cast<std::size_t>(rows * rows), 0);
  for (std::int64_t i = 0; i < rows; ++i) x[static_cast<std::size_t>(i * (rows + 1))] = 0x3c00;
  return x;
}

/// Sixteen rows of x that pick one k each give the columns of the weight, bit for bit.
template <class Format>
void expect_exact_weights(published_weight published) {
  std::int64_t const n = published.layout().n;
  packed_gpu_weight weight(std::move(published), 2);
  std::vector<float> const y = multiply<Format>(weight, identity(16), 16);
  for (std::int64_t i = 0; i < 16; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      auto const exact = static_cast<float>(weight.values[static_cast<std::size_t>(j * 16 + i)]);
      ASSERT_EQ(y[static_cast<std::size_t>(i * n + j)], exact) << "row " << j << " k " << i;
    }
  }
}

TEST(gemm_program_patterns, every_e2m1_code_with_every_block_scale_is_exact) {
  random_source random(1);
  published_weight published({format_id::nvfp4, scale_mode::tensor, dtype::f16}, {254}, 16, random);
  published_part& part = published.parts()[0];
  part.global_scale = 1.0F;
  for (std::size_t row = 0; row < 254; ++row) {
    // 0x00..0x7e and 0x80..0xfe: all finite scales, negative ones too.
    part.block_scales[row] = static_cast<std::uint8_t>(row < 127 ? row : row + 1);
    for (std::size_t i = 0; i < 8; ++i) {
      part.codes[row * 8 + i] = static_cast<std::uint8_t>(2 * i | (2 * i + 1) << 4);
    }
  }
  expect_exact_weights<nvfp4>(std::move(published));
}

TEST(gemm_program_patterns, every_finite_e4m3_code_is_exact) {
  random_source random(1);
  published_weight published({format_id::fp8, scale_mode::tensor, dtype::f16}, {16}, 16, random);
  published_part& part = published.parts()[0];
  part.global_scale = 1.0F;
  for (std::size_t code = 0; code < 256; ++code) {
    bool const nan = is_nan_e4m3(static_cast<std::uint8_t>(code));
    part.codes[code] = static_cast<std::uint8_t>(nan ? 0 : code);
  }
  expect_exact_weights<fp8>(std::move(published));
}

TEST(gemm_program_patterns, every_f16_and_every_bf16_that_the_kernel_holds_is_exact) {
  for (dtype type : {dtype::f16, dtype::bf16}) {
    random_source random(1);
    published_weight published({format_id::dense16, scale_mode::none, type}, {4096}, 16, random);
    published_part& part = published.parts()[0];
    for (std::uint32_t code = 0; code < 65536; ++code) {
      float const value =
          std::abs(type == dtype::f16 ? decode_f16(static_cast<std::uint16_t>(code))
                                      : decode_bf16(static_cast<std::uint16_t>(code)));
      bool const held = type == dtype::f16
                            ? value <= 65504.0F
                            : value < 255.875F && (value == 0.0F || value >= 0x1p-25F);
      std::uint16_t const kept = held ? static_cast<std::uint16_t>(code) : std::uint16_t{0};
      std::memcpy(part.codes.data() + 2 * code, &kept, 2);
    }
    expect_exact_weights<dense16>(std::move(published));
  }
}

TEST(gemm_program_patterns, every_finite_activation_is_exact) {
  constexpr std::int64_t size = 512;
  random_source random(1);
  published_weight published({format_id::fp8, scale_mode::tensor, dtype::f16}, {size}, size,
                             random);
  published_part& part = published.parts()[0];
  part.global_scale = 1.0F;
  std::fill(part.codes.begin(), part.codes.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < size; ++i) part.codes[i * (size + 1)] = encode_e4m3(1.0F);
  packed_gpu_weight weight(std::move(published), 2);
  for (std::uint32_t first = 0; first < 65536; first += 16 * size) {
    std::vector<std::uint16_t> x;
    for (std::uint32_t i = 0; i < 16 * size; ++i) {
      auto const code = static_cast<std::uint16_t>(first + i);
      x.push_back((code & 0x7c00u) == 0x7c00u ? std::uint16_t{0} : code);
    }
    std::vector<float> const y = multiply<fp8>(weight, x, 16);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], decode_f16(x[i])) << x[i];
  }
}

TEST(gemm_program, calls_of_several_plans_may_share_a_workspace) {
  random_source random(21);
  // The first has more tickets, the second more planes; both have tile groups that CTAs share.
  packed_gpu_weight wide(published_weight(all_weight_kinds[0], {700}, 576, random), 2);
  packed_gpu_weight deep(published_weight(all_weight_kinds[2], {130}, 2000, random), 4);
  workspace_needs needs;
  gemm_plan<nvfp4> wide_plan;
  gemm_plan<fp8> deep_plan;
  ASSERT_TRUE(make_gemm_plan(wide.layout, {}, volta_v100(), wide_plan).ok());
  ASSERT_TRUE(make_gemm_plan(deep.layout, {}, volta_v100(), deep_plan).ok());
  needs.add(wide_plan);
  needs.add(deep_plan);
  aligned_bytes bytes(needs.bytes());
  std::fill_n(bytes.data(), needs.zero_bytes, std::byte{0});
  workspace_view const shared{bytes.data(), needs.bytes(), needs.zero_bytes};
  std::vector<std::uint16_t> x;
  for (int i = 0; i < 16 * 2000; ++i) x.push_back(encode_f16(random.normal()));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(multiply<nvfp4>(wide, x, 16, shared), multiply<nvfp4>(wide, x, 16));
    EXPECT_EQ(multiply<fp8>(deep, x, 16, shared), multiply<fp8>(deep, x, 16));
  }
  workspace_view const small{bytes.data(), needs.bytes() - 1, needs.zero_bytes};
  EXPECT_EQ(detail::check_workspace(deep_plan, small).code, status_code::workspace_too_small);
}

// Mutants: each changes one thing that the program relies on; the checks above must see it.

struct mutation {
  char const* name;
  int drop_sync_block = -1;  ///< which call of the lane
  bool drop_sync_warp = false;
  bool drop_fence = false;
  bool lose_ticket = false;
  bool swap_lanes = false;
  bool rotate_scales = false;
  bool swap_scale_halves = false;
  std::int64_t k_change = 0;
};

class mutant_lane : public program_lane {
 public:
  mutant_lane(emulated_lane& lane, mutation const& how) : program_lane(lane), how_(how) {}
  [[nodiscard]] std::uint32_t load_stream(std::uint32_t const* p) override {
    std::uint32_t const scales = program_lane::load_stream(p);
    return how_.rotate_scales ? scales << 8 | scales >> 24 : scales;
  }
  void sync_warp() override {
    if (!how_.drop_sync_warp) program_lane::sync_warp();
  }
  void sync_block() override {
    if (blocks_++ != how_.drop_sync_block) program_lane::sync_block();
  }
  void fence_device() override {
    if (!how_.drop_fence) program_lane::fence_device();
  }
  std::uint32_t atomic_add(std::uint32_t* p, std::uint32_t value) override {
    std::uint32_t const old = program_lane::atomic_add(p, value);
    return how_.lose_ticket && old > 0 ? old - 1 : old;
  }
  void mma_m8n8k4(float (&d)[8], std::uint32_t const (&a)[2],
                  std::uint32_t const (&b)[2]) override {
    // Rows 0 and 4 of A change places: a lane map in which bit 4 of the lane counts for k.
    if (how_.swap_lanes) {
      std::uint32_t const other[2] = {lane().shuffle_xor(a[0], 16), lane().shuffle_xor(a[1], 16)};
      program_lane::mma_m8n8k4(d, other, b);
    } else {
      program_lane::mma_m8n8k4(d, a, b);
    }
  }
  [[nodiscard]] std::uint32_t broadcast_low(std::uint32_t a) override {
    return how_.swap_scale_halves ? program_lane::broadcast_high(a)
                                  : program_lane::broadcast_low(a);
  }

 private:
  mutation how_;
  int blocks_ = 0;
};

/// Shared: 3 x 24 steps for 4 CTAs, which share tile groups, and k ends inside a record. Else 8 x 3
/// steps for 2 CTAs of 4 whole tile groups.
std::vector<std::string> problems_of(mutation const& how, bool shared = true) {
  gemm_case c;
  c.m = 12;
  c.n = shared ? 192 : 512;
  c.k = shared ? 1488 : 192;
  c.sm_count = 2;
  c.seed = 5;
  c.options.resident = 4;
  std::deque<mutant_lane> lanes;
  c.options.make_lane = [&](emulated_lane& lane) -> program_lane& {
    return lanes.emplace_back(lane, how);
  };
  c.options.change_params = [&how](detail::sm70::gemm_params& p) { p.k += how.k_change; };
  std::vector<std::string> problems;
  for (std::uint64_t seed = 0; seed < 4 && problems.empty(); ++seed) {
    c.options.seed = seed;
    problems = run_any(c).problems;
  }
  return problems;
}

TEST(gemm_program_mutants, the_program_itself_has_no_problem) {
  EXPECT_EQ(joined(problems_of({"none"}, true)), "");
  EXPECT_EQ(joined(problems_of({"none"}, false)), "");
}

TEST(gemm_program_mutants, a_dropped_barrier_is_found_wherever_it_is) {
  // A part passes add_warps twice (two row tiles, two barriers each), then a ticket with two where
  // CTAs share the tile group, else one.
  for (int which = 0; which < 6; ++which) {
    mutation how{"barrier"};
    how.drop_sync_block = which;
    EXPECT_FALSE(problems_of(how, true).empty()) << "barrier " << which << " can go unnoticed";
    if (which > 4) continue;
    EXPECT_FALSE(problems_of(how, false).empty()) << "barrier " << which << " can go unnoticed";
  }
  mutation warp{"warp barrier"};
  warp.drop_sync_warp = true;
  EXPECT_FALSE(problems_of(warp).empty());
}

TEST(gemm_program_mutants, each_other_mutant_is_found) {
  mutation fence{"no fence"};
  fence.drop_fence = true;
  mutation ticket{"lost ticket"};
  ticket.lose_ticket = true;
  mutation lanes{"swapped lane map"};
  lanes.swap_lanes = true;
  mutation scales{"scale of another group"};
  scales.rotate_scales = true;
  mutation halves{"scale of the other half"};
  halves.swap_scale_halves = true;
  mutation longer{"k tail one too long"};
  longer.k_change = 1;
  mutation shorter{"k tail one too short"};
  shorter.k_change = -1;
  for (mutation const& how : {fence, ticket, lanes, scales, halves, longer, shorter}) {
    EXPECT_FALSE(problems_of(how).empty()) << how.name << " goes unnoticed";
  }
}

}  // namespace
}  // namespace qpn::test
