// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "qpn/candidates.hpp"
#include "support/emulated_case.hpp"

// Lists of the best columns, as the kernels of layout sm70_quadpair make them. Each run holds its
// lists to the y that the same call has stored: see expected_candidates.

namespace qpn::test {
namespace {

gemm_case candidates_case(int candidates, std::int64_t m, std::int64_t n) {
  gemm_case c;
  c.m = m;
  c.n = n;
  c.problem.y_type = dtype::f32;
  c.problem.max_m = gemm_candidates_max_m;
  c.problem.candidates = candidates;
  return c;
}

constexpr int counts[] = {1, 2, 3, 20, 32, 33, 64};

TEST(gemm_candidates, are_the_best_of_the_stored_row_for_every_count_and_m) {
  std::uint64_t seed = 900;
  for (int count : counts) {
    for (std::int64_t m = 1; m <= 16; ++m) {
      // The last are fewer columns than candidates, in one CTA and in CTAs that finish no group.
      std::int64_t const sizes[][2] = {{700, 64}, {333, 592}, {130, 2048}, {24, 80}, {40, 3008}};
      auto const& [n, k] = sizes[seed % 5];
      gemm_case c = candidates_case(count, m, n);
      c.kind = all_weight_kinds[seed % std::size(all_weight_kinds)];
      c.k = k;
      c.sm_count = 1 + static_cast<int>(seed % 6);
      c.options.seed = seed;
      c.options.resident = 1 + static_cast<int>(seed % 4);
      c.seed = seed++;
      gemm_result const result = run_any(c);
      ASSERT_TRUE(result.problems.empty()) << "candidates " << count << "\n"
                                           << joined(result.problems);
    }
  }
}

TEST(gemm_candidates, are_those_of_every_order_of_ctas) {
  for (int count : {2, 20, 64}) {
    gemm_case c = candidates_case(count, 11, 600);
    c.k = 640;
    c.sm_count = 5;
    c.seed = 41;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      c.options.seed = seed;
      c.options.order = seed % 3 == 0   ? cta_order::ascending
                        : seed % 3 == 1 ? cta_order::descending
                                        : cta_order::shuffled;
      c.options.resident = 1 + static_cast<int>(seed);
      gemm_result const result = run_any(c);
      ASSERT_TRUE(result.problems.empty()) << "schedule seed " << seed << "\n"
                                           << joined(result.problems);
    }
  }
}

TEST(gemm_candidates, come_from_one_cta_or_from_all_of_many) {
  for (bool from_one : {false, true}) {
    gemm_case c = candidates_case(40, 2, 9600);  // 75 CTAs, two tile groups each
    c.kind = {format_id::dense16, scale_mode::none, dtype::f16};
    c.k = 128;
    c.sm_count = 40;
    c.options.resident = 8;
    c.seed = 43;
    c.bias = true;
    c.given_bias.assign(9600, 0.0F);
    if (from_one) std::fill_n(c.given_bias.begin() + 1030, 50, 1000.0F);
    gemm_result const result = run_any(c);
    EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
  }
}

TEST(gemm_candidates, come_without_y_and_from_simt) {
  for (int count : {1, 5, 40}) {
    for (gemm_algorithm algorithm : {gemm_algorithm::tensor_core, gemm_algorithm::simt}) {
      gemm_case c = candidates_case(count, 3, 300);
      c.k = 272;
      c.sm_count = 3;
      c.problem.algorithm = algorithm;
      c.problem.max_m = 3;
      gemm_result const with = run_any(c);
      ASSERT_TRUE(with.problems.empty()) << joined(with.problems);
      c.with_y = false;
      c.options.seed = 77;
      gemm_result const without = run_any(c);
      ASSERT_TRUE(without.problems.empty()) << joined(without.problems);
      EXPECT_EQ(with.ids, without.ids);
      EXPECT_EQ(with.values, without.values);
    }
  }
}

/// A case whose logits are its bias, since x is 0.
gemm_result run_bias(gemm_case c, std::vector<float> bias) {
  c.bias = true;
  c.given_bias = std::move(bias);
  std::vector<std::uint16_t> const x(static_cast<std::size_t>(c.m * c.k), 0);
  return run_any(c, &x);
}

TEST(gemm_candidates, take_the_lowest_of_equal_columns_first) {
  for (int count : counts) {
    gemm_case c = candidates_case(count, 9, 300);
    c.sm_count = 3;
    // +0 and -0 are equal.
    std::vector<float> equal(300, 0.0F);
    for (std::size_t j = 0; j < 300; j += 3) equal[j] = -0.0F;
    gemm_result const all = run_bias(c, equal);
    ASSERT_TRUE(all.problems.empty()) << joined(all.problems);
    for (int place = 0; place < count; ++place) {
      EXPECT_EQ(all.ids[static_cast<std::size_t>(place)], place);
    }
    std::vector<float> few;
    for (std::int64_t j = 0; j < 300; ++j) few.push_back(static_cast<float>(j * 7 % 5) - 2.0F);
    gemm_result const some = run_bias(c, few);
    EXPECT_TRUE(some.problems.empty()) << joined(some.problems);
  }
}

TEST(gemm_candidates, put_nan_before_all_and_minus_infinity_before_nothing) {
  for (int count : counts) {
    gemm_case c = candidates_case(count, 2, 200);
    c.sm_count = 2;
    std::vector<float> bias(200, -INFINITY);
    bias[5] = -1.0F;
    bias[70] = INFINITY;
    bias[190] = NAN;
    bias[131] = -NAN;
    gemm_result const result = run_bias(c, bias);
    ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
    std::vector<std::int32_t> const first{131, 190, 70, 5, 0, 1};
    for (std::size_t i = 0; i < std::min(first.size(), static_cast<std::size_t>(count)); ++i) {
      EXPECT_EQ(result.ids[i], first[i]) << "place " << i;
    }
  }
}

TEST(gemm_candidates, keep_to_ids_below_the_limit) {
  std::uint64_t seed = 60;
  for (int count : {1, 3, 33}) {
    // Before, at, and behind the shard's first id; in its first and second tile group; at its end.
    for (std::int32_t limit : {0, 99'000, 100'000, 100'001, 100'020, 100'063, 100'064, 100'100,
                               100'150, 100'151, 2'000'000'000}) {
      gemm_case c = candidates_case(count, 1 + static_cast<std::int64_t>(seed % 16), 150);
      c.k = 320;
      c.sm_count = 2;
      c.first_id = 100'000;
      c.id_limit = limit;
      c.seed = seed++;
      gemm_result const result = run_any(c);
      ASSERT_TRUE(result.problems.empty()) << "limit " << limit << "\n" << joined(result.problems);
    }
  }
  gemm_case last = candidates_case(2, 1, 150);
  last.first_id = std::numeric_limits<std::int32_t>::max() - 150;
  gemm_result const result = run_bias(last, std::vector<float>(150, 1.0F));
  EXPECT_TRUE(result.problems.empty()) << joined(result.problems);
}

/// Rows [first, first + n) of a dense weight.
published_weight rows_of(published_weight& whole, std::int64_t first, std::int64_t n) {
  random_source random(1);
  std::int64_t const k = whole.layout().k;
  published_weight piece({format_id::dense16, scale_mode::none, dtype::f16}, {n}, k, random);
  std::vector<std::uint8_t> const& codes = whole.parts()[0].codes;
  std::copy_n(codes.begin() + 2 * first * k, 2 * n * k, piece.parts()[0].codes.begin());
  return piece;
}

TEST(gemm_candidates, of_shards_merge_to_those_of_the_whole_matrix) {
  constexpr std::int64_t n = 420;
  constexpr std::int64_t k = 208;
  random_source random(71);
  weight_kind const kind{format_id::dense16, scale_mode::none, dtype::f16};
  published_weight whole(kind, {n}, k, random);
  // Integers, so that sums are exact however a shard's k is split; many of them tie.
  std::vector<std::uint8_t>& codes = whole.parts()[0].codes;
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    std::uint16_t const word = encode_f16(static_cast<float>(random.integer(-1, 1)));
    std::memcpy(codes.data() + i, &word, 2);
  }
  std::vector<float> bias(static_cast<std::size_t>(n), 0.0F);
  bias[17] = bias[333] = NAN;
  bias[200] = -INFINITY;
  for (int count : counts) {
    for (std::int64_t m : {1, 13}) {
      std::vector<std::uint16_t> x;
      for (std::int64_t i = 0; i < m * k; ++i) {
        x.push_back(encode_f16(static_cast<float>(random.integer(-1, 1))));
      }
      gemm_case c = candidates_case(count, m, n);
      c.kind = kind;
      c.k = k;
      c.sm_count = 3;
      c.bias = true;
      c.given_bias = bias;
      c.given_weight = &whole;
      c.id_limit = 411;  // the last ids are padding of the vocabulary
      gemm_result const unsharded = run_any(c, &x);
      ASSERT_TRUE(unsharded.problems.empty()) << joined(unsharded.problems);
      for (std::int64_t shards : {1, 2, 4}) {
        std::vector<std::int32_t> ids;
        std::vector<float> values;
        for (std::int64_t shard = 0; shard < shards; ++shard) {
          std::int64_t const first = shard * n / shards;
          published_weight const piece = rows_of(whole, first, n / shards);
          gemm_case of_shard = c;
          of_shard.given_weight = &piece;
          of_shard.n = n / shards;
          of_shard.first_id = static_cast<std::int32_t>(first);
          of_shard.given_bias = {bias.begin() + first, bias.begin() + first + n / shards};
          of_shard.sm_count = 1 + static_cast<int>(shard);
          gemm_result const result = run_any(of_shard, &x);
          ASSERT_TRUE(result.problems.empty()) << joined(result.problems);
          ids.insert(ids.end(), result.ids.begin(), result.ids.end());
          values.insert(values.end(), result.values.begin(), result.values.end());
        }
        merge_candidates_args args;
        args.m = m;
        args.candidates = count;
        args.shards = static_cast<int>(shards);
        args.ids = ids.data();
        args.values = values.data();
        std::vector<std::int32_t> merged_ids(unsharded.ids.size(), -7);
        std::vector<float> merged_values(unsharded.values.size());
        args.merged_ids = merged_ids.data();
        args.merged_values = merged_values.data();
        ASSERT_TRUE(merge_candidates(args).ok());
        EXPECT_EQ(merged_ids, unsharded.ids) << shards << " shards, candidates " << count;
        EXPECT_EQ(std::memcmp(merged_values.data(), unsharded.values.data(),
                              merged_values.size() * sizeof(float)),
                  0)
            << shards << " shards, candidates " << count;
      }
    }
  }
}

// Mutants: each changes one thing that the lists rely on; the checks must see it.

std::vector<std::string> problems_of(mutation const& how) {
  gemm_case c = candidates_case(20, 11, 320);
  c.k = 1488;
  c.sm_count = 3;
  c.seed = 5;
  c.options.resident = 6;
  return problems_of_mutant(c, how);
}

TEST(gemm_candidates_mutants, the_program_itself_has_no_problem) {
  EXPECT_EQ(joined(problems_of({"none"})), "");
}

TEST(gemm_candidates_mutants, each_mutant_is_found) {
  mutation fence{"no fence"};
  fence.drop_fence = true;
  mutation ticket{"lost ticket"};
  ticket.lose_ticket = true;
  mutation vote{"a lane that votes for itself"};
  vote.vote_alone = true;
  mutation shuffle{"a step of the sort that another lane answers"};
  shuffle.shuffle_change = 1;
  for (mutation const& how : {fence, ticket, vote, shuffle}) {
    EXPECT_FALSE(problems_of(how).empty()) << how.name << " goes unnoticed";
  }
}

}  // namespace
}  // namespace qpn::test
