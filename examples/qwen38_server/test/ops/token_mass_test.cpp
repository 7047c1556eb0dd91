// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/token_mass.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace qwen38::ops::cpu {
namespace {

// Few distinct logits, so that ties are everywhere; masses do not follow them, which only makes the
// order matter more.
std::vector<candidate> random_candidates(std::mt19937_64& random, std::size_t count) {
  std::vector<candidate> out(count);
  std::uint64_t const distinct = 1 + random() % (2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i].id = static_cast<std::int32_t>(i);
    out[i].logit = static_cast<float>(random() % distinct);
    out[i].mass = random() % 4 == 0 ? 0 : random() % (full_mass + 1);
  }
  std::ranges::shuffle(out, random);
  return out;
}

TEST(token_mass_find_mass, agrees_with_a_walk_over_the_sorted_list) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    std::size_t const count = 1 + random() % (seed % 10 == 0 ? 3000 : 100);
    std::vector<candidate> candidates = random_candidates(random, count);
    candidates[random() % count].mass += 1;
    std::vector<candidate> sorted = candidates;
    std::ranges::sort(sorted, [](candidate const& a, candidate const& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
    std::uint64_t total = 0;
    for (candidate const& one : sorted) total += one.mass;
    for (std::uint64_t point : {std::uint64_t{0}, total - 1, random() % total, random() % total}) {
      std::size_t at = 0;
      std::uint64_t through = sorted[0].mass;
      while (through <= point) through += sorted[++at].mass;
      mass_point const found = find_mass(candidates, point);
      ASSERT_EQ(found.id, sorted[at].id) << "seed " << seed << " point " << point;
      ASSERT_EQ(found.through, through) << "seed " << seed << " point " << point;
    }
  }
}

TEST(token_mass_find_mass, hits_both_sides_of_each_border) {
  std::vector<candidate> candidates = {{1, 7, 5}, {2, 9, 3}, {1, 4, 2}, {0, 1, 1}};
  // In order: id 9 (3), id 4 (2), id 7 (5), id 1 (1).
  std::vector<std::int32_t> const owner = {9, 9, 9, 4, 4, 7, 7, 7, 7, 7, 1};
  for (std::size_t point = 0; point < owner.size(); ++point) {
    EXPECT_EQ(find_mass(candidates, point).id, owner[point]) << "point " << point;
  }
}

TEST(token_mass_find_mass, adds_the_most_candidates_without_overflow) {
  std::vector<candidate> candidates(static_cast<std::size_t>(max_candidates));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i] = {0, static_cast<std::int32_t>(i), full_mass};
  }
  std::uint64_t const total = std::uint64_t{1} << 63;
  mass_point const last = find_mass(candidates, total - 1);
  EXPECT_EQ(last.id, static_cast<std::int32_t>(max_candidates - 1));
  EXPECT_EQ(last.through, total);
}

TEST(token_mass, is_the_power_of_two_at_every_distance) {
  EXPECT_EQ(token_mass(0), full_mass);
  EXPECT_EQ(token_mass(full_reach), 1U);
  EXPECT_EQ(token_mass(full_reach - 1), 1U);
  std::mt19937_64 random(5);
  for (int i = 0; i < 200000; ++i) {
    std::uint64_t const distance = random() % (full_reach + 1);
    long double const wanted =
        std::exp2(44.0L - std::ldexp(static_cast<long double>(distance), -48));
    ASSERT_NEAR(static_cast<double>(token_mass(distance)), static_cast<double>(wanted), 1.0)
        << "distance " << distance;
  }
  for (int whole = 0; whole <= 44; ++whole) {
    EXPECT_EQ(token_mass(static_cast<std::uint64_t>(whole) << 48), full_mass >> whole);
  }
}

TEST(token_distance, is_log2_of_the_share_and_ends_beyond_the_reach) {
  EXPECT_EQ(token_distance(3, 3, 0.7F), 0U);
  EXPECT_NEAR(static_cast<double>(token_distance(1, 3, 2)),
              std::ldexp(std::log2(std::exp(1.0)), 48), 1.0);
  EXPECT_EQ(token_distance(-1e30F, 3, 1), full_reach + 1);
  EXPECT_EQ(token_distance(-std::numeric_limits<float>::infinity(), 3, 1), full_reach + 1);
}

TEST(token_choice_wanted_mass, is_the_share_rounded_up_and_never_nothing) {
  EXPECT_EQ(wanted_mass(0, 100), 1U);
  EXPECT_EQ(wanted_mass(0.5F, 100), 50U);
  EXPECT_EQ(wanted_mass(0.5F, 101), 51U);
  EXPECT_EQ(wanted_mass(1, 101), 101U);
}

}  // namespace
}  // namespace qwen38::ops::cpu
