// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm70/gemm_wide_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "support/emulated_gemm.hpp"

namespace qpn::test {
namespace {

/// One problem for the kernel of many rows, on the emulator.
struct wide_case {
  weight_kind kind{format_id::nvfp4, scale_mode::tensor, dtype::f16};
  std::int64_t m = 97;
  std::int64_t n = 64;
  std::int64_t k = 64;
  int row_tiles = 4;
  gemm_problem problem{};
  bool bias = false;
  bool residual = false;  ///< in place: y is the residual
  std::int64_t x_gap = 0;
  bool x_misaligned = false;
  float outlier = 0.0F;  ///< if not 0, some activations are this large
  float size = 1.0F;     ///< of the others
  emulated_call_options options{};
  std::uint64_t seed = 1;

  [[nodiscard]] std::string text() const {
    return to_string(kind) + " m " + std::to_string(m) + " n " + std::to_string(n) + " k " +
           std::to_string(k) + " row tiles " + std::to_string(row_tiles) + " seed " +
           std::to_string(seed);
  }
};

struct wide_result {
  std::string problems;  ///< empty: all as it should be
  std::vector<float> y;  ///< [m, columns], decoded
};

/// The rows of f16 [m, k], each with the same number of elements between itself and the next one.
struct wide_x {
  wide_x(wide_case const& c, random_source& random, std::vector<std::uint16_t> const* given)
      : ldx(c.k + c.x_gap),
        bytes(static_cast<std::size_t>(c.m * ldx) * 2 + 16),
        data(reinterpret_cast<std::uint16_t*>(bytes.data()) + (c.x_misaligned ? 1 : 0)) {
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < ldx; ++j) {
        float value = c.size * random.normal();
        if (c.outlier != 0.0F && random.integer(0, 40) == 0) value *= c.outlier;
        // Behind k the rows hold NaN: reading it would show.
        std::uint16_t code = encode_f16(std::clamp(value, -60000.0F, 60000.0F));
        if (j >= c.k) code = 0x7e00;
        if (given != nullptr && j < c.k) code = (*given)[static_cast<std::size_t>(i * c.k + j)];
        data[i * ldx + j] = code;
      }
    }
  }

  std::int64_t ldx;
  aligned_bytes bytes;
  std::uint16_t* data;
};

/// What a byte of the records is loaded: once by each row block, but for the half records that lie
/// beyond k as a whole.
bool weights_are_read_once_a_row_block(wide_case const& c, packed_layout const& layout,
                                       byte_counts const& counts) {
  std::int64_t const row_blocks = (c.m - 1) / (8 * c.row_tiles) + 1;
  bool const half_unread = c.kind.format == format_id::nvfp4 && (c.k - 1) % 64 < 32;
  std::int64_t const unread = half_unread ? layout.padded_n * (16 + 2) : 0;
  std::int64_t unseen = 0;
  for (auto const count : counts) {
    if (count == 0) ++unseen;
    if (count != 0 && static_cast<std::int64_t>(count) != row_blocks) return false;
  }
  return unseen == unread;
}

