// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

namespace qwen38::engine {
namespace {

using ids = std::vector<std::int32_t>;

model::causal_lm::limits limits_of(std::int32_t pages, std::int32_t places, std::int32_t chunk = 4,
                                   std::int32_t page_tokens = 4) {
  model::causal_lm::limits limits;
  limits.prefill_chunk = chunk;
  limits.page_tokens = page_tokens;
  limits.kv_pages = pages;
  limits.snapshots = places;
  return limits;
}

ids counted(std::size_t count, std::int32_t from = 0) {
  ids out(count);
  std::iota(out.begin(), out.end(), from);
  return out;
}

/// Prefills the whole prompt as the engine does; the borders at which a state was kept.
std::vector<std::int64_t> prefill(sequence_memory& memory, reservation const& held,
                                  ids const& prompt, std::int64_t chunk) {
  std::vector<std::int64_t> kept;
  for (std::int64_t position = held.cached; position < std::ssize(prompt);) {
    position = std::min((position / chunk + 1) * chunk, std::ssize(prompt));
    if (auto const place = memory.place_at(held, prompt, position)) {
      memory.remember(held, prompt, position, *place);
      kept.push_back(position);
    }
  }
  return kept;
}

TEST(sequence_memory, reserves_pages_for_prompt_and_answer) {
  sequence_memory memory(limits_of(10, 0));
  std::int64_t const expected[] = {0, 1, 1, 1, 1, 2, 2, 2, 2, 3};
  for (std::int64_t tokens = 1; tokens < std::ssize(expected); ++tokens)
    EXPECT_EQ(memory.pages_for(tokens), expected[tokens]);
  auto held = memory.reserve(counted(7), 9);
  ASSERT_TRUE(held);
  EXPECT_EQ(std::set(held->pages.begin(), held->pages.end()).size(), 4U);
  EXPECT_EQ(memory.get_counts().pages_reserved, 4);
  auto more = memory.reserve(counted(20), 4);
  ASSERT_TRUE(more);
  EXPECT_EQ(memory.get_counts().pages_reserved, 10);
  EXPECT_FALSE(memory.reserve(counted(1), 1));
  memory.release(*held);
  EXPECT_TRUE(held->pages.empty());
  EXPECT_EQ(memory.get_counts().pages_reserved, 6);
  EXPECT_TRUE(memory.reserve(counted(8), 8));
}

TEST(sequence_memory, keeps_the_last_border_before_the_prompts_last_token) {
  for (std::size_t length = 1; length < 20; ++length) {
    sequence_memory memory(limits_of(10, 3));
    ids const prompt = counted(length);
    auto held = *memory.reserve(prompt, 1);
    auto const kept = prefill(memory, held, prompt, 4);
    std::int64_t const border = (std::ssize(prompt) - 1) / 4 * 4;
    EXPECT_EQ(kept, border > 0 ? std::vector{border} : std::vector<std::int64_t>{}) << length;
    memory.release(held);
    EXPECT_EQ(memory.get_counts().pages_cached, border / 4) << length;
    auto again = *memory.reserve(prompt, 1);
    EXPECT_EQ(again.cached, border) << length;
    EXPECT_EQ(again.snapshot >= 0, border > 0) << length;
    EXPECT_EQ(again.branch, 0) << length;
    EXPECT_EQ(memory.get_counts().pages_reserved, memory.pages_for(std::ssize(prompt) + 1));
  }
}

TEST(sequence_memory, keeps_the_border_where_a_prompt_leaves_what_is_known) {
  sequence_memory memory(limits_of(40, 8));
  auto const prompt = [](std::int32_t tail) {
    ids out = counted(14);  // three whole blocks are shared
    for (std::int32_t i = 0; i < 9; ++i) out.push_back(1000 * tail + i);
    return out;
  };
  for (std::int32_t tail = 1; tail <= 3; ++tail) {
    auto held = *memory.reserve(prompt(tail), 1);
    EXPECT_EQ(held.cached, tail == 3 ? 12 : 0);
    EXPECT_EQ(held.branch, tail == 2 ? 12 : 0);
    auto const kept = prefill(memory, held, prompt(tail), 4);
    EXPECT_EQ(kept,
              tail == 2 ? (std::vector<std::int64_t>{12, 20}) : std::vector<std::int64_t>{20});
    memory.release(held);
  }
  EXPECT_EQ(memory.get_counts().pages_cached, 3 + 3 * 2);
}

TEST(sequence_memory, keeps_states_on_chunk_borders_only_though_pages_are_smaller) {
  sequence_memory memory(limits_of(40, 8, 12, 4));
  ids first = counted(30);
  auto held = *memory.reserve(first, 1);
  EXPECT_EQ(prefill(memory, held, first, 12), (std::vector<std::int64_t>{24}));
  memory.release(held);
  ids second = counted(30);
  second[22] = 999;  // known to 20: the chunk border below is 12
  held = *memory.reserve(second, 1);
  EXPECT_EQ(held.branch, 12);
  EXPECT_EQ(prefill(memory, held, second, 12), (std::vector<std::int64_t>{12, 24}));
  memory.release(held);
}

TEST(sequence_memory, any_border_is_kept_for_a_retry) {
  sequence_memory memory(limits_of(10, 3));
  ids const prompt = counted(30);
  auto held = *memory.reserve(prompt, 1);
  EXPECT_FALSE(memory.place_at(held, prompt, 8));
  EXPECT_FALSE(memory.place_at_end(held, prompt, 0));
  EXPECT_FALSE(memory.place_at_end(held, prompt, 30));
  auto const place = memory.place_at_end(held, prompt, 8);
  ASSERT_TRUE(place);
  memory.remember(held, prompt, 8, *place);
  memory.release(held);
  held = *memory.reserve(prompt, 1);
  EXPECT_EQ(held.cached, 8);
  EXPECT_FALSE(memory.place_at_end(held, prompt, 8)) << "it is where the request began";
}

TEST(sequence_memory, a_reservation_that_does_not_fit_changes_nothing) {
  sequence_memory memory(limits_of(10, 3));
  ids const prompt = counted(17);
  auto held = *memory.reserve(prompt, 3);
  prefill(memory, held, prompt, 4);
  memory.release(held);
  auto const running = memory.reserve(counted(12, 500), 8);  // five pages
  ASSERT_TRUE(running);
  // Four cached pages and one free: six are not to be had, though the cache could give up all.
  EXPECT_FALSE(memory.reserve(counted(20, 700), 4));
  EXPECT_EQ(memory.get_counts().pages_cached, 4);
  // Nor two pages more than there are, though four of them are known.
  EXPECT_FALSE(memory.reserve(prompt, 11));
  EXPECT_EQ(memory.get_counts().pages_cached, 4);
  EXPECT_EQ(memory.get_counts().pages_reserved, 5);
  // Of the five pages of this one, four are shared.
  auto const warm = memory.reserve(prompt, 3);
  ASSERT_TRUE(warm);
  EXPECT_EQ(warm->cached, 16);
  EXPECT_EQ(memory.get_counts().pages_reserved, 10);
  EXPECT_EQ(memory.get_counts().pages_cached, 0);
}

TEST(sequence_memory, what_is_needed_is_given_up_but_never_what_is_shared_now) {
  sequence_memory memory(limits_of(8, 3));
  ids const kept = counted(9);
  ids const given = counted(9, 100);
  for (ids const& prompt : {kept, given}) {
    auto held = *memory.reserve(prompt, 1);
    prefill(memory, held, prompt, 4);
    memory.release(held);
  }
  EXPECT_EQ(memory.get_counts().pages_cached, 4);
  auto held = memory.reserve(kept, 23);  // all eight pages
  ASSERT_TRUE(held);
  EXPECT_EQ(held->cached, 8);
  EXPECT_EQ(memory.get_counts().places_used, 1);
  memory.release(*held);
  EXPECT_EQ(memory.reserve(kept, 1)->cached, 8);
}

}  // namespace
}  // namespace qwen38::engine
