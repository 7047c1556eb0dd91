// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "support/error.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

// Who runs when, and who has to wait or leave.
namespace qwen38::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

test::toy_options toy(std::int32_t lanes) {
  test::toy_options options;
  options.limits.max_lanes = lanes;
  return options;
}

/// A clock that the test moves.
struct set_clock {
  std::shared_ptr<std::atomic<std::int64_t>> ms = std::make_shared<std::atomic<std::int64_t>>(0);
  scheduler::time_point operator()() const { return scheduler::time_point(milliseconds(*ms)); }
};

struct timed_engine {
  explicit timed_engine(test::toy_options const& wanted, engine_options limits = {})
      : options(wanted), model(options), loop(model, byte_tokenizer(), with_clock(limits)) {}
  ~timed_engine() {
    run_to_end(loop);
    expect_idle(loop);
  }
  engine_options with_clock(engine_options limits) const {
    limits.now = clock;
    return limits;
  }
  std::shared_ptr<recorder> submit(request const& wanted) {
    auto sink = std::make_shared<recorder>();
    latest = loop.submit(wanted, sink);
    return sink;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) loop.step();
  }

  set_clock clock;
  test::toy_options options;
  test::toy_model model;
  engine loop;
  std::uint64_t latest = 0;
};

// Eight lanes, prompts of many chunks that come at any time: a stream that has begun never waits
// for more than one chunk before its next round.
TEST(engine_prefill, holds_a_running_stream_up_by_one_chunk_at_most) {
  test::toy_options options = toy(8);
  int chunks = 0;
  std::vector<int> chunks_before_round;
  options.on_forward = [&](std::span<model::sequence_rows const> batch) {
    if (batch[0].position % 64 == 0 && batch.size() == 1 && batch[0].ids.size() > 1 &&
        !batch[0].tentative) {
      ++chunks;
    } else {
      chunks_before_round.push_back(std::exchange(chunks, 0));
    }
  };
  timed_engine driven(options);
  auto const running = driven.submit(greedy_request(5, 300, 0));
  driven.steps(2);
  EXPECT_GE(std::ssize(running->all.ids), 2);
  std::vector<std::shared_ptr<recorder>> others;
  std::vector<request> wanted;
  chunks_before_round.clear();
  for (std::uint32_t i = 0; i < 12; ++i) {
    wanted.push_back(greedy_request(64 * 5 + i, 20, i % 2 == 0 ? 0 : 3, i));
    others.push_back(driven.submit(wanted.back()));
    std::int64_t const before = std::ssize(running->all.ids);
    driven.steps(3);
    EXPECT_EQ(std::ssize(running->all.ids), before + 3) << "after request " << i;
  }
  run_to_end(driven.loop);
  for (int count : chunks_before_round) ASSERT_LE(count, 1);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(others[i]->get(), straight_answer(options, wanted[i])) << "request " << i;
}

TEST(engine_prefill, goes_on_in_all_lanes_while_no_answer_runs) {
  timed_engine driven(toy(4));
  for (std::uint32_t i = 0; i < 4; ++i) driven.submit(greedy_request(64 * 3, 5, 0, i));
  driven.steps(2);
  EXPECT_EQ(driven.model.counts().forward_passes, 8);
}

TEST(engine_pages, a_request_waits_for_its_pages_and_those_behind_it_wait_too) {
  test::toy_options options = toy(4);
  options.limits.kv_pages = 6;
  timed_engine driven(options);
  auto const first = driven.submit(greedy_request(100, 28, 0, 1));   // two pages
  auto const large = driven.submit(greedy_request(200, 120, 3, 2));  // five
  auto const small = driven.submit(greedy_request(3, 5, 0, 3));      // one: there would be room
  driven.steps(3);
  auto now = driven.loop.get_state();
  EXPECT_EQ(now.running, 1U);
  EXPECT_EQ(now.waiting, 2U);
  EXPECT_EQ(now.kv_pages, 6U);
  EXPECT_EQ(now.kv_pages_reserved, 2U);
  while (!first->ended()) driven.loop.step();
  driven.loop.step();
  now = driven.loop.get_state();
  EXPECT_EQ(now.running, 2U);
  EXPECT_EQ(now.kv_pages_reserved, 6U);
  EXPECT_FALSE(small->ended());
  run_to_end(driven.loop);
  EXPECT_EQ(large->get(), straight_answer(options, greedy_request(200, 120, 3, 2)));
}

TEST(engine_pages, a_request_that_no_pool_could_hold_is_refused_by_the_numbers) {
  test::toy_options options = toy(2);
  options.limits.kv_pages = 4;
  timed_engine driven(options);
  EXPECT_EQ(driven.loop.max_context(), 256);
  try {
    driven.submit(greedy_request(257, 1, 0));
    ADD_FAILURE() << "taken";
  } catch (error const& what) {
    EXPECT_EQ(what.kind(), error_kind::context_length_exceeded);
    EXPECT_STREQ(what.what(),
                 "The prompt has 257 tokens and max_tokens is 1, which takes 5 pages of 64 tokens, "
                 "but the KV cache has 4.");
  }
  auto const sink = driven.submit(greedy_request(200, 56, 7));
  run_to_end(driven.loop);
  EXPECT_EQ(sink->get(), straight_answer(options, greedy_request(200, 56, 7)));
}