/// Runs a case whose x is given, or random, and holds the result to fp64 sums.
template <class Format>
wide_result run(wide_case c, std::vector<std::uint16_t> const* given_x = nullptr) {
  random_source random(c.seed);
  packed_gpu_weight weight(published_weight(c.kind, {c.n}, c.k, random), 3);
  wide_x const x(c, random, given_x);
  wide_result result;
  int complaints = 0;
  auto const complain = [&](std::string const& what) {
    ++complaints;
    result.problems += c.text() + ": " + what + "\n";
  };

  c.problem.max_m = std::max(c.m, gemm_max_m + 1);
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(weight.layout, c.problem, volta_v100(), plan);
  if (!planned.ok()) {
    complain(planned.what);
    return result;
  }
  std::int64_t const columns = columns_of_y(plan);
  dtype const y_type = c.problem.y_type;
  std::int64_t const ldy = columns + 3;
  aligned_bytes y(static_cast<std::size_t>(c.m * ldy * bits(y_type) / 8));
  std::vector<float> const bias = random.normals(c.n);
  std::vector<float> residual = random.normals(c.m * columns);
  auto const at_y = [&](std::int64_t i) { return i / columns * ldy + i % columns; };
  for (std::int64_t i = 0; i < c.m * columns; ++i) {
    float& value = residual[static_cast<std::size_t>(i)];
    if (y_type == dtype::f32) {
      reinterpret_cast<float*>(y.data())[at_y(i)] = value;
    } else {
      std::uint16_t const code = detail::encode_16(value, y_type, overflow_policy::saturate);
      reinterpret_cast<std::uint16_t*>(y.data())[at_y(i)] = code;
      value = detail::decode_16(code, y_type);
    }
  }
  aligned_bytes workspace(plan.workspace_bytes, std::byte{0});
  gemm_args args;
  args.m = c.m;
  args.x = x.data;
  args.ldx = x.ldx;
  args.weight = weight.view();
  args.y = y.data();
  args.ldy = ldy;
  if (c.bias) args.bias = bias.data();
  if (c.residual) {
    args.residual = y.data();
    args.residual_type = y_type;
    args.ld_residual = ldy;
  }
  c.options.wide_row_tiles = c.row_tiles;
  emulated_call const call =
      emulate_gemm(plan, args, {workspace.data(), workspace.size()}, c.options);
  if (!call.report.ok()) complain(call.report.text());
  if (!weights_are_read_once_a_row_block(c, weight.layout, call.report.load_counts("records"))) {
    complain("a byte of the records is not read once by each row block");
  }
  if (!call.outputs_written_once) complain("an element of y is not written exactly once");

  auto const read_y = [&](std::int64_t i) {
    if (y_type == dtype::f32) return reinterpret_cast<float const*>(y.data())[at_y(i)];
    return detail::decode_16(reinterpret_cast<std::uint16_t const*>(y.data())[at_y(i)], y_type);
  };
  double const rounding = y_type == dtype::f32   ? std::ldexp(1.0, -23)
                          : y_type == dtype::f16 ? std::ldexp(1.0, -11)
                                                 : std::ldexp(1.0, -8);
  for (std::int64_t i = 0; i < c.m; ++i) {
    std::vector<double> row;
    for (std::int64_t k = 0; k < c.k; ++k) {
      row.push_back(static_cast<double>(decode_f16(x.data[i * x.ldx + k])));
    }
    std::vector<double> sums;
    std::vector<double> bounds;
    for (std::int64_t j = 0; j < c.n; ++j) {
      double magnitude = 0.0;
      double sum = 0.0;
      double const* const w = weight.values.data() + j * c.k;
      for (std::size_t k = 0; k < row.size(); ++k) {
        sum += row[k] * w[k];
        magnitude += std::abs(row[k] * w[k]);
      }
      double const b = c.bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
      sums.push_back(sum + b);
      bounds.push_back(2.0 * static_cast<double>(c.k) * std::ldexp(1.0, -24) * magnitude +
                       std::ldexp(1.0, -22) * (std::abs(sum) + std::abs(b)));
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
      std::int64_t const at = i * columns + j;
      if (c.residual) expected += static_cast<double>(residual[static_cast<std::size_t>(at)]);
      double const got = static_cast<double>(read_y(at));
      result.y.push_back(static_cast<float>(got));
      double const largest = y_type == dtype::f16 ? 65504.0 : 3.4e38;
      double const clipped = std::clamp(expected, -largest, largest);
      double const allowed = bound + rounding * std::abs(clipped) + std::ldexp(1.0, -25);
      bool const both_nan = std::isnan(got) && std::isnan(expected);
      if (!both_nan && !(std::abs(got - clipped) <= allowed) && complaints < 5) {
        complain("row " + std::to_string(i) + " column " + std::to_string(j) + " is " +
                 std::to_string(got) + ", expected " + std::to_string(clipped) + " within " +
                 std::to_string(allowed));
      }
    }
  }
  return result;
}

wide_result run_any(wide_case const& c, std::vector<std::uint16_t> const* x = nullptr) {
  switch (c.kind.format) {
    case format_id::nvfp4: return run<nvfp4>(c, x);
    case format_id::fp8: return run<fp8>(c, x);
    case format_id::dense16: break;
  }
  return run<dense16>(c, x);
}

