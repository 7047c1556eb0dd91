// SPDX-License-Identifier: Apache-2.0
#include "engine/page_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace qwen38::engine {
namespace {

TEST(page_pool, gives_each_page_once_until_all_its_holders_have_let_go) {
  page_pool pool(3);
  std::vector<std::int32_t> taken = {pool.take(), pool.take(), pool.take()};
  EXPECT_EQ(pool.free(), 0);
  EXPECT_THROW(static_cast<void>(pool.take()), error);
  pool.share(taken[1]);
  pool.release(taken[1]);
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.holders(taken[1]), 1);
  pool.release(taken[1]);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.take(), taken[1]);
  std::ranges::sort(taken);
  EXPECT_EQ(taken, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(page_pool, refuses_pages_that_nobody_holds) {
  page_pool pool(2);
  std::int32_t const page = pool.take();
  EXPECT_THROW(pool.release(page == 0 ? 1 : 0), error);
  EXPECT_THROW(pool.share(-1), error);
  EXPECT_THROW(pool.share(2), error);
  pool.release(page);
  EXPECT_THROW(pool.release(page), error);
  EXPECT_EQ(page_pool(0).free(), 0);
}

TEST(page_pool, counts_like_a_list_of_holders) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 generator(seed);
    auto const random = [&] { return static_cast<std::uint32_t>(generator()); };
    page_pool pool(17);
    std::vector<std::int32_t> held;  // a page once for each holder
    for (int i = 0; i < 2000; ++i) {
      std::uint32_t const what = random() % 3;
      if (what == 0 && pool.free() > 0) {
        std::int32_t const page = pool.take();
        ASSERT_EQ(std::ranges::count(held, page), 0) << "seed " << seed;
        held.push_back(page);
      } else if (!held.empty()) {
        std::size_t const i_held = random() % held.size();
        if (what == 1) {
          pool.share(held[i_held]);
          held.push_back(held[i_held]);
        } else {
          pool.release(held[i_held]);
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(i_held));
        }
      }
      std::int64_t distinct = 0;
      for (std::int32_t page = 0; page < 17; ++page) {
        ASSERT_EQ(pool.holders(page), std::ranges::count(held, page)) << "seed " << seed;
        distinct += pool.holders(page) > 0 ? 1 : 0;
      }
      ASSERT_EQ(pool.free(), 17 - distinct) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace qwen38::engine
