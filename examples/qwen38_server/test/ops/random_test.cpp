// SPDX-License-Identifier: Apache-2.0
#include "ops/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <set>

namespace qwen38::ops {
namespace {

using words4 = std::array<std::uint32_t, 4>;

words4 philox(philox_words const& counter, std::uint32_t key0, std::uint32_t key1) {
  return std::to_array(philox4x32(counter, key0, key1).w);
}

// The known-answer vectors that the authors publish with Random123 (kat_vectors, philox4x32 10).
TEST(random_philox4x32, gives_the_published_answers) {
  EXPECT_EQ(philox({{0, 0, 0, 0}}, 0, 0), (words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
            (words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
            (words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(random_bits, places_position_purpose_and_seed_in_counter_and_key) {
  std::uint64_t const seed = 0x299f31d0a4093822;
  std::int64_t const position = 0x05a308d3243f6a88;
  words4 const words = philox({{0x243f6a88, 0x05a308d3, 1, 0}}, 0xa4093822, 0x299f31d0);
  EXPECT_EQ(random_bits(seed, position, random_purpose::next_token),
            std::uint64_t{words[1]} << 32 | words[0]);
}

TEST(random_bits, differ_for_each_seed_and_position) {
  std::set<std::uint64_t> seen;
  std::array<std::uint64_t, 5> const seeds = {0, 1, std::uint64_t{1} << 32, ~std::uint64_t{0}, 42};
  for (std::uint64_t seed : seeds) {
    for (std::int64_t position = 0; position < 2000; ++position) {
      seen.insert(random_bits(seed, position, random_purpose::next_token));
    }
  }
  EXPECT_EQ(seen.size(), 5U * 2000U);
}

TEST(random_bits, set_each_bit_half_of_the_time) {
  constexpr int draws = 20000;
  std::array<int, 64> ones{};
  for (int position = 0; position < draws; ++position) {
    std::uint64_t const bits = random_bits(7, position, random_purpose::next_token);
    for (std::size_t bit = 0; bit < ones.size(); ++bit) ones[bit] += (bits >> bit & 1) != 0 ? 1 : 0;
  }
  // Five standard deviations of 20000 coin flips.
  for (std::size_t bit = 0; bit < ones.size(); ++bit) {
    EXPECT_NEAR(ones[bit], draws / 2, 354) << "bit " << bit;
  }
}

TEST(random_scale_bits, covers_the_range_and_stays_below_the_limit) {
  std::uint64_t const most = ~std::uint64_t{0};
  for (std::uint64_t limit : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                              std::uint64_t{1} << 44, (std::uint64_t{1} << 63) + 12345}) {
    EXPECT_EQ(scale_bits(0, limit), 0U);
    EXPECT_EQ(scale_bits(most, limit), limit - 1);
  }
  EXPECT_EQ(scale_bits(std::uint64_t{1} << 63, 10), 5U);
  EXPECT_EQ(scale_bits((std::uint64_t{1} << 63) - 1, 10), 4U);
}

}  // namespace
}  // namespace qwen38::ops