class every_weight_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(gemm_wide_program, every_weight_kind,
                         testing::ValuesIn(kinds_without_scale_blocks),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(every_weight_kind, matches_fp64_on_ragged_shapes) {
  std::uint64_t seed = 100;
  bool const groups = GetParam().format == format_id::nvfp4;
  for (std::int64_t m : {1, 7, 97, 128, 129, 200}) {
    for (std::int64_t n : {24, 130, 300}) {
      wide_case c;
      c.kind = GetParam();
      c.m = m;
      c.n = n;
      // Steps of 32 k: less than one, whole ones, and with every kind of rest.
      std::int64_t const lengths[] = {16, 64, 80, 208, 96};
      c.k = lengths[seed % 5] + (groups ? 0 : static_cast<std::int64_t>(seed % 3));
      c.row_tiles = seed % 2 == 0 ? 4 : 8;
      c.problem.y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
      c.seed = seed++;
      ASSERT_EQ(run_any(c).problems, "");
    }
  }
}

TEST_P(every_weight_kind, keeps_the_bits_of_a_row_whatever_m_place_and_row_tiles) {
  wide_case c;
  c.kind = GetParam();
  c.n = 130;
  c.k = 144;
  c.problem.y_type = dtype::f32;
  c.seed = 7;
  random_source random(8);
  std::vector<std::uint16_t> row;
  for (std::int64_t k = 0; k < c.k; ++k) row.push_back(encode_f16(random.normal()));
  c.m = 1;
  wide_result const alone = run_any(c, &row);
  ASSERT_EQ(alone.problems, "");
  for (std::int64_t m : {2, 31, 97, 128, 129}) {
    for (int row_tiles : {4, 8}) {
      std::int64_t const places[] = {0, m / 2, m - 1};
      std::vector<std::uint16_t> x;
      for (std::int64_t i = 0; i < m; ++i) {
        bool const same = std::find(std::begin(places), std::end(places), i) != std::end(places);
        for (std::int64_t k = 0; k < c.k; ++k) {
          x.push_back(same ? row[static_cast<std::size_t>(k)]
                           : encode_f16(1000.0F * random.normal()));
        }
      }
      c.m = m;
      c.row_tiles = row_tiles;
      c.options.seed = static_cast<std::uint64_t>(m);
      c.options.resident = 1 + static_cast<int>(m % 3);
      wide_result const among = run_any(c, &x);
      ASSERT_EQ(among.problems, "");
      for (std::int64_t place : places) {
        EXPECT_EQ(std::memcmp(alone.y.data(), among.y.data() + place * c.n,
                              static_cast<std::size_t>(c.n) * sizeof(float)),
                  0)
            << c.text() << " place " << place;
      }
    }
  }
}

TEST_P(every_weight_kind, keeps_the_bits_whatever_the_alignment_of_x) {
  wide_case c;
  c.kind = GetParam();
  c.m = 40;
  c.n = 70;
  c.k = 144;
  c.problem.y_type = dtype::f32;
  random_source random(c.seed + 1);
  std::vector<std::uint16_t> x;
  for (std::int64_t i = 0; i < c.m * c.k; ++i) x.push_back(encode_f16(random.normal()));
  wide_result const by_words = run_any(c, &x);
  ASSERT_EQ(by_words.problems, "");
  for (std::int64_t gap : {0, 1, 8, 1000}) {
    for (bool misaligned : {false, true}) {
      c.x_gap = gap;
      c.x_misaligned = misaligned;
      wide_result const other = run_any(c, &x);
      ASSERT_EQ(other.problems, "") << "gap " << gap;
      EXPECT_EQ(other.y, by_words.y) << c.text() << " gap " << gap;
    }
  }
}

TEST_P(every_weight_kind, gives_the_columns_of_the_weight_for_an_identity) {
  // One product in each sum: nothing is rounded but the product with the fp32 scale.
  wide_case c;
  c.kind = GetParam();
  c.m = 112;
  c.n = 70;
  c.k = 112;
  c.problem.y_type = dtype::f32;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * c.k), 0);
  for (std::int64_t i = 0; i < c.m; ++i) x[static_cast<std::size_t>(i * (c.k + 1))] = 0x3c00;
  for (int row_tiles : {4, 8}) {
    c.row_tiles = row_tiles;
    wide_result const result = run_any(c, &x);
    ASSERT_EQ(result.problems, "");
    random_source random(c.seed);
    packed_gpu_weight const weight(published_weight(c.kind, {c.n}, c.k, random), 3);
    for (std::int64_t i = 0; i < c.m; ++i) {
      for (std::int64_t j = 0; j < c.n; ++j) {
        double const exact = weight.values[static_cast<std::size_t>(j * c.k + i)];
        ASSERT_EQ(result.y[static_cast<std::size_t>(i * c.n + j)], static_cast<float>(exact))
            << c.text() << " row " << j << " k " << i;
      }
    }
  }
}

TEST_P(every_weight_kind, adds_bias_and_residual_and_multiplies_gate_by_up) {
  std::uint64_t seed = 60;
  for (bool gate : {false, true}) {
    for (dtype y_type : {dtype::f16, dtype::f32}) {
      wide_case c;
      c.kind = GetParam();
      c.m = 99;
      c.n = 192;
      c.k = 96;
      c.row_tiles = seed % 2 == 0 ? 4 : 8;
      c.bias = true;
      c.residual = true;
      c.size = 0x1p-7F;  // so that silu is not only 0 and x
      c.problem.y_type = y_type;
      c.problem.act = gate ? activation::silu_gate : activation::none;
      c.seed = seed++;
      EXPECT_EQ(run_any(c).problems, "");
    }
  }
}

