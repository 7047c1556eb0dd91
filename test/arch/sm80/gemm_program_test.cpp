// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm80/gemm_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "support/gemm_case.hpp"

// The lane program of layout sm80_mma16, with the rings of sm_80 and of sm_90.

namespace qpn::test {
namespace {

constexpr device_info a100{80, 108, 2048, 164 * 1024, 163 * 1024, 40 * 1024 * 1024};

/// Both rings in turn.
device_info device_of(std::uint64_t seed) {
  return seed % 2 == 0 ? hopper_h200() : a100;
}

class mma16_weight_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(mma16_program, mma16_weight_kind, testing::ValuesIn(cpu_weight_kinds),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(mma16_weight_kind, matches_fp64_on_ragged_shapes_split_over_ctas) {
  std::uint64_t seed = 100;
  for (std::int64_t n : {1, 24, 64, 130, 200}) {
    for (std::int64_t k : {16, 80, 272, 1040}) {
      for (std::int64_t m : {1, 7, 9, 24, 64, 96}) {
        if (m > 9 && n % 64 != 2 && k != 272) continue;
        gemm_case c;
        c.kind = GetParam();
        c.m = m;
        c.n = n;
        c.k = k;
        c.device = device_of(seed);
        c.sm_count = static_cast<int>(1 + seed % 5);
        c.problem.y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
        c.seed = seed++;
        gemm_result const result = run_any(c);
        ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
      }
    }
  }
}

TEST_P(mma16_weight_kind, keeps_the_bits_of_a_row_for_every_m_and_place) {
  gemm_case c;
  c.kind = GetParam();
  c.n = 66;
  c.k = 208;
  c.sm_count = 2;
  c.problem.y_type = dtype::f32;
  c.seed = 7;
  random_source random(8);
  std::vector<std::uint16_t> row;
  for (std::int64_t k = 0; k < c.k; ++k) row.push_back(encode_f16(random.normal()));
  c.m = 1;
  gemm_result const alone = run_any(c, &row);
  ASSERT_TRUE(alone.problems.empty()) << joined(alone.problems);
  // Every m for one kind of each operand.
  bool const every = c.kind.scale != scale_mode::channel && c.kind.dense_type == dtype::f16;
  for (std::int64_t m = 1; m <= 96; m += every ? 1 : 5) {
    std::int64_t const place = m * 5 % m == 0 ? m - 1 : m * 5 % m;
    std::vector<std::uint16_t> x;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t k = 0; k < c.k; ++k) {
        x.push_back(i == place ? row[static_cast<std::size_t>(k)]
                               : encode_f16(1000.0F * random.normal()));
      }
    }
    c.m = m;
    c.device = device_of(static_cast<std::uint64_t>(m));
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

TEST_P(mma16_weight_kind, takes_outliers_up_to_6e4) {
  for (std::int64_t m : {3, 40}) {
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

TEST(mma16_program, reads_x_of_any_alignment_and_stride) {
  std::uint64_t seed = 500;
  for (weight_kind kind : cpu_weight_kinds) {
    for (std::int64_t gap : {0, 1, 8, 1000}) {
      for (bool misaligned : {false, true}) {
        gemm_case c;
        c.kind = kind;
        c.m = 1 + static_cast<std::int64_t>(seed % 5) * 9;
        c.device = device_of(seed);
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

TEST(mma16_program, every_interleaving_of_ctas_gives_the_same_bits) {
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

TEST(mma16_program, adds_bias_and_residual_and_multiplies_gate_by_up) {
  std::uint64_t seed = 60;
  for (weight_kind kind : cpu_weight_kinds) {
    for (bool gate : {false, true}) {
      gemm_case c;
      c.kind = kind;
      c.m = 5 + static_cast<std::int64_t>(seed % 9) * 3;
      c.device = device_of(seed / 2);
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

TEST(mma16_program, argmax_is_that_of_the_stored_row_with_the_lowest_index_at_ties) {
  for (std::uint64_t seed = 0; seed < 7; ++seed) {
    gemm_case c;
    c.device = device_of(seed);
    c.kind = cpu_weight_kinds[seed];
    c.m = 1 + static_cast<std::int64_t>(seed) * 15;
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

TEST(mma16_program, a_nan_in_x_stays_in_its_row) {
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
                            std::int64_t m) {
  gemm_problem problem;
  problem.y_type = dtype::f32;
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(weight.layout, problem, hopper_h200(), plan);
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
  emulated_call const call = emulate_gemm(plan, args, {workspace.data(), workspace.size()});
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
  packed_gpu_weight weight(std::move(published), packed_gpu_weight::with_sms(hopper_h200(), 2));
  std::vector<float> const y = multiply<Format>(weight, identity(16), 16);
  for (std::int64_t i = 0; i < 16; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      auto const exact = static_cast<float>(weight.values[static_cast<std::size_t>(j * 16 + i)]);
      ASSERT_EQ(y[static_cast<std::size_t>(i * n + j)], exact) << "row " << j << " k " << i;
    }
  }
}

TEST(mma16_program_patterns, every_e2m1_code_with_every_block_scale_is_exact) {
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

TEST(mma16_program_patterns, every_finite_e4m3_code_is_exact) {
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

TEST(mma16_program_patterns, every_f16_and_every_bf16_that_the_kernel_holds_is_exact) {
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

// Mutants: each changes one thing that the program relies on; the checks above must see it.

struct mutation {
  char const* name;
  int drop_sync_block = -1;  ///< which call of the lane
  bool drop_sync_warp = false;
  bool drop_fence = false;
  bool lose_ticket = false;
  bool swap_lanes = false;
  bool swap_rows = false;
  bool swap_scale_halves = false;
  bool wait_for_no_bytes = false;
  bool fill_without_waiting = false;
  std::int64_t k_change = 0;
};

class mutant_lane : public program_lane {
 public:
  mutant_lane(emulated_lane& lane, mutation const& how) : program_lane(lane), how_(how) {}
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
  void barrier_wait(int barrier, int parity) override {
    bool const empty = barrier % 16 == 8;
    if (how_.fill_without_waiting && empty) return;
    if (how_.wait_for_no_bytes && !empty) return;
    program_lane::barrier_wait(barrier, parity);
  }
  void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4],
                    std::uint32_t const (&b)[2]) override {
    if (how_.swap_lanes) {  // rows of x change places
      std::uint32_t const other[2] = {lane().shuffle_xor(b[0], 4), lane().shuffle_xor(b[1], 4)};
      program_lane::mma_m16n8k16(d, a, other);
    } else if (how_.swap_rows) {  // weight rows g and g + 8
      std::uint32_t const other[4] = {a[1], a[0], a[3], a[2]};
      program_lane::mma_m16n8k16(d, other, b);
    } else {
      program_lane::mma_m16n8k16(d, a, b);
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

/// Shared: 2 blocks of 24 steps for 3 CTAs, which share blocks, and k ends inside a record. Else 4
/// whole blocks of 3 steps for 2 CTAs.
std::vector<std::string> problems_of(mutation const& how, bool shared = true) {
  gemm_case c;
  c.m = 12;
  c.n = shared ? 192 : 512;
  c.k = shared ? 1488 : 192;
  c.sm_count = shared ? 3 : 2;
  c.seed = 5;
  c.options.resident = 3;
  c.options.max_operations = 1 << 14;
  std::deque<mutant_lane> lanes;
  c.options.make_lane = [&](emulated_lane& lane) -> program_lane& {
    return lanes.emplace_back(lane, how);
  };
  c.options.change_mma16_params = [&how](detail::sm80::gemm_params& p) { p.k += how.k_change; };
  std::vector<std::string> problems;
  for (std::uint64_t seed = 0; seed < 4 && problems.empty(); ++seed) {
    c.options.seed = seed;
    c.device = device_of(seed);
    problems = run_any(c).problems;
  }
  return problems;
}

TEST(mma16_program_mutants, the_program_itself_has_no_problem) {
  EXPECT_EQ(joined(problems_of({"none"}, true)), "");
  EXPECT_EQ(joined(problems_of({"none"}, false)), "");
}

TEST(mma16_program_mutants, a_dropped_barrier_is_found_wherever_it_is) {
  // One for the barriers of the ring; then a part has one for each of two row tiles, with one
  // buffer for sums another between them, and a ticket's two where CTAs share the block.
  for (int which = 0; which < 5; ++which) {
    mutation how{"barrier"};
    how.drop_sync_block = which;
    EXPECT_FALSE(problems_of(how, true).empty()) << "barrier " << which << " can go unnoticed";
  }
  mutation warp{"warp barrier"};
  warp.drop_sync_warp = true;
  EXPECT_FALSE(problems_of(warp).empty());
}

TEST(mma16_program_mutants, each_other_mutant_is_found) {
  mutation fence{"no fence"};
  fence.drop_fence = true;
  mutation ticket{"lost ticket"};
  ticket.lose_ticket = true;
  mutation lanes{"swapped rows of x"};
  lanes.swap_lanes = true;
  mutation rows{"swapped weight rows"};
  rows.swap_rows = true;
  mutation halves{"scale of the other half"};
  halves.swap_scale_halves = true;
  mutation early{"a stage that is read before its bytes are there"};
  early.wait_for_no_bytes = true;
  mutation late{"a stage that is filled while others read it"};
  late.fill_without_waiting = true;
  mutation longer{"k tail one too long"};
  longer.k_change = 1;
  mutation shorter{"k tail one too short"};
  shorter.k_change = -1;
  for (mutation const& how : {fence, ticket, lanes, rows, halves, early, late, longer, shorter}) {
    EXPECT_FALSE(problems_of(how).empty()) << how.name << " goes unnoticed";
  }
}

}  // namespace
}  // namespace qpn::test