TEST(engine_pages, cached_ones_make_room_for_whoever_comes) {
  test::toy_options options = toy(2);
  options.limits.kv_pages = 8;
  options.limits.snapshots = 8;
  timed_engine driven(options);
  for (std::uint32_t i = 0; i < 8; ++i) {
    request const wanted = greedy_request(200 + 20 * i, 100, 3, i);
    auto const sink = driven.submit(wanted);
    run_to_end(driven.loop);
    EXPECT_EQ(sink->get(), straight_answer(options, wanted)) << "request " << i;
    EXPECT_EQ(driven.loop.get_state().kv_pages_reserved, 0U);
    EXPECT_GT(driven.loop.get_state().kv_pages_cached, 0U);
  }
}

TEST(engine_deadline, ends_what_waits_too_long_for_a_lane) {
  timed_engine driven(toy(1), {.queue_timeout = seconds(30)});
  auto const running = driven.submit(greedy_request(5, 100, 0));
  driven.steps(1);
  auto const waiting = driven.submit(greedy_request(5, 7, 4));
  *driven.clock.ms += 29'999;
  driven.steps(1);
  EXPECT_FALSE(waiting->ended());
  *driven.clock.ms += 1;
  driven.steps(1);
  ASSERT_TRUE(waiting->ended());
  EXPECT_EQ(waiting->get().finish, finish_reason::queue_timeout);
  EXPECT_EQ(waiting->get().message, "No lane came free within 30 s; try again later.");
  EXPECT_DOUBLE_EQ(waiting->outcome->timing.queued, 30'000);
  EXPECT_EQ(waiting->outcome->speculation.draft_tokens, 4);
  EXPECT_FALSE(running->ended()) << "it has its lane";
}

TEST(engine_deadline, ends_a_request_in_the_queue_in_prefill_and_in_decode) {
  for (int steps : {0, 1, 3, 5, 6, 9}) {
    test::toy_options options = toy(1);
    options.limits.snapshots = 4;
    timed_engine driven(options, {.request_timeout = milliseconds(1500)});
    request const wanted = greedy_request(64 * 4 + 9, 60, 3);
    auto const sink = driven.submit(wanted);
    auto const behind = driven.submit(greedy_request(5, 5, 0));
    driven.steps(steps);
    *driven.clock.ms += 1499;
    driven.steps(1);
    EXPECT_FALSE(sink->ended()) << "steps " << steps;
    *driven.clock.ms += 1;
    driven.steps(1);
    for (auto const& one : {sink, behind}) {
      ASSERT_TRUE(one->ended()) << "steps " << steps;
      EXPECT_EQ(one->get().finish, finish_reason::deadline) << "steps " << steps;
      EXPECT_EQ(one->get().message, "The answer was not complete within 1500 ms.");
    }
    expect_idle(driven.loop);
    // As after a cancellation, the chunks that were done are kept.
    auto const again = driven.submit(wanted);
    run_to_end(driven.loop);
    EXPECT_EQ(again->get(), straight_answer(options, wanted));
    EXPECT_EQ(again->outcome->usage.cached_tokens, std::min(steps + 1, 4) * 64);
  }
}

TEST(engine_drain, refuses_what_comes_and_ends_what_is_there) {
  timed_engine driven(toy(1));
  auto const running = driven.submit(greedy_request(100, 20, 3));
  auto const waiting = driven.submit(greedy_request(3, 5, 0));
  driven.steps(1);
  driven.loop.drain();
  driven.loop.drain();
  EXPECT_TRUE(driven.loop.get_state().draining);
  try {
    driven.submit(greedy_request(3, 5, 0));
    ADD_FAILURE() << "taken";
  } catch (error const& what) {
    EXPECT_EQ(what.kind(), error_kind::unavailable);
  }
  EXPECT_FALSE(driven.loop.wait_idle(milliseconds(0)));
  run_to_end(driven.loop);
  EXPECT_TRUE(driven.loop.wait_idle(milliseconds(0)));
  EXPECT_EQ(running->get(), straight_answer(driven.options, greedy_request(100, 20, 3)));
  EXPECT_EQ(waiting->get(), straight_answer(driven.options, greedy_request(3, 5, 0)));
}

TEST(engine_drain, is_over_when_every_observer_has_been_told) {
  class slow final : public observer {
   public:
    void on_output(output_delta const&) override {}
    void on_finish(result const&) override {
      std::this_thread::sleep_for(milliseconds(20));
      ended = true;
    }
    std::atomic<bool> ended = false;
  };
  test::toy_model model(toy(2));
  engine running(model, byte_tokenizer());
  EXPECT_TRUE(running.wait_idle(milliseconds(0)));
  running.start();
  std::vector<std::shared_ptr<slow>> sinks;
  for (std::uint32_t i = 0; i < 6; ++i) {
    sinks.push_back(std::make_shared<slow>());
    running.submit(greedy_request(100, 10, 3, i), sinks.back());
  }
  running.drain();
  EXPECT_TRUE(running.wait_idle(seconds(60)));
  for (auto const& sink : sinks) EXPECT_TRUE(sink->ended);
  expect_idle(running);
}

TEST(engine_state, tells_when_to_come_back) {
  timed_engine driven(toy(1), {.queue_limit = 3});
  EXPECT_EQ(driven.loop.get_state().retry_after_s, 1);
  auto const first = driven.submit(greedy_request(5, 4, 0));
  driven.steps(1);
  *driven.clock.ms += 7000;
  run_to_end(driven.loop);
  ASSERT_TRUE(first->ended());
  EXPECT_EQ(driven.loop.get_state().retry_after_s, 7);
  for (int i = 0; i < 4; ++i) driven.submit(greedy_request(5, 4, 0));
  driven.steps(1);
  EXPECT_EQ(driven.loop.get_state().retry_after_s, 28);  // three wait, and one more
}

}  // namespace
}  // namespace qwen38::engine
