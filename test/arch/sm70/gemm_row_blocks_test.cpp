// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "support/emulated_case.hpp"

// More than 16 rows of x: row blocks of 16 to 96 rows.

namespace qpn::test {
namespace {

constexpr std::int64_t borders[] = {17, 32, 33, 48, 49, 64, 65, 96};

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};
constexpr weight_kind fp8_tensor{format_id::fp8, scale_mode::tensor, dtype::f16};
constexpr weight_kind fp8_block{format_id::fp8, scale_mode::block, dtype::f16};
constexpr weight_kind f16_dense{format_id::dense16, scale_mode::none, dtype::f16};
constexpr weight_kind bf16_dense{format_id::dense16, scale_mode::none, dtype::bf16};

std::int64_t record_k(weight_kind kind) {
  return kind.format == format_id::nvfp4 ? 64 : kind.format == format_id::fp8 ? 32 : 16;
}

class row_block_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(gemm_row_blocks, row_block_kind,
                         testing::Values(nvfp4_tensor, fp8_tensor, fp8_block, f16_dense,
                                         bf16_dense),
                         [](auto const& tested) { return to_string(tested.param); });

/// One row of x, first alone, then for every m from 17 to 96 among others, some of them NaN.
void expect_same_bits(gemm_case c, std::int64_t step) {
  c.problem.y_type = dtype::f32;
  random_source random(c.seed);
  std::vector<std::uint16_t> row;
  for (std::int64_t k = 0; k < c.k; ++k) row.push_back(encode_f16(random.normal()));
  c.m = 1;
  gemm_result const alone = run_any(c, &row);
  ASSERT_TRUE(alone.problems.empty()) << joined(alone.problems);
  for (std::int64_t m = 17; m <= 96; m += step) {
    std::int64_t const place = m * 29 % (m - 1);
    std::vector<std::uint16_t> x;
    for (std::int64_t i = 0; i < m; ++i) {
      bool const hostile = i != place && i % 7 == 3;
      for (std::int64_t k = 0; k < c.k; ++k) {
        x.push_back(i == place ? row[static_cast<std::size_t>(k)]
                               : encode_f16((hostile ? 3e4F : 1.0F) * random.normal()));
      }
      if (hostile) x.back() = 0x7e00;
    }
    c.m = m;
    c.problem.max_m = m;
    c.options.seed = static_cast<std::uint64_t>(m);
    c.options.resident = 1 + static_cast<int>(m % 4);
    gemm_result const among = run_any(c, &x);
    ASSERT_TRUE(among.problems.empty()) << joined(among.problems);
    EXPECT_EQ(std::memcmp(alone.y.data(), among.y.data() + place * c.n,
                          static_cast<std::size_t>(c.n) * sizeof(float)),
              0)
        << c.text() << " place " << place;
  }
}

TEST_P(row_block_kind, keeps_the_bits_of_a_row_for_every_m) {
  gemm_case c;
  c.kind = GetParam();
  c.n = 72;  // two tile groups, 24 steps in all for two runs: two teams
  c.k = 12 * record_k(c.kind) - 16;
  c.sm_count = 1;
  c.seed = 71;
  expect_same_bits(c, 1);
}

TEST_P(row_block_kind, keeps_the_bits_of_a_row_where_runs_come_in_no_pairs) {
  gemm_case c;
  c.kind = GetParam();
  c.n = 130;  // three tile groups
  c.k = 11 * record_k(c.kind);
  c.sm_count = 1;
  c.seed = 72;
  expect_same_bits(c, 13);
}

TEST_P(row_block_kind, keeps_the_bits_of_a_row_over_runs_that_cross_tile_groups) {
  gemm_case c;
  c.kind = GetParam();
  c.n = 260;  // six tile groups with padding, shared by four runs
  c.k = 13 * record_k(c.kind);
  c.sm_count = 2;
  c.seed = 73;
  expect_same_bits(c, 26);
}

class row_block_any_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(gemm_row_blocks, row_block_any_kind, testing::ValuesIn(all_weight_kinds),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(row_block_any_kind, matches_fp64_on_ragged_shapes_split_over_ctas) {
  std::uint64_t seed = 700;
  for (std::int64_t n : {1, 65, 128, 190, 256}) {
    for (std::int64_t k : {16, 272, 1040}) {
      for (int round = 0; round < 2; ++round) {
        random_source random(seed);
        gemm_case c;
        c.kind = GetParam();
        c.m = round == 0 ? borders[seed % 8] : random.integer(17, 96);
        c.n = n;
        c.k = k;
        c.sm_count = static_cast<int>(1 + seed % 4);
        c.problem.y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
        c.problem.max_m = c.m;
        c.seed = seed++;
        gemm_result const result = run_any(c);
        ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
      }
    }
  }
}

TEST(gemm_row_blocks, read_x_of_any_alignment_and_stride) {
  std::uint64_t seed = 800;
  for (weight_kind kind : all_weight_kinds) {
    for (std::int64_t gap : {0, 1, 8}) {
      for (bool misaligned : {false, true}) {
        gemm_case c;
        c.kind = kind;
        c.m = borders[seed % 8];
        c.n = seed % 2 == 0 ? 70 : 128;
        // nvfp4 has k in groups of 16; the others end anywhere.
        c.k = kind.format == format_id::nvfp4 ? 336 : 201 + static_cast<std::int64_t>(seed % 7);
        c.x_gap = gap;
        c.x_misaligned = misaligned;
        c.seed = seed++;
        gemm_result const result = run_any(c);
        EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
      }
    }
  }
}

TEST(gemm_row_blocks, take_outliers_up_to_6e4) {
  std::uint64_t seed = 850;
  for (weight_kind kind : all_weight_kinds) {
    gemm_case c;
    c.kind = kind;
    c.m = 20 + static_cast<std::int64_t>(seed % 60);
    c.n = 96;
    c.k = 400;
    c.outlier = 5e4F;
    c.problem.y_type = dtype::f32;
    c.seed = seed++;
    gemm_result const result = run_any(c);
    EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  }
}

TEST(gemm_row_blocks, add_bias_and_residual_and_multiply_gate_by_up) {
  std::uint64_t seed = 900;
  for (std::int64_t m : borders) {
    for (bool gate : {false, true}) {
      gemm_case c;
      c.kind = all_weight_kinds[seed % 7];
      c.m = m;
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

TEST(gemm_row_blocks, argmax_is_that_of_the_stored_row_with_the_lowest_index_at_ties) {
  std::uint64_t seed = 950;
  for (std::int64_t m : borders) {
    for (std::int64_t n : {140, 256}) {  // three or four tile groups: runs in no pairs, in pairs
      gemm_case c;
      c.kind = seed % 2 == 0 ? nvfp4_tensor : fp8_tensor;
      c.m = m;
      c.n = n;
      c.k = 640;
      c.sm_count = 2;
      c.problem.y_type = dtype::f32;
      c.problem.candidates = 1;
      c.problem.max_m = m;
      c.options.seed = seed;
      c.options.resident = 3;
      c.seed = seed++;
      gemm_result const result = run_any(c);
      ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
      for (std::int64_t i = 0; i < c.m; ++i) {
        auto const row = result.y.begin() + i * c.n;
        auto const best = std::max_element(row, row + c.n);
        EXPECT_EQ(result.ids[static_cast<std::size_t>(i)], best - row) << c.text();
        EXPECT_EQ(result.values[static_cast<std::size_t>(i)], *best) << c.text();
      }
    }
  }
  gemm_case zero;
  zero.m = 65;
  zero.n = 130;
  zero.problem.candidates = 1;
  std::vector<std::uint16_t> const x(static_cast<std::size_t>(zero.m * zero.k), 0);
  EXPECT_EQ(run_any(zero, &x).ids, std::vector<std::int32_t>(65, 0));
}

TEST(gemm_row_blocks, every_interleaving_of_ctas_gives_the_same_bits) {
  for (weight_kind const kind : {nvfp4_tensor, fp8_tensor, fp8_block}) {
    gemm_case c;
    c.kind = kind;
    c.n = 256;
    c.k = 16 * record_k(kind);
    c.m = 70;
    c.sm_count = 2;
    c.problem.y_type = dtype::f32;
    c.problem.candidates = 1;
    c.seed = 4;
    std::optional<std::vector<float>> first;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      c.options.seed = seed;
      c.options.resident = 1 + static_cast<int>(seed % 5);
      gemm_result const result = run_any(c);
      ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
      if (!first) first = result.y;
      EXPECT_EQ(*first, result.y) << "schedule seed " << seed;
    }
  }
}

// What reads the weight.

/// Notes which CTAs read the first byte of a record, and in which order CTAs began.
struct reading_notes {
  std::map<detail::word4 const*, std::vector<std::pair<int, int>>> readers;  ///< block, row block
  std::vector<std::pair<int, int>> begun;
};

class noting_lane : public program_lane {
 public:
  noting_lane(emulated_lane& lane, reading_notes& notes) : program_lane(lane), notes_(&notes) {
    if (lane.thread() == 0) notes.begun.emplace_back(lane.block(), lane.row_block());
  }
  [[nodiscard]] detail::word4 load_stream(detail::word4 const* p) override {
    notes_->readers[p].emplace_back(block(), row_block());
    return program_lane::load_stream(p);
  }
  [[nodiscard]] std::uint32_t load_stream(std::uint32_t const* p) override {
    return program_lane::load_stream(p);
  }

 private:
  reading_notes* notes_;
};

template <class Format>
void expect_one_read_for_each_row_block(weight_kind kind, std::int64_t n, std::int64_t k,
                                        bool paired) {
  random_source random(41);
  packed_gpu_weight weight(published_weight(kind, {n}, k, random), 2);
  gemm_plan<Format> plan;
  ASSERT_TRUE(make_gemm_plan(weight.layout, {}, volta_v100(), plan).ok());
  EXPECT_EQ(detail::split_of<Format>(weight.layout).halves_alike(), paired);
  aligned_bytes workspace(plan.workspace_bytes, std::byte{0});
  for (std::int64_t const m : {1, 16, 17, 32, 33, 48, 49, 64, 65, 96}) {
    std::vector<std::uint16_t> x(static_cast<std::size_t>(m * k), 0x3c00);
    std::vector<std::uint16_t> y(static_cast<std::size_t>(m * n));
    gemm_args args;
    args.m = m;
    args.x = x.data();
    args.ldx = k;
    args.weight = weight.view();
    args.y = y.data();
    args.ldy = n;
    reading_notes notes;
    std::deque<noting_lane> lanes;
    emulated_call_options options;
    options.order = cta_order::ascending;
    options.make_lane = [&](emulated_lane& lane) -> program_lane& {
      return lanes.emplace_back(lane, notes);
    };
    emulated_call const call =
        emulate_gemm(plan, args, {workspace.data(), workspace.size()}, options);
    ASSERT_TRUE(call.report.ok()) << call.report.text();
    // Rows of a block: 16 without pairs; with scales that leave registers 64 or 96, of which each
    // of four warps has a quarter and reads the weight, at the same step; the others 32.
    bool const many =
        paired && m > 32 && Format::id != format_id::dense16 && kind.scale != scale_mode::block;
    std::int64_t const block_m = m <= 16 || !paired ? 16 : !many ? 32 : m <= 64 ? 64 : 96;
    int const row_blocks = static_cast<int>((m - 1) / block_m) + 1;
    int const loads = row_blocks * (many ? 4 : 1);
    EXPECT_TRUE(all_equal(call.report.load_counts("records"), loads)) << "m " << m;
    // The same bytes are read by the same CTA of each row block, and these begin one after another.
    for (auto const& [at, readers] : notes.readers) {
      std::set<std::pair<int, int>> expected;
      for (int block = 0; block < row_blocks; ++block) expected.insert({readers[0].first, block});
      EXPECT_EQ(std::set(readers.begin(), readers.end()), expected) << "m " << m;
    }
    for (std::size_t i = 0; i < notes.begun.size(); ++i) {
      auto const at = static_cast<int>(i);
      EXPECT_EQ(notes.begun[i], std::pair(at / row_blocks, at % row_blocks)) << "m " << m;
    }
  }
}

TEST(gemm_row_blocks, a_weight_is_read_once_for_each_row_block_and_by_neighbours) {
  expect_one_read_for_each_row_block<nvfp4>(nvfp4_tensor, 256, 1040, true);
  expect_one_read_for_each_row_block<nvfp4>(nvfp4_tensor, 140, 1040, false);
  expect_one_read_for_each_row_block<fp8>(fp8_tensor, 256, 528, true);
  expect_one_read_for_each_row_block<fp8>(fp8_tensor, 140, 528, false);
  expect_one_read_for_each_row_block<fp8>(fp8_block, 256, 528, true);
  expect_one_read_for_each_row_block<dense16>(f16_dense, 128, 512, true);
  expect_one_read_for_each_row_block<dense16>(bf16_dense, 65, 256, true);
}

// fp8 with block scales.

/// A weight all of whose codes are 1 and all of whose blocks have a scale of their own.
published_weight numbered_blocks(std::int64_t n, std::int64_t k) {
  random_source random(1);
  published_weight published(fp8_block, {n}, k, random);
  published_part& part = published.parts()[0];
  std::fill(part.codes.begin(), part.codes.end(), encode_e4m3(1.0F));
  for (std::size_t i = 0; i < part.scale_blocks.size(); ++i) {
    part.scale_blocks[i] = static_cast<float>(i + 1);
  }
  return published;
}

TEST(gemm_row_blocks, each_k_has_the_scale_of_its_block) {
  std::int64_t const n = 300;
  std::int64_t const k = 400;  // the fourth block of k has 16 of 128
  std::int64_t const columns = 4;
  packed_gpu_weight weight(numbered_blocks(n, k), 2);
  for (std::int64_t const first : {0, 96, 127, 128, 255, 256, 304}) {
    // Row i of x picks k = first + i.
    std::vector<std::uint16_t> x(static_cast<std::size_t>(96 * k), 0);
    for (std::int64_t i = 0; i < 96; ++i) {
      x[static_cast<std::size_t>(i * k + first + i)] = encode_f16(1.0F);
    }
    for (std::int64_t const m : {7, 16, 96}) {
      std::vector<float> const y = multiply<fp8>(weight, x.data(), m);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          ASSERT_EQ(y[static_cast<std::size_t>(i * n + j)],
                    static_cast<float>(j / 128 * columns + (first + i) / 128 + 1))
              << "k " << first + i << " column " << j;
        }
      }
    }
  }
}

TEST(gemm_row_blocks, slices_of_many_rows_give_each_row_the_bits_that_it_has_alone) {
  random_source random(77);
  std::int64_t const k = 272;
  packed_gpu_weight weight(published_weight(fp8_block, {130}, k, random), 1);
  gemm_problem problem;
  problem.max_m = 200;
  problem.y_type = dtype::f32;
  gemm_plan<fp8> plan;
  ASSERT_TRUE(make_gemm_plan(weight.layout, problem, volta_v100(), plan).ok());
  aligned_bytes workspace(plan.workspace_bytes, std::byte{0});
  std::vector<std::uint16_t> x;
  for (std::int64_t i = 0; i < 200 * k; ++i) x.push_back(encode_f16(random.normal()));
  std::vector<float> y(200 * 130);
  gemm_args args;
  args.m = 200;
  args.x = x.data();
  args.ldx = k;
  args.weight = weight.view();
  args.y = y.data();
  args.ldy = 130;
  for (std::int64_t first = 0; first < args.m; first += gemm_max_m) {
    emulated_call const call = emulate_gemm(plan, detail::slice_rows(plan, args, first),
                                            {workspace.data(), workspace.size()});
    ASSERT_TRUE(call.report.ok()) << call.report.text();
  }
  for (std::int64_t const row : {0, 95, 96, 191, 192, 199}) {
    std::vector<float> const alone = multiply<fp8>(weight, x.data() + row * k, 1);
    EXPECT_EQ(std::memcmp(alone.data(), y.data() + row * 130, 130 * sizeof(float)), 0)
        << "row " << row;
  }
}

TEST(gemm_row_blocks, a_nan_in_x_stays_in_its_row) {
  gemm_case c;
  c.kind = fp8_tensor;
  c.m = 66;
  c.n = 64;
  c.k = 128;
  c.problem.candidates = 1;
  c.problem.y_type = dtype::f32;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * c.k), 0x3c00);
  for (std::int64_t const row : {31, 40, 65}) x[static_cast<std::size_t>(row * c.k + 5)] = 0x7e00;
  gemm_result const result = run_any(c, &x);
  EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  for (std::int64_t i = 0; i < c.m; ++i) {
    EXPECT_EQ(std::isnan(result.values[static_cast<std::size_t>(i)]), i == 31 || i == 40 || i == 65)
        << "row " << i;
  }
}

}  // namespace
}  // namespace qpn::test
