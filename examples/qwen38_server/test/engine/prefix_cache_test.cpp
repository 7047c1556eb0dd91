// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace qwen38::engine {
namespace {

using ids = std::vector<std::int32_t>;
constexpr std::int32_t page_tokens = 4;

ids counted(std::size_t count, std::int32_t from = 0) {
  ids out(count);
  std::iota(out.begin(), out.end(), from);
  return out;
}
ids joined(ids first, ids const& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

struct store {
  explicit store(std::int32_t places, std::int32_t pages = 64)
      : pool(pages), cache(pool, page_tokens, places) {}

  /// As a lane does that came to a border: whole blocks, in pages of its own.
  std::vector<std::int32_t> take(ids const& tokens) {
    std::vector<std::int32_t> pages;
    for (std::size_t i = 0; i < tokens.size(); i += page_tokens) pages.push_back(pool.take());
    return pages;
  }
  bool add(ids const& tokens) {
    auto const place = cache.place_for(tokens);
    if (!place) return false;
    auto const pages = take(tokens);
    cache.insert(tokens, pages, *place);
    for (std::int32_t page : pages) pool.release(page);
    return true;
  }
  [[nodiscard]] std::int64_t found(ids const& tokens) const {
    return cache.find(joined(tokens, {-1})).tokens;
  }

  page_pool pool;
  prefix_cache cache;
};

TEST(prefix_cache, finds_the_longest_beginning_that_leaves_a_token_to_do) {
  store s(4);
  EXPECT_EQ(s.cache.find(counted(20)).tokens, 0);
  ASSERT_TRUE(s.add(counted(8)));
  ASSERT_TRUE(s.add(counted(16)));
  std::int64_t const expected[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8, 16, 16};
  for (std::size_t length = 1; length < std::size(expected); ++length) {
    auto const got = s.cache.find(counted(length));
    EXPECT_EQ(got.tokens, expected[length]) << "length " << length;
    EXPECT_EQ(std::ssize(got.pages) * page_tokens, got.tokens) << "length " << length;
    EXPECT_EQ(got.place >= 0, got.tokens > 0) << "length " << length;
    EXPECT_EQ(got.known, std::min<std::int64_t>((std::ssize(counted(length)) - 1) / 4 * 4, 16));
  }
}

TEST(prefix_cache, compares_every_id) {
  store s(4);
  ids const tokens = counted(12);
  s.add(tokens);
  EXPECT_EQ(s.found(tokens), 12);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ids other = tokens;
    other[i] += 100;
    auto const got = s.cache.find(joined(other, {-1}));
    EXPECT_EQ(got.tokens, 0) << "id " << i;
    EXPECT_EQ(got.known, static_cast<std::int64_t>(i) / 4 * 4) << "id " << i;
  }
}

TEST(prefix_cache, holds_the_pages_of_the_first_that_brought_a_block) {
  store s(4);
  ids const first = joined(counted(8), counted(4, 50));
  ids const second = joined(counted(8), counted(4, 70));
  auto const pages = s.take(first);
  s.cache.insert(first, pages, *s.cache.place_for(first));
  auto const others = s.take(second);
  s.cache.insert(second, others, *s.cache.place_for(second));
  auto const got = s.cache.find(joined(second, {-1}));
  EXPECT_EQ(got.pages, (std::vector<std::int32_t>{pages[0], pages[1], others[2]}));
  EXPECT_EQ(s.cache.pages_alone(), 0);
  for (std::int32_t page : pages) s.pool.release(page);
  for (std::int32_t page : others) s.pool.release(page);
  EXPECT_EQ(s.cache.pages_alone(), 4);
  EXPECT_EQ(s.pool.free(), 60);
  EXPECT_FALSE(s.add(first)) << "the state is there already";
}

TEST(prefix_cache, gives_up_blocks_without_a_snapshot_at_or_below_them) {
  store s(3);
  ids const trunk = counted(8);
  s.add(trunk);
  s.add(joined(trunk, counted(8, 50)));
  s.add(joined(trunk, counted(4, 70)));
  EXPECT_EQ(s.cache.pages_alone(), 5);
  EXPECT_EQ(s.cache.reclaimable(), 5);
  s.cache.evict();  // the shortest of those that free a page; the trunk frees none
  EXPECT_EQ(s.cache.pages_alone(), 4);
  EXPECT_EQ(s.found(trunk), 8);
  EXPECT_EQ(s.cache.places_used(), 2);
  s.cache.evict();
  EXPECT_EQ(s.cache.pages_alone(), 2);
  s.cache.evict();
  EXPECT_EQ(s.cache.pages_alone(), 0);
  EXPECT_EQ(s.cache.places_used(), 0);
  EXPECT_EQ(s.pool.free(), 64);
  EXPECT_THROW(s.cache.evict(), error);
}

TEST(prefix_cache, never_gives_up_for_pages_what_a_lane_still_holds) {
  store s(3);
  ids const used = counted(8);
  s.add(used);
  s.add(counted(12, 100));
  auto const held = s.cache.find(joined(used, {-1})).pages;
  for (std::int32_t page : held) s.pool.share(page);
  EXPECT_EQ(s.cache.reclaimable(), 3);
  s.cache.evict();
  EXPECT_EQ(s.found(used), 8);
  EXPECT_EQ(s.found(counted(12, 100)), 0);
  EXPECT_THROW(s.cache.evict(), error);
  for (std::int32_t page : held) s.pool.release(page);
  EXPECT_EQ(s.cache.reclaimable(), 2);
}

TEST(prefix_cache, without_places_keeps_nothing) {
  store s(0);
  EXPECT_FALSE(s.add(counted(8)));
  EXPECT_EQ(s.cache.places(), 0);
  EXPECT_EQ(s.pool.free(), 64);
}

TEST(prefix_cache, a_place_given_back_can_be_taken_again) {
  store s(1);
  auto const place = s.cache.place_for(counted(4));
  ASSERT_TRUE(place);
  EXPECT_EQ(s.cache.places_lent(), 1);
  EXPECT_EQ(s.cache.places_used(), 0);
  EXPECT_FALSE(s.cache.place_for(counted(8))) << "taken, but nothing to give up yet";
  s.cache.give_back(*place);
  EXPECT_EQ(s.cache.places_lent(), 0);
  EXPECT_TRUE(s.add(counted(8)));
}

// 40 tokens stay through one-shots of 8 until these add up to more than 40 in the one place.
TEST(prefix_cache, a_conversation_outlasts_side_requests_that_add_up_to_less) {
  store s(1);
  s.add(counted(40));
  for (std::int32_t side = 1; side < 5; ++side) {
    EXPECT_FALSE(s.add(counted(8, 1000 * side))) << "side request " << side;
    EXPECT_EQ(s.found(counted(40)), 40) << "side request " << side;
  }
  EXPECT_TRUE(s.add(counted(8, 9000)));
  EXPECT_EQ(s.found(counted(40)), 0);
}

TEST(prefix_cache, use_makes_an_entry_as_good_as_new) {
  store s(2);
  s.add(counted(24));
  for (std::int32_t side = 1; side < 100; ++side) {
    s.add(counted(8, 1000 * side));
    ASSERT_EQ(s.found(counted(24)), 24) << "side request " << side;
    if (side % 2 == 0) s.cache.use(s.cache.find(counted(25)).place);
  }
}

TEST(prefix_cache, of_equal_worth_the_one_not_used_for_longer_goes) {
  store s(3);
  for (std::int32_t i = 0; i < 3; ++i) s.add(counted(8, 100 * i));
  s.cache.use(s.cache.find(counted(9, 0)).place);
  EXPECT_TRUE(s.add(counted(8, 900)));
  EXPECT_EQ(s.found(counted(8, 0)), 8);
  EXPECT_EQ(s.found(counted(8, 100)), 0);
  EXPECT_EQ(s.found(counted(8, 200)), 8);
}

/// The same by definition: a list of beginnings.
struct plain_cache {
  std::map<ids, std::int32_t> snapshots;

