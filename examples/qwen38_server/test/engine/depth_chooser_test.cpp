// SPDX-License-Identifier: Apache-2.0
#include "engine/depth_chooser.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include "test/engine/engine_fixture.hpp"

namespace qwen38::engine {
namespace {

constexpr std::size_t places = model::round_depths.size();

/// A text whose drafts are right with probability `share` each; the depths of its last rounds, on
/// average.
double settled_depth(double share, model::round_costs const& costs, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution right(share);
  depth_chooser chooser;
  double sum = 0;
  constexpr int rounds = 400;
  for (int i = 0; i < 2 * rounds; ++i) {
    // A lane that drafts nothing tries one draft at times (lane::plan_round).
    std::size_t const place = chooser.choose(costs, 1, 0, max_draft_tokens);
    int const k = std::max(model::round_depths[place], i % 16 == 0 ? 1 : 0);
    int accepted = 0;
    while (accepted < k && right(random)) ++accepted;
    chooser.observe(k, accepted);
    if (i >= rounds) sum += k;
  }
  return sum / rounds;
}

TEST(depth_chooser, drafts_deeper_where_more_is_accepted) {
  auto const costs = linear_costs(0.03, 0.02);
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    EXPECT_LT(settled_depth(0.01, costs, seed), 0.5) << "seed " << seed;
    double const middle = settled_depth(0.7, costs, seed);
    EXPECT_GT(middle, 2) << "seed " << seed;
    EXPECT_LT(middle, 8) << "seed " << seed;
    EXPECT_GT(settled_depth(0.99, costs, seed), 14) << "seed " << seed;
  }
}

TEST(depth_chooser, weighs_tokens_against_what_a_round_takes) {
  depth_chooser const fresh;
  // Shares of 0.8: 1, 1.8, 2.95, 4.16 and 4.86 tokens.
  EXPECT_EQ(fresh.choose(linear_costs(0.001, 0.001), 1, 0, 15), places - 1);
  EXPECT_EQ(fresh.choose(linear_costs(0.02, 0.02), 1, 0, 15), 3U);
  EXPECT_EQ(fresh.choose(linear_costs(0.1, 0.1), 1, 0, 15), 2U);
  EXPECT_EQ(fresh.choose(linear_costs(0.1, 2), 1, 0, 15), 0U);
}

TEST(depth_chooser, never_goes_beyond_the_most_wanted) {
  depth_chooser const fresh;
  for (int most = 0; most <= max_draft_tokens; ++most) {
    EXPECT_LE(model::round_depths[fresh.choose(linear_costs(0, 0), 1, 0, most)], most);
  }
}

TEST(depth_chooser, takes_the_shallower_of_equals) {
  model::round_costs costs;
  for (std::size_t i = 0; i < places; ++i) costs.of[i].points = {{1, i == 0 ? 1.0 : 1e9}};
  costs.of[1].points = {{1, 1.8}};
  EXPECT_EQ(depth_chooser().choose(costs, 1, 0, 15), 0U);
  costs.of[1].points = {{1, 1.7999}};
  EXPECT_EQ(depth_chooser().choose(costs, 1, 0, 15), 1U);
}

TEST(depth_chooser, tries_a_depth_again_once_shallower_ones_do_well) {
  auto const costs = linear_costs(0.02, 0.02);
  depth_chooser chooser;
  for (int i = 0; i < 200; ++i) chooser.observe(15, 1);
  EXPECT_LE(chooser.choose(costs, 1, 0, 15), 1U);
  int rounds = 0;
  for (; rounds < 500; ++rounds) {
    int const k = model::round_depths[chooser.choose(costs, 1, 0, 15)];
    if (k == 15) break;
    chooser.observe(k, k);
  }
  EXPECT_LT(rounds, 300);
}

TEST(depth_chooser, counts_lanes_and_live_context) {
  model::round_costs costs = linear_costs(0.05, 0.0);
  depth_chooser const fresh;
  std::size_t const alone = fresh.choose(costs, 1, 0, 15);
  EXPECT_LT(fresh.choose(costs, 6, 0, 15), alone);
  for (std::size_t i = alone; i < places; ++i) costs.of[i].ms_per_token = 0.01;
  EXPECT_LT(fresh.choose(costs, 1, 10000, 15), alone);
}

TEST(round_costs, lie_on_lines_between_lanes_and_add_up_over_passes) {
  model::round_costs costs;
  for (auto& one : costs.of) one.points = {{1, 10}, {4, 16}};
  costs.of[4].ms_per_token = 0.5;
  EXPECT_DOUBLE_EQ(costs.ms(0, 1, 100), 10);
  EXPECT_DOUBLE_EQ(costs.ms(0, 3, 0), 14);
  EXPECT_DOUBLE_EQ(costs.ms(0, 8, 0), 24);           // beyond
  EXPECT_DOUBLE_EQ(costs.ms(4, 6, 0), 20);           // 96 rows
  EXPECT_DOUBLE_EQ(costs.ms(4, 7, 2), 20 + 10 + 1);  // one lane in a second round
  costs.max_rows = 8;
  EXPECT_DOUBLE_EQ(costs.ms(4, 2, 0), 20);  // a pass that holds no lane whole
}

}  // namespace
}  // namespace qwen38::engine
