// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace qwen38::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

scheduler::time_point at(std::int64_t ms) {
  return scheduler::time_point(milliseconds(ms));
}

std::vector<std::uint64_t> chunks_of_a_turn(scheduler& plan) {
  std::vector<std::uint64_t> out;
  plan.begin_turn();
  while (auto const ticket = plan.next_chunk()) out.push_back(*ticket);
  return out;
}

scheduler with_running(std::size_t count) {
  scheduler plan({.lanes = 8, .queue_limit = 8});
  for (std::uint64_t ticket = 1; ticket <= count; ++ticket) {
    plan.enqueue(ticket, at(0));
    plan.start(at(0));
  }
  return plan;
}

TEST(scheduler_queue, is_first_come_first_served_and_bounded) {
  scheduler plan({.lanes = 2, .queue_limit = 1});
  EXPECT_FALSE(plan.next());
  for (std::uint64_t ticket : {5U, 6U, 7U}) {
    EXPECT_FALSE(plan.full());
    plan.enqueue(ticket, at(0));
  }
  EXPECT_TRUE(plan.full());
  EXPECT_EQ(plan.next(), 5U);
  plan.start(at(0));
  EXPECT_TRUE(plan.full());
  EXPECT_EQ(plan.next(), 6U);
  plan.start(at(0));
  EXPECT_FALSE(plan.next()) << "no lane is free";
  EXPECT_EQ(plan.running(), 2U);
  EXPECT_EQ(plan.waiting(), 1U);
  plan.leave(6, at(1), true);
  EXPECT_FALSE(plan.full());
  EXPECT_EQ(plan.next(), 7U);
  plan.leave(7, at(1), false);
  EXPECT_FALSE(plan.next());
  EXPECT_EQ(plan.waiting(), 0U);
}

TEST(scheduler_prefill, each_request_does_a_chunk_while_none_decodes) {
  scheduler plan = with_running(3);
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(scheduler_prefill, the_oldest_alone_does_a_chunk_while_one_decodes) {
  scheduler plan = with_running(4);
  plan.prefilled(1);
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{2}));
  plan.prefilled(2);
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{3}));
  plan.leave(3, at(0), false);
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{4}));
  plan.prefilled(4);
  EXPECT_TRUE(chunks_of_a_turn(plan).empty());
}

TEST(scheduler_prefill, a_first_token_ends_the_turns_chunks) {
  scheduler plan = with_running(4);
  plan.begin_turn();
  EXPECT_EQ(plan.next_chunk(), 1U);
  EXPECT_EQ(plan.next_chunk(), 2U);
  plan.prefilled(2);
  EXPECT_FALSE(plan.next_chunk());
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{1}));
  plan.leave(2, at(0), true);
  EXPECT_EQ(chunks_of_a_turn(plan), (std::vector<std::uint64_t>{1, 3, 4}));
}

TEST(scheduler_deadlines, end_what_waits_too_long_and_what_takes_too_long) {
  scheduler plan({.lanes = 1,
                  .queue_limit = 8,
                  .queue_timeout = milliseconds(100),
                  .request_timeout = milliseconds(250)});
  plan.enqueue(1, at(0));
  plan.start(at(0));
  plan.enqueue(2, at(50));
  plan.enqueue(3, at(51));
  EXPECT_TRUE(plan.overdue(at(149)).empty());
  auto const check = [&](std::int64_t now,
                         std::vector<std::pair<std::uint64_t, finish_reason>> expected) {
    std::vector<std::pair<std::uint64_t, finish_reason>> got;
    for (auto const& one : plan.overdue(at(now))) got.emplace_back(one.ticket, one.reason);
    EXPECT_EQ(got, expected) << now;
  };
  check(150, {{2, finish_reason::queue_timeout}});
  check(151, {{2, finish_reason::queue_timeout}, {3, finish_reason::queue_timeout}});
  check(250, {{1, finish_reason::deadline},
              {2, finish_reason::queue_timeout},
              {3, finish_reason::queue_timeout}});
  check(300, {{1, finish_reason::deadline},
              {2, finish_reason::deadline},
              {3, finish_reason::queue_timeout}});
}

TEST(scheduler_deadlines, zero_means_none) {
  scheduler plan({.lanes = 1, .queue_limit = 8});
  plan.enqueue(1, at(0));
  plan.start(at(0));
  plan.enqueue(2, at(0));
  EXPECT_TRUE(plan.overdue(at(1'000'000'000)).empty());
}

TEST(scheduler_retry, follows_the_measured_time_and_the_queue) {
  scheduler plan({.lanes = 4, .queue_limit = 64});
  EXPECT_EQ(plan.retry_after_s(), 1) << "nothing measured";
  auto const run = [&](std::uint64_t ticket, std::int64_t ms, bool answered) {
    plan.enqueue(ticket, at(0));
    plan.start(at(1000));
    plan.leave(ticket, at(1000 + ms), answered);
  };
  run(1, 8000, true);
  EXPECT_EQ(plan.retry_after_s(), 2);  // 8 s / 4 lanes
  run(2, 500'000, false);
  EXPECT_EQ(plan.retry_after_s(), 2) << "what was cut short says nothing";
  for (std::uint64_t ticket = 10; ticket < 17; ++ticket) plan.enqueue(ticket, at(0));
  EXPECT_EQ(plan.retry_after_s(), 16);  // eight in four lanes
  for (std::uint64_t ticket = 17; ticket < 60; ++ticket) plan.enqueue(ticket, at(0));
  EXPECT_EQ(plan.retry_after_s(), 60);
}

TEST(scheduler_retry, forgets_old_times_little_by_little) {
  scheduler plan({.lanes = 1, .queue_limit = 64});
  for (std::uint64_t ticket = 1; ticket < 100; ++ticket) {
    plan.enqueue(ticket, at(0));
    plan.start(at(0));
    plan.leave(ticket, at(ticket < 20 ? 50'000 : 3'000), true);
    if (ticket == 19) {
      EXPECT_EQ(plan.retry_after_s(), 50);
    }
    if (ticket == 20) {
      EXPECT_EQ(plan.retry_after_s(), 45);
    }
  }
  EXPECT_EQ(plan.retry_after_s(), 4);
}

}  // namespace
}  // namespace qwen38::engine