  [[nodiscard]] std::int64_t tokens(ids const& wanted) const {
    std::int64_t best = 0;
    for (auto const& [one, place] : snapshots) {
      if (one.size() < wanted.size() && std::equal(one.begin(), one.end(), wanted.begin()))
        best = std::max(best, std::ssize(one));
    }
    return best;
  }
  [[nodiscard]] std::set<ids> blocks() const {
    std::set<ids> out;
    for (auto const& [one, place] : snapshots) {
      for (std::size_t end = page_tokens; end <= one.size(); end += page_tokens)
        out.emplace(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return out;
  }
};

// Two ids only, so that beginnings meet and part everywhere.
TEST(prefix_cache, equals_a_list_of_beginnings_over_random_histories) {
  std::int64_t hits = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 generator(seed);
    auto const random = [&] { return static_cast<std::uint32_t>(generator()); };
    store s(1 + static_cast<std::int32_t>(random() % 6), 200);
    plain_cache plain;
    std::vector<std::vector<std::int32_t>> lanes;  // pages that lanes share
    for (int i = 0; i < 300; ++i) {
      ids tokens(page_tokens * (1 + random() % 5));
      for (auto& id : tokens) id = static_cast<std::int32_t>(random() % 16 == 0);
      auto const got = s.cache.find(joined(tokens, {-1}));
      ASSERT_EQ(got.tokens, plain.tokens(joined(tokens, {-1})))
          << "seed " << seed << ", step " << i;
      hits += got.tokens > 0 ? 1 : 0;
      std::uint32_t const what = random() % 8;
      if (what < 5) {
        s.add(tokens);
      } else if (what == 5) {
        for (std::int32_t page : got.pages) s.pool.share(page);
        lanes.push_back(got.pages);
      } else if (what == 6 && !lanes.empty()) {
        for (std::int32_t page : lanes.back()) s.pool.release(page);
        lanes.pop_back();
      } else if (s.cache.reclaimable() > 0) {
        std::int64_t const before = s.pool.free();
        s.cache.evict();
        ASSERT_GT(s.pool.free(), before) << "seed " << seed << ", step " << i;
      }
      // What is still there is whatever can be found whole.
      if (what < 5) plain.snapshots[tokens] = 0;
      std::erase_if(plain.snapshots,
                    [&](auto const& one) { return s.found(one.first) != std::ssize(one.first); });
      ASSERT_EQ(s.cache.places_used(), std::ssize(plain.snapshots)) << "seed " << seed;
      std::set<std::int32_t> held;
      for (auto const& lane : lanes) held.insert(lane.begin(), lane.end());
      std::int64_t const cached = std::ssize(plain.blocks());
      std::int64_t const alone = s.cache.pages_alone();
      ASSERT_LE(alone, cached);
      ASSERT_EQ(s.pool.free(), 200 - alone - std::ssize(held)) << "seed " << seed << ", step " << i;
      if (lanes.empty()) {
        ASSERT_EQ(alone, cached) << "seed " << seed << ", step " << i;
        ASSERT_EQ(s.cache.reclaimable(), cached) << "seed " << seed << ", step " << i;
      }
    }
    std::int64_t const promised = s.cache.reclaimable();
    std::int64_t const before = s.pool.free();
    while (s.cache.reclaimable() > 0) s.cache.evict();
    EXPECT_EQ(s.pool.free() - before, promised) << "seed " << seed;
  }
  EXPECT_GT(hits, 1000);
}

}  // namespace
}  // namespace qwen38::engine
