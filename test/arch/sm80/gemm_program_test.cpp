// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm80/gemm_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "support/emulated_case.hpp"

// The lane program of layout sm80_mma16.

namespace qpn::test {
namespace {

/// A case for an H200 with so few multiprocessors that a strip has 4 to 8 slices.
gemm_case mma16_case() {
  gemm_case c;
  c.device = hopper_h200();
  return c;
}

class mma16_operand_kinds : public testing::TestWithParam<operand_kinds> {
 protected:
  [[nodiscard]] static gemm_case tested_case() {
    gemm_case c = mma16_case();
    c.kind = GetParam().weight;
    c.problem.x_type = GetParam().x_type;
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(mma16_program, mma16_operand_kinds, testing::ValuesIn(all_operand_kinds()),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(mma16_operand_kinds, matches_fp64_on_ragged_shapes) {
  std::uint64_t seed = 100;
  for (std::int64_t n : {1, 24, 64, 130}) {
    for (std::int64_t k : {16, 80, 256, 272, 1040}) {
      for (std::int64_t m : {1, 7, 9, 16, 24, 33}) {
        if (m > 9 && n != 130 && k != 272) continue;
        gemm_case c = tested_case();
        c.m = m;
        c.n = n;
        c.k = k;
        c.sm_count = static_cast<int>(1 + seed % 5);
        c.problem.y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
        c.seed = seed++;
        gemm_result const result = run_any(c);
        ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
      }
    }
  }
}

TEST_P(mma16_operand_kinds, keeps_the_bits_of_a_row_for_every_m_and_place) {
  gemm_case c = tested_case();
  dtype const x_type = c.problem.x_type;
  c.n = 66;
  c.k = 592;
  c.problem.y_type = dtype::f32;
  c.seed = 7;
  random_source random(8);
  std::vector<std::uint16_t> row;
  for (std::int64_t k = 0; k < c.k; ++k) row.push_back(x_code(random.normal(), x_type));
  c.m = 1;
  gemm_result const alone = run_any(c, &row);
  ASSERT_TRUE(alone.problems.empty()) << joined(alone.problems);
  // Every m for one kind of each operand.
  bool const every = c.kind.scale != scale_mode::channel &&
                     (c.kind.dense_type == dtype::f16 || x_type == dtype::bf16);
  for (std::int64_t m = 1; m <= 96; m += m < 18 && every ? 1 : 13) {
    std::int64_t const place = m * 5 % m == 0 ? m - 1 : m * 5 % m;
    std::vector<std::uint16_t> x;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t k = 0; k < c.k; ++k) {
        x.push_back(i == place ? row[static_cast<std::size_t>(k)]
                               : x_code(1000.0F * random.normal(), x_type));
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

// Weights with 128 x 128 scales read no table: theirs are then those of the rules twice.
TEST_P(mma16_operand_kinds, gives_the_same_bits_with_any_row_tiles) {
  gemm_case c = tested_case();
  c.n = 66;
  c.k = 336;
  c.problem.y_type = dtype::f32;
  for (std::int64_t const m : {3, 12, 20, 33, 100}) {
    c.m = m;
    c.problem.max_m = m;
    c.problem.tuning = {};
    c.seed = 300 + static_cast<std::uint64_t>(m);
    gemm_result const by_rules = run_any(c);
    ASSERT_TRUE(by_rules.problems.empty()) << joined(by_rules.problems);
    std::vector<gemm_choice> choices = {{gemm_method::mt1}, {gemm_method::mt2}, {gemm_method::mt4}};
    for (int const row_tiles : {1, 2}) {
      detail::sm80::register_choices const free =
          detail::sm80::free_registers(c.kind.format, row_tiles);
      for (int i = 0; i < free.count; ++i) {
        choices.push_back(
            {narrow_method(row_tiles), 0, 0, 0, 0, static_cast<std::int16_t>(free.values[i])});
      }
    }
    for (gemm_choice const choice : choices) {
      gemm_tuning_row const row = {c.kind.format, c.n, c.k, m, m, choice};
      c.problem.tuning = {&row, 1};
      gemm_result const tuned = run_any(c);
      ASSERT_TRUE(tuned.problems.empty()) << joined(tuned.problems);
      EXPECT_EQ(tuned.y, by_rules.y) << c.text() << " method " << static_cast<int>(choice.method)
                                     << " registers " << choice.registers;
    }
  }
}

/// The kinds whose strips may be halved with one row tile and with two.
constexpr weight_kind halved_kinds[] = {{format_id::nvfp4, scale_mode::tensor, dtype::f16},
                                        {format_id::fp8, scale_mode::tensor, dtype::f16},
                                        {format_id::fp8, scale_mode::channel, dtype::f16}};

/// Runs a case of four strips, whole and then as `change` has it.
template <class Change>
void expect_the_bits_of_whole_strips(gemm_case c, Change change, int ctas_then) {
  int ctas = 0;
  c.options.change_mma16_params = [&](detail::sm80::gemm_params& p) { ctas = p.ctas; };
  gemm_result const whole = run_any(c);
  ASSERT_TRUE(whole.problems.empty()) << joined(whole.problems);
  EXPECT_EQ(ctas, 4) << c.text();
  change(c);
  gemm_result const changed = run_any(c);
  ASSERT_TRUE(changed.problems.empty()) << joined(changed.problems);
  EXPECT_EQ(ctas, ctas_then) << c.text();
  EXPECT_EQ(whole.y, changed.y) << c.text();
}

// Four strips are too many for one multiprocessor, and few enough for four. So few batches have as
// many slices on both.
TEST(mma16_program, whole_strips_and_halves_give_the_same_bits) {
  for (weight_kind const kind : halved_kinds) {
    for (std::int64_t const k : {48, 400, 512}) {
      for (std::int64_t m = 1; m <= 16; ++m) {
        gemm_case c = mma16_case();
        c.kind = kind;
        c.m = m;
        c.n = 70;
        c.k = k;
        c.bias = true;
        c.residual = true;
        c.problem.y_type = dtype::f32;
        c.seed = 900 + static_cast<std::uint64_t>(m);
        expect_the_bits_of_whole_strips(
            c, [](gemm_case& of) { of.sm_count = 4; }, 8);
      }
    }
  }
}

TEST(mma16_program, halves_of_16_bit_weights_beside_another_launch_give_the_same_bits) {
  for (dtype const code : {dtype::f16, dtype::bf16}) {
    for (std::int64_t m = 1; m <= 17; m += 4) {
      gemm_case c = mma16_case();
      c.kind = {format_id::dense16, scale_mode::none, code};
      c.m = m;
      c.n = 96;
      c.k = 400;
      c.problem.y_type = dtype::f32;
      c.seed = 1900 + static_cast<std::uint64_t>(m);
      int const halved = m <= 16 ? 8 : 4;
      expect_the_bits_of_whole_strips(
          c, [](gemm_case& of) { of.beside = true; }, halved);
    }
  }
}

TEST_P(mma16_operand_kinds, x_read_by_words_and_by_elements_gives_the_same_bits) {
  gemm_case c = tested_case();
  c.m = 5;
  c.n = 64;
  c.k = 768;
  c.problem.y_type = dtype::f32;
  c.seed = 12;
  gemm_result const by_words = run_any(c);
  c.x_misaligned = true;
  gemm_result const by_elements = run_any(c);
  ASSERT_TRUE(by_words.problems.empty()) << joined(by_words.problems);
  ASSERT_TRUE(by_elements.problems.empty()) << joined(by_elements.problems);
  EXPECT_EQ(by_words.y, by_elements.y);
}

TEST_P(mma16_operand_kinds, takes_outliers_as_large_as_x_may_be) {
  for (std::int64_t m : {3, 40}) {
    gemm_case c = tested_case();
    c.m = m;
    c.n = 96;
    c.k = 400;
    c.outlier = c.problem.x_type == dtype::f16 ? 5e4F : 1e29F;
    c.problem.y_type = dtype::f32;
    c.seed = 31 + static_cast<std::uint64_t>(m);
    gemm_result const result = run_any(c);
    EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  }
}

TEST(mma16_program, bf16_rows_of_any_size_give_sums_of_their_size) {
  for (operand_kinds const kinds : all_operand_kinds()) {
    if (kinds.x_type != dtype::bf16) continue;
    gemm_case c = mma16_case();
    c.kind = kinds.weight;
    c.problem.x_type = dtype::bf16;
    c.problem.y_type = dtype::f32;
    c.m = 3;
    c.k = 208;
    c.seed = 17;
    random_source random(18);
    std::vector<float> const values = random.normals(c.m * c.k);
    auto const y_of = [&](int exponent) {
      std::vector<std::uint16_t> x;
      for (float const value : values) x.push_back(encode_bf16(std::ldexp(value, exponent)));
      return run_any(c, &x).y;
    };
    std::vector<float> const expected = y_of(0);
    for (int const exponent : {-80, 80}) {
      std::vector<float> y = y_of(exponent);
      for (float& value : y) value = std::ldexp(value, -exponent);
      EXPECT_EQ(y, expected) << kinds << " times 2^" << exponent;
    }
  }
}

/// fp8 weights by f16 rows in fragment order.
gemm_case fragments_case(std::int64_t m, std::int64_t k, scale_mode scale = scale_mode::tensor) {
  gemm_case c = mma16_case();
  c.kind = {format_id::fp8, scale, dtype::f16};
  c.m = m;
  c.n = 70;  // four strips
  c.k = k;
  c.order = x_order::fragments;
  c.problem.y_type = dtype::f32;
  c.seed = 700 + static_cast<std::uint64_t>(m + k);
  return c;
}

// One multiprocessor takes whole strips; three and four take halves, which have registers for two
// batches with two row tiles where there are four.
TEST(mma16_program, x_in_fragment_order_and_in_rows_give_the_same_bits) {
  for (int const sm_count : {1, 3, 4}) {
    for (std::int64_t const k : {128, 384, 1152, 2304}) {
      for (std::int64_t m = 1; m <= 16; ++m) {
        if (k > 384 && m % 7 > 2) continue;
        gemm_case c = fragments_case(m, k, m % 2 == 0 ? scale_mode::channel : scale_mode::tensor);
        c.sm_count = sm_count;
        c.bias = m % 3 == 0;
        c.residual = m % 3 != 1;
        int ctas = 0;
        c.options.change_mma16_params = [&](detail::sm80::gemm_params& p) { ctas = p.ctas; };
        c.options.resident = 1 + static_cast<int>(m % 3);
        gemm_result const fragments = run_any(c);
        ASSERT_TRUE(fragments.problems.empty()) << joined(fragments.problems);
        EXPECT_EQ(ctas, sm_count == 1 ? 4 : 8) << c.text();
        c.order = x_order::rows;
        gemm_result const rows = run_any(c);
        ASSERT_TRUE(rows.problems.empty()) << joined(rows.problems);
        EXPECT_EQ(rows.y, fragments.y) << c.text();
      }
    }
  }
}

TEST(mma16_program, x_in_fragment_order_takes_every_epilogue_and_table) {
  for (bool const gate : {false, true}) {
    for (std::int64_t const m : {3, 12}) {
      gemm_case c = fragments_case(m, 512);
      c.n = 128;
      c.bias = c.residual = true;
      c.problem.act = gate ? activation::silu_gate : activation::none;
      c.sm_count = 4;
      gemm_result const by_rules = run_any(c);
      ASSERT_TRUE(by_rules.problems.empty()) << joined(by_rules.problems);
      for (gemm_method const method : {gemm_method::mt1, gemm_method::mt2}) {
        gemm_tuning_row const row = {c.kind.format, c.n, c.k, m, m, {method}};
        c.problem.tuning = {&row, 1};
        gemm_result const tuned = run_any(c);
        ASSERT_TRUE(tuned.problems.empty()) << joined(tuned.problems);
        EXPECT_EQ(tuned.y, by_rules.y) << c.text() << " method " << static_cast<int>(method);
      }
    }
  }
}

TEST(mma16_program, reads_x_of_any_alignment_and_stride) {
  std::uint64_t seed = 500;
  for (operand_kinds const kinds : all_operand_kinds()) {
    weight_kind const kind = kinds.weight;
    for (std::int64_t gap : {0, 1, 8, 1000}) {
      for (bool misaligned : {false, true}) {
        gemm_case c = mma16_case();
        c.kind = kind;
        c.problem.x_type = kinds.x_type;
        c.m = 1 + static_cast<std::int64_t>(seed % 5) * 9;
        c.n = 70;
        // nvfp4 has k in groups of 16; the others end anywhere.
        c.k = kind.format == format_id::nvfp4 ? 208 : 201 + static_cast<std::int64_t>(seed % 7);
        c.x_gap = gap;
        c.x_misaligned = misaligned;
        c.seed = seed++;
        gemm_result const result = run_any(c);
        EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
      }
    }
  }
}

TEST(mma16_program, every_interleaving_of_warps_and_ctas_gives_the_same_bits) {
  gemm_case c = mma16_case();
  c.n = 200;
  c.k = 1600;
  c.m = 11;
  c.sm_count = 4;
  c.problem.y_type = dtype::f32;
  c.problem.candidates = 3;
  c.problem.max_m = gemm_candidates_max_m;
  c.seed = 3;
  std::optional<gemm_result> first;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    c.options.seed = seed;
    c.options.resident = 1 + static_cast<int>(seed % 5);
    gemm_result const result = run_any(c);
    ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
    if (!first) first = result;
    EXPECT_EQ(first->y, result.y) << "schedule seed " << seed;
    EXPECT_EQ(first->ids, result.ids) << "schedule seed " << seed;
  }
}

TEST(mma16_program, adds_bias_and_residual_and_multiplies_gate_by_up) {
  std::uint64_t seed = 60;
  for (operand_kinds const kinds : all_operand_kinds()) {
    for (bool gate : {false, true}) {
      gemm_case c = mma16_case();
      c.kind = kinds.weight;
      c.problem.x_type = kinds.x_type;
      c.m = 5 + static_cast<std::int64_t>(seed % 9) * 3;
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

TEST(mma16_program, candidates_are_those_of_the_stored_row) {
  std::uint64_t seed = 0;
  for (int candidates : {1, 2, 40, 64}) {
    for (std::int64_t m : {1, 8, 13, 70}) {
      if (candidates > 1 && m > gemm_candidates_max_m) continue;
      gemm_case c = mma16_case();
      c.kind = all_weight_kinds[seed % std::size(all_weight_kinds)];
      if (c.kind.dense_type == dtype::bf16 || seed % 2 == 1) {
        c.problem.x_type = c.kind.format == format_id::dense16 && c.kind.dense_type == dtype::f16
                               ? dtype::f16
                               : dtype::bf16;
      }
      c.m = m;
      c.n = 500;  // 16 strips for 8 CTAs
      c.k = 320;
      c.first_id = static_cast<std::int32_t>(seed * 1000);
      c.id_limit = c.first_id + 480;
      c.problem.y_type = dtype::f32;
      c.problem.candidates = candidates;
      c.problem.max_m = candidates > 1 ? gemm_candidates_max_m : gemm_max_m;
      c.options.seed = seed;
      c.options.resident = 3;
      c.seed = 40 + seed++;
      gemm_result const result = run_any(c);
      EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
    }
  }
}

TEST(mma16_program, a_nan_in_x_stays_in_its_row) {
  gemm_case c = mma16_case();
  c.m = 3;
  c.n = 64;
  c.k = 128;
  c.problem.candidates = 1;
  c.problem.y_type = dtype::f32;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * c.k), 0x3c00);
  x[static_cast<std::size_t>(c.k + 5)] = 0x7e00;
  gemm_result const result = run_any(c, &x);
  EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  EXPECT_TRUE(std::isnan(result.values[1]));
  EXPECT_FALSE(std::isnan(result.values[0]));
  EXPECT_FALSE(std::isnan(result.values[2]));
}

TEST(mma16_program_patterns, every_code_with_every_scale_is_exact) {
  device_info const device = hopper_h200();
  expect_exact_weights<nvfp4>(every_block_scale(), {}, device);
  expect_exact_weights<fp8>(every_e4m3_code(), {}, device);
  expect_exact_weights<dense16>(every_16_bit_weight(dtype::f16), {}, device);
  expect_exact_weights<dense16>(every_16_bit_weight(dtype::bf16), {}, device);
  gemm_problem bf16;
  bf16.x_type = dtype::bf16;
  expect_exact_weights<nvfp4>(every_block_scale(), bf16, device);
  expect_exact_weights<fp8>(every_e4m3_code(), bf16, device);
  expect_exact_weights<dense16>(every_16_bit_weight(dtype::bf16), bf16, device);
}

/// Counts the loads before wait_previous, and how often that is called.
class overlap_lane : public program_lane {
 public:
  using program_lane::program_lane;
  [[nodiscard]] detail::word4 load_stream(detail::word4 const* p) override {
    weights_before += allowed == 0 ? 1 : 0;
    return program_lane::load_stream(p);
  }
  [[nodiscard]] std::uint16_t load(std::uint16_t const* p) override {
    EXPECT_EQ(waits, beside ? 0 : 1) << "x is read before the kernel before has ended";
    return program_lane::load(p);
  }
  [[nodiscard]] detail::word4 load_words(detail::word4 const* p) override {
    EXPECT_EQ(waits, beside ? 0 : 1) << "x is read before the kernel before has ended";
    return program_lane::load_words(p);
  }
  void allow_next() override {
    EXPECT_EQ(waits, beside ? 0 : 1) << "a launch beside this one could read x too early";
    ++allowed;
  }
  void wait_previous() override {
    EXPECT_EQ(allowed, beside ? 1 : 0);
    ++waits;
  }

  bool beside = false;
  int weights_before = 0;
  int allowed = 0;
  int waits = 0;
};

/// Runs a case as a launch that overlaps the one before. Each lane waits once, lets the next launch
/// in once, and has loaded so many times 16 bytes of weights until then.
void expect_one_wait(gemm_case c, bool beside, int weights_before, bool starts_with_two = true) {
  std::deque<overlap_lane> lanes;
  c.options.make_lane = [&](emulated_lane& lane) -> program_lane& {
    overlap_lane& made = lanes.emplace_back(lane);
    made.beside = beside;
    return made;
  };
  c.options.change_mma16_params = [=](detail::sm80::gemm_params& p) {
    p.starts_with_two = starts_with_two;
    p.overlap_previous = true;
    p.beside_previous = beside;
  };
  gemm_result const result = run_any(c);
  ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
  for (overlap_lane const& lane : lanes) {
    EXPECT_EQ(lane.waits, 1);
    EXPECT_EQ(lane.allowed, 1);
    EXPECT_EQ(lane.weights_before, weights_before);
  }
}

TEST(mma16_program, an_overlapping_launch_waits_once_on_every_path_after_its_first_weights) {
  for (int const which : {0, 1, 2, 3}) {
    std::int64_t const k = which % 2 == 0 ? 48 : 1024;  // no slice by words; several
    bool const beside = which / 2 == 1;                 // waits at its end
    gemm_case c = mma16_case();
    c.m = 2;
    c.n = 500;
    c.k = k;
    c.problem.candidates = 1;                     // more strips than CTAs
    expect_one_wait(c, beside, k == 48 ? 0 : 4);  // two halves of two records
  }
}

TEST(mma16_program, an_overlapping_launch_waits_before_it_reads_x_in_fragment_order) {
  for (std::int64_t const m : {2, 12}) {
    for (bool const beside : {false, true}) {
      gemm_case c = fragments_case(m, 4096);
      c.sm_count = 4;                 // halves, two batches
      expect_one_wait(c, beside, 8);  // half of four records of two batches
      expect_one_wait(c, beside, 4, false);
    }
  }
}

/// k ends inside a record of the last slice, and CTAs have several strips.
gemm_case mutant_case() {
  gemm_case c = mma16_case();
  c.m = 12;
  c.n = 320;
  c.k = 1488;
  c.problem.candidates = 2;
  c.problem.max_m = gemm_candidates_max_m;
  c.problem.y_type = dtype::f32;
  c.seed = 5;
  c.options.resident = 3;
  return c;
}

TEST(mma16_program_mutants, the_program_itself_has_no_problem) {
  EXPECT_EQ(joined(problems_of_mutant(mutant_case(), {"none"})), "");
}

TEST(mma16_program_mutants, a_dropped_barrier_is_found_wherever_it_is) {
  // The sums of a strip, before those of the next one, those; then the ticket's two.
  for (int which = 0; which < 5; ++which) {
    mutation how{"barrier"};
    how.drop_sync_block = which;
    EXPECT_FALSE(problems_of_mutant(mutant_case(), how).empty())
        << "barrier " << which << " can go unnoticed";
  }
  gemm_case many_rows = mutant_case();  // with a barrier between two pairs of row tiles
  many_rows.m = 30;
  many_rows.problem = {};
  for (int which = 0; which < 3; ++which) {
    mutation how{"barrier"};
    how.drop_sync_block = which;
    EXPECT_FALSE(problems_of_mutant(many_rows, how).empty())
        << "barrier " << which << " can go unnoticed";
  }
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
  mutation scales{"scale of another row"};
  scales.rotate_scales = true;
  mutation shuffle{"key of another lane"};
  shuffle.shuffle_change = 1;
  mutation longer{"k tail one too long"};
  longer.k_change = 1;
  mutation shorter{"k tail one too short"};
  shorter.k_change = -1;
  for (mutation const& how :
       {fence, ticket, lanes, rows, halves, scales, shuffle, longer, shorter}) {
    EXPECT_FALSE(problems_of_mutant(mutant_case(), how).empty()) << how.name << " goes unnoticed";
  }
  for (int const sm_count : {1, 4}) {  // whole strips, and halves
    gemm_case fragments = fragments_case(12, 1152);
    fragments.sm_count = sm_count;
    EXPECT_EQ(joined(problems_of_mutant(fragments, {"none"})), "");
    for (mutation const& how : {lanes, rows, longer, shorter}) {
      EXPECT_FALSE(problems_of_mutant(fragments, how).empty())
          << how.name << " goes unnoticed in fragment order";
    }
    mutation barrier{"barrier"};
    barrier.drop_sync_block = 0;
    EXPECT_FALSE(problems_of_mutant(fragments, barrier).empty());
  }
  mutation other_type{"bf16 pairs as f16"};
  other_type.as_f16 = true;
  gemm_case bf16 = mutant_case();
  bf16.problem.x_type = dtype::bf16;
  EXPECT_EQ(joined(problems_of_mutant(bf16, {"none"})), "");
  for (mutation const& how : {lanes, rows, halves, scales, longer, shorter, other_type}) {
    EXPECT_FALSE(problems_of_mutant(bf16, how).empty()) << how.name << " goes unnoticed in bf16";
  }
}

}  // namespace
}  // namespace qpn::test
