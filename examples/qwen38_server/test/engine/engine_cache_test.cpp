// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

// Prompts that go on from what an earlier one left behind.
namespace qwen38::engine {
namespace {

test::toy_options cached_toy(std::int32_t lanes = 2, std::int32_t snapshots = 8) {
  test::toy_options options;
  options.limits.max_lanes = lanes;
  options.limits.max_context = 2048;
  options.limits.kv_pages = 120;
  options.limits.snapshots = snapshots;
  // Seven of ten drafts agree.
  options.agrees = [](std::int64_t position, int depth) {
    return test::toy_model::mix(static_cast<std::uint64_t>(position * 16 + depth)) % 10 < 7;
  };
  return options;
}

std::int64_t border(std::int64_t prompt) {
  return (prompt - 1) / 64 * 64;
}

/// An engine that is driven by the test; what every test leaves behind is checked.
struct cached_engine {
  explicit cached_engine(test::toy_options const& wanted)
      : options(wanted), model(options), loop(model, byte_tokenizer()) {}
  ~cached_engine() {
    run_to_end(loop);
    expect_idle(loop);
  }

  std::shared_ptr<recorder> submit(request const& wanted) {
    auto sink = std::make_shared<recorder>();
    latest = loop.submit(wanted, sink);
    return sink;
  }
  /// Runs it alone and holds it against the answer by definition.
  result run(request const& wanted, std::string const& what = "") {
    auto const sink = submit(wanted);
    run_to_end(loop);
    EXPECT_EQ(sink->get(), straight_answer(options, wanted)) << what;
    return *sink->outcome;
  }

