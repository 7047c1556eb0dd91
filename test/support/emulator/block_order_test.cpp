// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/block_order.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace qpn::test {
namespace {

// Sequences that a launch reaches only by luck.

constexpr std::uintptr_t word = 64;
constexpr std::uintptr_t other_word = 68;

/// Thread 0 of a CTA that has met no barrier.
lane_moment first_thread_of(int block) {
  return {block, 0, 1, 1, 1};
}

class emulator_block_order : public testing::Test {
 protected:
  /// Block 0 stores and passes a fence.
  void SetUp() override { order.fence(first_thread_of(0)); }

  [[nodiscard]] bool seen_by(int block) const {
    return order.is_before({0, 0, 0}, first_thread_of(block));
  }

  block_order order{4, 32};
};

TEST_F(emulator_block_order, an_earlier_atomic_of_the_reader_does_not_count) {
  order.atomic(first_thread_of(1), word);
  order.atomic(first_thread_of(2), word);
  order.atomic(first_thread_of(1), word);  // learns from block 2, which knows nothing
  order.atomic(first_thread_of(0), word);
  EXPECT_FALSE(seen_by(1));
  EXPECT_FALSE(seen_by(3));
  order.atomic(first_thread_of(1), word);
  EXPECT_TRUE(seen_by(1));
}

TEST_F(emulator_block_order, what_is_brought_later_does_not_count) {
  order.atomic(first_thread_of(0), word);
  order.atomic(first_thread_of(1), other_word);
  order.atomic(first_thread_of(2), other_word);  // before block 1 knows
  order.atomic(first_thread_of(1), word);
  order.atomic(first_thread_of(1), other_word);
  EXPECT_TRUE(seen_by(1));
  EXPECT_FALSE(seen_by(2));
  order.atomic(first_thread_of(3), other_word);
  EXPECT_TRUE(seen_by(3));
}

TEST_F(emulator_block_order, a_lane_brings_only_what_it_knows) {
  order.atomic(first_thread_of(0), word);
  order.atomic(first_thread_of(1), word);
  lane_moment other_lane = first_thread_of(1);
  other_lane.thread = 5;
  order.atomic(other_lane, other_word);
  order.atomic(first_thread_of(2), other_word);
  EXPECT_FALSE(seen_by(2));
  // The same after a sync_warp of block 1.
  other_lane.now = other_lane.warp_start = 2;
  order.atomic(other_lane, other_word);
  order.atomic(first_thread_of(2), other_word);
  EXPECT_TRUE(seen_by(2));
}

TEST_F(emulator_block_order, words_may_bring_each_other) {
  for (int turn = 0; turn < 3; ++turn) {
    for (int block = 1; block < 3; ++block) {
      order.atomic(first_thread_of(block), word);
      order.atomic(first_thread_of(block), other_word);
    }
  }
  EXPECT_FALSE(seen_by(1));
  EXPECT_FALSE(seen_by(2));
}

}  // namespace
}  // namespace qpn::test