TEST_P(every_weight_kind, takes_outliers_up_to_6e4) {
  wide_case c;
  c.kind = GetParam();
  c.m = 33;
  c.n = 96;
  c.k = 400;
  c.outlier = 5e4F;
  c.problem.y_type = dtype::f32;
  c.seed = 31;
  EXPECT_EQ(run_any(c).problems, "");
}

TEST(gemm_wide_program, a_nan_in_x_stays_in_its_row) {
  wide_case c;
  c.m = 70;
  c.n = 64;
  c.k = 128;
  c.problem.y_type = dtype::f32;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * c.k), 0x3c00);
  x[static_cast<std::size_t>(9 * c.k + 5)] = 0x7e00;
  wide_result const result = run_any(c, &x);
  EXPECT_EQ(result.problems, "");
  for (std::int64_t i = 0; i < c.m; ++i) {
    EXPECT_EQ(std::isnan(result.y[static_cast<std::size_t>(i * c.n)]), i == 9) << "row " << i;
  }
}

// Mutants: each changes one thing that the program relies on; the checks above must see it.

struct mutation {
  char const* name;
  int drop_sync_block = -1;  ///< which call of the lane
  bool drop_sync_warp = false;
  bool swap_lanes = false;
  bool swap_scales = false;  ///< of the two groups of a step
  std::int64_t k_change = 0;
  std::int64_t m_change = 0;
};

class mutant_lane : public program_lane {
 public:
  mutant_lane(emulated_lane& lane, mutation const& how) : program_lane(lane), how_(how) {}
  [[nodiscard]] std::uint16_t load(std::uint16_t const* p) override {
    std::uint16_t const word = program_lane::load(p);
    return how_.swap_scales ? static_cast<std::uint16_t>(word << 8 | word >> 8) : word;
  }
  void sync_warp() override {
    if (!how_.drop_sync_warp) program_lane::sync_warp();
  }
  void sync_block() override {
    if (blocks_++ != how_.drop_sync_block) program_lane::sync_block();
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

 private:
  mutation how_;
  int blocks_ = 0;
};

/// Three steps by words, so that the last of them and the rest use the same buffer, and a rest.
std::string problems_of(mutation const& how, std::int64_t k = 112, weight_kind kind = {}) {
  wide_case c;
  if (kind.format != format_id{}) c.kind = kind;
  c.m = 37;
  c.n = 130;
  c.k = k;
  c.seed = 5;
  c.options.resident = 2;
  std::deque<mutant_lane> lanes;
  c.options.make_lane = [&](emulated_lane& lane) -> program_lane& {
    return lanes.emplace_back(lane, how);
  };
  c.options.change_wide_params = [&how](detail::sm70::gemm_wide_params& p) {
    p.k += how.k_change;
    p.m += how.m_change;
  };
  std::string problems;
  for (std::uint64_t seed = 0; seed < 4 && problems.empty(); ++seed) {
    c.options.seed = seed;
    problems = run_any(c).problems;
  }
  return problems;
}

TEST(gemm_wide_program_mutants, the_program_itself_has_no_problem) {
  EXPECT_EQ(problems_of({"none"}), "");
  EXPECT_EQ(problems_of({"none"}, 128), "");
}

TEST(gemm_wide_program_mutants, a_dropped_barrier_is_found_wherever_it_is) {
  // One after the first copy of x, one a step, and two for the rest.
  for (int which = 0; which < 6; ++which) {
    mutation how{"barrier"};
    how.drop_sync_block = which;
    EXPECT_NE(problems_of(how), "") << "barrier " << which << " can go unnoticed";
    if (which > 4) continue;
    EXPECT_NE(problems_of(how, 128), "") << "barrier " << which << " can go unnoticed";
  }
  mutation warp{"warp barrier"};
  warp.drop_sync_warp = true;
  EXPECT_NE(problems_of(warp), "");
}

TEST(gemm_wide_program_mutants, each_other_mutant_is_found) {
  mutation lanes{"swapped lane map"};
  lanes.swap_lanes = true;
  EXPECT_NE(problems_of(lanes), "");
  mutation scales{"scale of the other group"};
  scales.swap_scales = true;
  EXPECT_NE(problems_of(scales, 128), "") << "x is loaded by words there";
  for (weight_kind kind : kinds_without_scale_blocks) {
    for (std::int64_t change : {-1, 1}) {
      mutation tail{"k tail off by one"};
      tail.k_change = change;
      EXPECT_NE(problems_of(tail, 112, kind), "") << kind << " k " << change;
      mutation rows{"m off by one"};
      rows.m_change = change;
      EXPECT_NE(problems_of(rows, 112, kind), "") << kind << " m " << change;
    }
  }
}

}  // namespace
}  // namespace qpn::test