  test::toy_options options;
  test::toy_model model;
  engine loop;
  std::uint64_t latest = 0;
};

void expect_same_speculation(speculation_counts const& got, speculation_counts const& wanted,
                             std::string const& what) {
  EXPECT_EQ(got.rounds, wanted.rounds) << what;
  EXPECT_EQ(got.drafted, wanted.drafted) << what;
  EXPECT_EQ(got.accepted_at, wanted.accepted_at) << what;
}

// The same prompt again: the same ids, text and acceptance as without a cache, at every length
// around the borders. The first one may have drafted or not.
TEST(engine_cache, cold_and_warm_answers_are_the_same) {
  for (std::int64_t prompt : {1, 2, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 257}) {
    for (int first_k : {0, 7}) {
      for (int k : {0, 1, 3, 7, 15}) {
        std::string const what = "prompt " + std::to_string(prompt) + ", k " +
                                 std::to_string(first_k) + " then " + std::to_string(k);
        request wanted = greedy_request(static_cast<std::size_t>(prompt), 40, k,
                                        static_cast<std::uint32_t>(prompt));
        wanted.sampling.temperature = k % 2 == 0 ? 0.0F : 1.0F;
        cached_engine plain(cached_toy(1, 0));
        result const cold = plain.run(wanted, what);
        EXPECT_EQ(cold.usage.cached_tokens, 0) << what;

        cached_engine warm(cached_toy());
        wanted.draft_tokens = first_k;
        EXPECT_EQ(warm.run(wanted, what).usage.cached_tokens, 0) << what;
        wanted.draft_tokens = k;
        for (int again = 0; again < 2; ++again) {
          result const got = warm.run(wanted, what);
          EXPECT_EQ(got.usage.cached_tokens, border(prompt)) << what;
          EXPECT_EQ(got.usage.prompt_tokens, prompt) << what;
          expect_same_speculation(got.speculation, cold.speculation, what);
        }
      }
    }
  }
}

TEST(engine_cache, is_off_without_places) {
  cached_engine driven(cached_toy(2, 0));
  request const wanted = greedy_request(200, 5, 3);
  driven.run(wanted);
  EXPECT_EQ(driven.run(wanted).usage.cached_tokens, 0);
  EXPECT_EQ(driven.loop.get_state().kv_pages_cached, 0U);
}

TEST(engine_cache, any_chunk_and_page_size_gives_the_same_answer) {
  struct size {
    std::int32_t chunk, page;
  };
  for (size const one :
       {size{1, 1}, size{2, 1}, size{3, 3}, size{16, 4}, size{64, 16}, size{96, 32}}) {
    test::toy_options options = cached_toy();
    options.limits.prefill_chunk = one.chunk;
    options.limits.page_tokens = one.page;
    options.limits.kv_pages = 4000 / one.page;
    options.limits.snapshots = 64;
    cached_engine driven(options);
    for (std::size_t prompt : {1, 2, 3, 4, 15, 16, 17, 96, 97, 130}) {
      for (int k : {3, 0, 15}) {
        request const wanted = greedy_request(prompt, 20, k, 77);  // of one family
        std::string const what =
            "chunk " + std::to_string(one.chunk) + ", prompt " + std::to_string(prompt);
        std::int64_t const cached = driven.run(wanted, what).usage.cached_tokens;
        EXPECT_EQ(cached % one.chunk, 0) << what;
        EXPECT_EQ(driven.run(wanted, what).usage.cached_tokens,
                  (std::ssize(wanted.prompt_ids) - 1) / one.chunk * one.chunk)
            << what;
      }
    }
  }
}

/// The next turn of a dialogue: the prompt, the answer and something new.
request next_turn(request const& before, std::vector<std::int32_t> const& answer_ids,
                  std::size_t more, std::uint32_t seed) {
  request after = before;
  after.prompt_ids.insert(after.prompt_ids.end(), answer_ids.begin(), answer_ids.end());
  auto const added = random_prompt(more, seed);
  after.prompt_ids.insert(after.prompt_ids.end(), added.begin(), added.end());
  return after;
}

TEST(engine_cache, each_turn_of_a_dialogue_goes_on_from_the_turn_before) {
  for (std::size_t first : {20, 64, 300, 1500}) {
    for (int k : {0, 1, 3, 7, 15}) {
      cached_engine driven(cached_toy());
      request turn = greedy_request(first, 45, k, 5);
      std::int64_t before = 0;
      for (std::uint32_t number = 1; number <= 3; ++number) {
        auto const sink = driven.submit(turn);
        run_to_end(driven.loop);
        std::string const what = "first " + std::to_string(first) + ", k " + std::to_string(k) +
                                 ", turn " + std::to_string(number);
        EXPECT_EQ(sink->get(), straight_answer(driven.options, turn)) << what;
        EXPECT_EQ(sink->outcome->usage.cached_tokens, before) << what;
        before = border(std::ssize(turn.prompt_ids));
        turn = next_turn(turn, sink->all.ids, 30, number);
      }
    }
  }
}

// Generated tokens are prefilled again, so where an answer ended inside a round matters nowhere.
TEST(engine_cache, a_turn_after_a_stop_inside_an_accepted_block_equals_a_cold_one) {
  test::toy_options options = cached_toy();
  options.agrees = [](std::int64_t, int) { return true; };
  for (std::size_t stop_after = 2; stop_after < 14; ++stop_after) {
    cached_engine driven(options);
    request turn = greedy_request(120, 60, 7, 3);
    auto const whole = straight_answer(options, turn);
    turn.stop_strings = {whole.content.substr(stop_after - 2, 3)};
    auto const sink = driven.submit(turn);
    run_to_end(driven.loop);
    EXPECT_EQ(sink->get(), straight_answer(options, turn)) << "stop after " << stop_after;
    EXPECT_EQ(sink->get().finish, finish_reason::stop);
    request after = next_turn(turn, sink->all.ids, 40, 9);
    after.stop_strings.clear();
    EXPECT_EQ(driven.run(after).usage.cached_tokens, 64) << "stop after " << stop_after;
  }
}

TEST(engine_cache, a_shared_beginning_is_reused_from_its_second_sight_on) {
  cached_engine driven(cached_toy());
  auto const system = random_prompt(210, 1);
  for (std::uint32_t user = 0; user < 5; ++user) {
    request wanted = greedy_request(1, 10, 3);
    wanted.prompt_ids = system;
    auto const tail = random_prompt(100, 100 + user);
    wanted.prompt_ids.insert(wanted.prompt_ids.end(), tail.begin(), tail.end());
    EXPECT_EQ(driven.run(wanted).usage.cached_tokens, user < 2 ? 0 : 192) << "user " << user;
  }
}

TEST(engine_cache, side_requests_do_not_evict_a_conversation) {
  for (std::int32_t places : {1, 2, 3}) {
    cached_engine driven(cached_toy(2, places));
    request turn = greedy_request(900, 30, 3, 1);
    auto const sink = driven.submit(turn);
    run_to_end(driven.loop);
    for (std::uint32_t side = 0; side < 6; ++side) {
      driven.run(greedy_request(53, 8, 3, 1000 + side));
      driven.run(greedy_request(140, 8, 0, 2000 + side));
    }
    EXPECT_EQ(driven.run(next_turn(turn, sink->all.ids, 53, 2)).usage.cached_tokens, border(900))
        << "places " << places;
  }
}

// A pool that holds little more than the conversation: its pages are given up last as well.
TEST(engine_cache, side_requests_use_each_others_pages_first) {
  test::toy_options options = cached_toy(2, 50);
  options.limits.kv_pages = 24;
  cached_engine driven(options);
  request turn = greedy_request(900, 30, 3, 1);  // 15 pages
  auto const sink = driven.submit(turn);
  run_to_end(driven.loop);
  for (std::uint32_t side = 0; side < 6; ++side)
    driven.run(greedy_request(200, 50, 3, 1000 + side));  // four each
  EXPECT_EQ(driven.run(next_turn(turn, sink->all.ids, 53, 2)).usage.cached_tokens, border(900));
}

TEST(engine_cache, a_conversation_that_nobody_goes_on_with_is_given_up_in_the_end) {
  cached_engine driven(cached_toy(2, 2));
  request const old = greedy_request(900, 5, 0, 1);
  driven.run(old);
  for (std::uint32_t side = 0; side < 40; ++side)
    driven.run(greedy_request(140, 2, 0, 1000 + side));
  EXPECT_EQ(driven.run(old).usage.cached_tokens, 0);
}

// A client that gives up and tries again: what was done is not done twice.
TEST(engine_cache, the_finished_chunks_of_a_cancelled_prefill_are_kept) {
  for (int k : {0, 3}) {
    for (int steps = 0; steps <= 6; ++steps) {
      cached_engine driven(cached_toy());
      request const wanted = greedy_request(64 * 5 + 7, 30, k, 4);
      auto const sink = driven.submit(wanted);
      for (int i = 0; i < steps; ++i) driven.loop.step();
      driven.loop.cancel(driven.latest);
      run_to_end(driven.loop);
      EXPECT_EQ(sink->get().finish, finish_reason::cancelled);
      std::string const what = "steps " + std::to_string(steps);
      EXPECT_EQ(driven.run(wanted, what).usage.cached_tokens, std::min(steps, 5) * 64) << what;
    }
  }
}

TEST(engine_cache, three_retries_of_a_long_prompt_do_it_once) {
  cached_engine driven(cached_toy());
  request const wanted = greedy_request(64 * 20, 5, 3, 4);
  for (int attempt = 0; attempt < 3; ++attempt) {
    driven.submit(wanted);
    for (int i = 0; i < 5; ++i) driven.loop.step();
    driven.loop.cancel(driven.latest);
  }
  EXPECT_EQ(driven.run(wanted).usage.cached_tokens, 15 * 64);
  EXPECT_EQ(driven.model.counts().forward_passes,
            20 + driven.run(wanted).speculation.rounds * 2 + 1);
}

TEST(engine_cache, two_lanes_with_one_prompt_at_a_time_agree_and_leave_one_copy) {
  cached_engine driven(cached_toy(2));
  request const wanted = greedy_request(300, 30, 5, 4);
  auto const first = driven.submit(wanted);
  auto const second = driven.submit(wanted);
  run_to_end(driven.loop);
  EXPECT_EQ(first->get(), straight_answer(driven.options, wanted));
  EXPECT_EQ(second->get(), first->get());
  EXPECT_EQ(driven.loop.get_state().kv_pages_cached, 4U);
  EXPECT_EQ(driven.loop.get_state().snapshots_used, 1U);
}

TEST(engine_cache, a_state_that_cannot_be_saved_ends_its_request_and_loses_no_place) {
  test::toy_options options = cached_toy(2, 1);
  int saves = 0;
  options.on_save = [&](int) {
    if (++saves <= 2) throw std::runtime_error("save");
  };
  cached_engine driven(options);
  for (int i = 0; i < 2; ++i) {
    auto const sink = driven.submit(greedy_request(100, 5, 3));
    run_to_end(driven.loop);
    EXPECT_EQ(sink->get().finish, finish_reason::failed);
    EXPECT_EQ(driven.loop.get_state().snapshots_used, 0U);
  }
  driven.run(greedy_request(100, 5, 3));
  EXPECT_EQ(driven.run(greedy_request(100, 5, 3)).usage.cached_tokens, 64);
}

TEST(engine_cache, a_failed_request_leaves_nothing_behind) {
  test::toy_options options = cached_toy(2, 4);
  bool fails = true;
  options.on_forward = [&](std::span<model::sequence_rows const> batch) {
    if (fails && batch[0].position == 128) throw std::runtime_error("forward");
  };
  cached_engine driven(options);
  request const wanted = greedy_request(200, 5, 3);
  driven.submit(wanted);
  run_to_end(driven.loop);
  fails = false;
  EXPECT_EQ(driven.run(wanted).usage.cached_tokens, 0);
}

// Every page and snapshot is reused many times, by prompts that meet and part; the toy notices a
// page that holds another's tokens.
TEST(engine_cache, pages_and_snapshots_that_change_hands_hold_nothing_of_the_one_before) {
  test::toy_options options = cached_toy(3, 3);
  options.limits.kv_pages = 16;
  cached_engine driven(options);
  std::int64_t cached = 0;
  for (std::uint32_t i = 0; i < 100; ++i) {
    std::vector<std::shared_ptr<recorder>> sinks;
    std::vector<request> wanted;
    for (std::uint32_t lane = 0; lane < 3; ++lane) {
      std::uint32_t const word = (i * 3 + lane) * 2654435761U >> 8;
      wanted.push_back(
          greedy_request(1 + word % 250, 1 + word % 13, static_cast<int>(word % 16), word % 3));
      sinks.push_back(driven.submit(wanted.back()));
    }
    run_to_end(driven.loop);
    for (std::size_t lane = 0; lane < 3; ++lane) {
      ASSERT_EQ(sinks[lane]->get(), straight_answer(options, wanted[lane])) << "request " << i;
      cached += sinks[lane]->outcome->usage.cached_tokens;
    }
    expect_idle(driven.loop);
  }
  EXPECT_GT(cached, 5000);
}

}  // namespace
}  // namespace qwen38::engine
