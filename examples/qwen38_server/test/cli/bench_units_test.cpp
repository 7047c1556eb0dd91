// SPDX-License-Identifier: Apache-2.0
// What the benchmarks reckon with: tasks whose answers are right, bytes, rates, profiles.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/bench_rounds.hpp"
#include "cli/bench_suites.hpp"
#include "cli/draft_depth.hpp"
#include "cli/profile.hpp"
#include "cli/suite_tasks.hpp"
#include "support/error.hpp"

namespace qwen38::cli {
namespace {

std::int64_t count(std::int64_t first, std::int64_t last,
                   std::function<bool(std::int64_t)> const& holds) {
  std::int64_t found = 0;
  for (std::int64_t n = first; n <= last; ++n) found += holds(n) ? 1 : 0;
  return found;
}

std::int64_t divisors(std::int64_t n) {
  return count(1, n, [n](std::int64_t d) { return n % d == 0; });
}

std::int64_t power_of_seven() {
  std::int64_t rest = 1;
  for (int i = 0; i < 2026; ++i) rest = rest * 7 % 1000;
  return rest;
}

std::int64_t least_with_zeros(std::int64_t zeros) {
  for (std::int64_t n = 1, fives = 0;; ++n) {
    for (std::int64_t rest = n; rest % 5 == 0; rest /= 5) ++fives;
    if (fives == zeros) return n;
  }
}

std::int64_t domino_tilings(int columns) {
  std::int64_t now = 1;
  std::int64_t before = 1;
  for (int i = 1; i < columns; ++i) {
    std::int64_t const next = now + before;
    before = now;
    now = next;
  }
  return now;
}

std::int64_t triples_of_product(std::int64_t product) {
  std::int64_t found = 0;
  for (std::int64_t a = 1; a <= product; ++a) {
    if (product % a == 0) found += divisors(product / a);
  }
  return found;
}

std::int64_t sums_of_two_squares(std::int64_t most) {
  std::set<std::int64_t> sums;
  for (std::int64_t x = 1; x * x < most; ++x) {
    for (std::int64_t y = 1; x * x + y * y <= most; ++y) sums.insert(x * x + y * y);
  }
  return std::ssize(sums);
}

std::int64_t points_within(std::int64_t most) {
  std::int64_t found = 0;
  for (std::int64_t x = -20; x <= 20; ++x) {
    found += count(-20, 20, [&](std::int64_t y) { return x * x + y * y <= most; });
  }
  return found;
}

TEST(suite_tasks, aime_answers_are_those_of_a_count) {
  auto const is_palindrome = [](std::int64_t n) {
    std::string const digits = std::to_string(n);
    return std::string(digits.rbegin(), digits.rend()) == digits;
  };
  std::vector<std::int64_t> const counted = {
      count(1, 1000, [](std::int64_t n) { return divisors(n) == 4; }),
      power_of_seven(),
      count(0, (1 << 12) - 1, [](std::int64_t set) { return (set & (set >> 1)) == 0; }),
      least_with_zeros(40),
      domino_tilings(12),
      triples_of_product(3600),
      sums_of_two_squares(1000),
      count(10000, 99999, [&](std::int64_t n) { return n % 11 == 0 && is_palindrome(n); }),
      100 * 3 + 4,  // six ways to throw 7, two to throw 11
      points_within(200)};
  std::vector<suite_task> const tasks = aime_suite();
  ASSERT_EQ(tasks.size(), counted.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    EXPECT_EQ(tasks[i].answer, counted[i]) << tasks[i].prompt;
    EXPECT_TRUE(tasks[i].thinking);
    EXPECT_EQ(tasks[i].effort, "medium");
    EXPECT_EQ(tasks[i].sampling.temperature, 0.6F);
    EXPECT_EQ(tasks[i].sampling.top_p, 0.95F);
    EXPECT_EQ(tasks[i].sampling.top_k, 20);
    EXPECT_EQ(tasks[i].sampling.presence_penalty, 1.0F);
  }
}

TEST(suite_tasks, the_last_integer_or_box_is_the_answer) {
  EXPECT_EQ(final_integer("so 12 and then 304."), 304);
  EXPECT_EQ(final_integer("\\boxed{17} after 5, \\boxed{292}, checked 3 times"), 292);
  EXPECT_EQ(final_integer("\\boxed{-4}"), -4);
  EXPECT_EQ(final_integer("7"), 7);
  EXPECT_EQ(final_integer("none"), std::nullopt);
  EXPECT_EQ(final_integer(""), std::nullopt);
  EXPECT_EQ(final_integer("\\boxed{x}"), std::nullopt);
  EXPECT_EQ(final_integer("99999999999999999999"), std::nullopt);
}

TEST(suite_tasks, rate_leaves_out_what_came_with_the_first_token) {
  EXPECT_DOUBLE_EQ(suite_tok_s(105, 4, 1000), 100.0);
  EXPECT_EQ(suite_tok_s(4, 4, 1000), 0.0);
  EXPECT_EQ(suite_tok_s(100, 4, 0), 0.0);
}

TEST(round_bytes, are_weights_keys_and_state) {
  round_bytes const bytes{1000, 100, 10, 4, 16, 50};
  EXPECT_EQ(bytes.of_round(0, 20, 1), 1000U + 20 * 4 * 16 + 2 * 50);
  EXPECT_EQ(bytes.of_round(3, 20, 1), 1000U + 3 * 100 + 10 + 20 * 4 * (16 + 3) + 3 * 50);
  EXPECT_EQ(bytes.of_round(0, 20, 4), 1000U + 4 * (20 * 4 * 16 + 2 * 50));
}

TEST(serving_profile, rounds_of_all_lanes_fit_one_pass) {
  ASSERT_EQ(serving_profiles().size(), 3U);
  for (serving_profile const& one : serving_profiles()) {
    EXPECT_LE(one.lanes * (one.draft_tokens + 1), 96) << one.name;
    EXPECT_LE(one.lanes * one.context, 262144) << one.name;  // planned for four V100 of 16 GB
    EXPECT_EQ(&find_profile(one.name), &one);
  }
  EXPECT_THROW(static_cast<void>(find_profile("short")), error);
}

TEST(draft_depth, is_a_number_up_to_the_most_or_auto) {
  auto const read = [](std::string const& word) -> std::optional<draft_depth> {
    draft_depth depth;
    if (!lexical_cast(word, depth)) return std::nullopt;
    return depth;
  };
  EXPECT_EQ(read("0"), (draft_depth{0, false}));
  EXPECT_EQ(read("15"), (draft_depth{15, false}));
  EXPECT_EQ(read("auto"), automatic_depth);
  for (auto const* const word : {"16", "-1", "3x", "Auto", ""}) EXPECT_FALSE(read(word)) << word;
  engine::request wanted;
  set_depth(wanted, automatic_depth, true);
  EXPECT_EQ(wanted.draft_tokens, 15);
  EXPECT_TRUE(wanted.chooses_depth);
  set_depth(wanted, automatic_depth, false);
  EXPECT_EQ(wanted.draft_tokens, 0);
  EXPECT_FALSE(wanted.chooses_depth);
}

}  // namespace
}  // namespace qwen38::cli
