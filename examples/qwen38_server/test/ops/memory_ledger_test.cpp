// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/memory_ledger.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace qwen38::ops::cuda {
namespace {

TEST(memory_ledger, rounds_up_and_counts_by_use) {
  memory_ledger ledger;
  EXPECT_EQ(ledger.take(1, "a"), 0U);
  EXPECT_EQ(ledger.take(257, "b"), 256U);
  EXPECT_EQ(ledger.take(256, "a"), 768U);
  EXPECT_EQ(ledger.taken(), 1024U);
  EXPECT_EQ(ledger.extent(), 1024U);
  EXPECT_EQ(ledger.by_use().at("a"), 512U);
  EXPECT_EQ(ledger.by_use().at("b"), 512U);
  ledger.give_back(256);
  EXPECT_EQ(ledger.taken(), 512U);
  EXPECT_FALSE(ledger.by_use().contains("b"));
}

TEST(memory_ledger, takes_the_first_hole_that_is_large_enough) {
  memory_ledger ledger;
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(ledger.take(1024, "x"), i * 1024);
  ledger.give_back(1024);
  EXPECT_EQ(ledger.take(2048, "x"), 5120U);  // too large for the hole
  ledger.give_back(2048);                    // one hole of 2048 now
  EXPECT_EQ(ledger.take(512, "x"), 1024U);
  EXPECT_EQ(ledger.take(1536, "x"), 1536U);
  EXPECT_EQ(ledger.take(256, "x"), 7168U);
}

TEST(memory_ledger, what_is_free_at_the_end_is_no_hole) {
  memory_ledger ledger;
  EXPECT_EQ(ledger.take(256, "x"), 0U);
  EXPECT_EQ(ledger.take(256, "x"), 256U);
  EXPECT_EQ(ledger.take(256, "x"), 512U);
  ledger.give_back(256);
  ledger.give_back(512);
  EXPECT_EQ(ledger.take(4096, "x"), 256U);
  EXPECT_EQ(ledger.extent(), 4352U);
}

TEST(memory_ledger, allocations_never_overlap) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    memory_ledger ledger;
    struct piece {
      std::size_t first, end;
    };
    std::vector<piece> held;
    std::size_t sum = 0;
    for (int step = 0; step < 400; ++step) {
      if (held.empty() || random() % 5 < 3) {
        std::size_t const bytes = 1 + random() % 5000;
        std::size_t const first = ledger.take(bytes, "x");
        std::size_t const rounded = (bytes + 255) / 256 * 256;
        ASSERT_EQ(first % memory_ledger::alignment, 0U) << "seed " << seed;
        for (piece const& one : held) {
          ASSERT_TRUE(first + rounded <= one.first || one.end <= first)
              << "seed " << seed << ", step " << step;
        }
        held.push_back({first, first + rounded});
        sum += rounded;
      } else {
        auto const which = static_cast<std::ptrdiff_t>(random() % held.size());
        sum -=
            held[static_cast<std::size_t>(which)].end - held[static_cast<std::size_t>(which)].first;
        ledger.give_back(held[static_cast<std::size_t>(which)].first);
        held.erase(held.begin() + which);
      }
      ASSERT_EQ(ledger.taken(), sum) << "seed " << seed;
      for (piece const& one : held) ASSERT_LE(one.end, ledger.extent()) << "seed " << seed;
    }
    while (!held.empty()) {
      ledger.give_back(held.back().first);
      held.pop_back();
    }
    EXPECT_EQ(ledger.take(1 << 20, "x"), 0U) << "seed " << seed << ": holes were not joined";
  }
}

}  // namespace
}  // namespace qwen38::ops::cuda
