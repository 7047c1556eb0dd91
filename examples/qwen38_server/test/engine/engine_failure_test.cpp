// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "support/error.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

namespace qwen38::engine {
namespace {

constexpr char const* foreign = "The model failed while it computed this answer.";

struct driven_engine {
  explicit driven_engine(test::toy_options options)
      : model(std::move(options)),
        loop(model, byte_tokenizer(),
             {.on_fault = [this](std::string const& what) { faults.push_back(what); }}) {}

  ~driven_engine() {
    EXPECT_EQ(loop.get_state().running, 0U);
    EXPECT_EQ(loop.get_state().kv_pages_reserved, 0U);
  }

  std::shared_ptr<recorder> submit(request const& wanted) {
    auto sink = std::make_shared<recorder>();
    loop.submit(wanted, sink);
    return sink;
  }

  std::vector<std::string> faults;
  test::toy_model model;
  engine loop;
};

void expect_failed(recorder const& sink, std::string const& message, std::size_t ids) {
  ASSERT_TRUE(sink.ended());
  answer const got = sink.get();
  EXPECT_EQ(got.finish, finish_reason::failed);
  EXPECT_EQ(got.message, message);
  EXPECT_EQ(got.ids.size(), ids);
  EXPECT_EQ(got.completion_tokens, static_cast<std::int64_t>(ids));
}

void expect_works(driven_engine& driven, test::toy_options const& options) {
  std::vector<std::shared_ptr<recorder>> sinks;
  for (std::int32_t i = 0; i < options.limits.max_lanes; ++i)
    sinks.push_back(driven.submit(greedy_request(70, 9, 3)));
  run_to_end(driven.loop);
  for (auto const& sink : sinks)
    EXPECT_EQ(sink->get(), straight_answer(options, greedy_request(70, 9, 3)));
  EXPECT_FALSE(driven.loop.get_state().failed);
}

// The tokens before the bad row are the same for every depth; the bad one never becomes an id.
TEST(engine_failure, logits_that_are_not_finite_end_their_request_alone) {
  for (int k = 0; k <= max_draft_tokens; ++k) {
    for (std::int64_t bad_token = 0; bad_token < 20; ++bad_token) {
      test::toy_options options;
      options.is_nan = [&](int lane, std::int64_t position) {
        return lane == 1 && position == 10 + bad_token;
      };
      driven_engine driven(options);
      std::vector<std::shared_ptr<recorder>> sinks;
      for (int i = 0; i < 3; ++i) sinks.push_back(driven.submit(greedy_request(10, 40, k)));
      run_to_end(driven.loop);
      expect_failed(*sinks[1], "The model's logit of id 0 is not a finite number.",
                    static_cast<std::size_t>(bad_token));
      answer const whole = straight_answer(options, greedy_request(10, 40, k));
      EXPECT_EQ(sinks[0]->get(), whole);
      EXPECT_EQ(sinks[2]->get(), whole);
      EXPECT_TRUE(
          std::equal(sinks[1]->all.ids.begin(), sinks[1]->all.ids.end(), whole.ids.begin()));
      EXPECT_EQ(driven.faults.size(), 1U);
      driven.model.options().is_nan = {};
      expect_works(driven, options);
    }
  }
}

TEST(engine_failure, a_pass_that_throws_ends_its_lanes_and_spares_the_others) {
  test::toy_options options;
  options.limits.max_lanes = 4;
  options.limits.max_rows = 16;  // two lanes of k = 7 in a pass
  int passes = 0;
  options.on_forward = [&](std::span<model::sequence_rows const> batch) {
    if (batch.size() == 2 && batch[0].lane == 2 && ++passes == 3)
      throw std::runtime_error("device lost");
  };
  driven_engine driven(options);
  std::vector<std::shared_ptr<recorder>> sinks;
  for (int i = 0; i < 4; ++i) sinks.push_back(driven.submit(greedy_request(5, 50, 7)));
  run_to_end(driven.loop);
  answer const whole = straight_answer(options, greedy_request(5, 50, 7));
  EXPECT_EQ(sinks[0]->get(), whole);
  EXPECT_EQ(sinks[1]->get(), whole);
  expect_failed(*sinks[2], foreign, 25);  // the prompt's token and three rounds of eight
  expect_failed(*sinks[3], foreign, 17);  // prefilled a turn later
  EXPECT_EQ(driven.faults, (std::vector<std::string>{"device lost"}));
  driven.model.options().on_forward = {};
  expect_works(driven, options);
}

TEST(engine_failure, a_chunk_that_throws_ends_its_request_and_spares_running_lanes) {
  test::toy_options options;
  options.on_forward = [](std::span<model::sequence_rows const> batch) {
    if (batch[0].position == 128) throw error(error_kind::internal, "No memory for the chunk.");
  };
  driven_engine driven(options);
  auto const running = driven.submit(greedy_request(5, 60, 3));
  auto const doomed = driven.submit(greedy_request(200, 50, 3));
  run_to_end(driven.loop);
  expect_failed(*doomed, "No memory for the chunk.", 0);
  EXPECT_EQ(running->get(), straight_answer(options, greedy_request(5, 60, 3)));
  driven.model.options().on_forward = {};
  expect_works(driven, options);
}

// A round is one call, so its lanes fail together; those of later rounds are spared.
TEST(engine_failure, a_draft_that_throws_ends_the_lanes_of_its_round) {
  for (int failing_call = 1; failing_call < 12; ++failing_call) {
    test::toy_options options;
    int calls = 0;
    options.on_draft = [&](std::span<model::draft_rows const>) {
      if (++calls == failing_call) throw std::runtime_error("draft");
    };
    driven_engine driven(options);
    auto const plain = driven.submit(greedy_request(70, 50, 0));
    auto const drafting = driven.submit(greedy_request(70, 50, 3));
    run_to_end(driven.loop);
    EXPECT_EQ(drafting->get().finish, finish_reason::failed) << "call " << failing_call;
    answer const whole = straight_answer(options, greedy_request(70, 50, 0));
    if (failing_call <= 2) {  // in the prompt's chunks
      EXPECT_EQ(plain->get(), whole);
    } else {
      EXPECT_EQ(plain->get().finish, finish_reason::failed) << "call " << failing_call;
      EXPECT_EQ(plain->get().message, foreign);
    }
    driven.model.options().on_draft = {};
    expect_works(driven, options);
  }
}

TEST(engine_failure, a_begin_that_throws_ends_its_request) {
  test::toy_options options;
  int calls = 0;
  options.on_begin = [&](int) {
    if (++calls == 2) throw std::runtime_error("begin");
  };
  driven_engine driven(options);
  auto const first = driven.submit(greedy_request(5, 9, 3));
  auto const second = driven.submit(greedy_request(5, 9, 3));
  run_to_end(driven.loop);
  EXPECT_EQ(first->get().finish, finish_reason::length);
  expect_failed(*second, foreign, 0);
  expect_works(driven, options);
}

TEST(engine_failure, a_request_that_bans_every_token_fails) {
  test::toy_options options;
  options.limits.valid_ids = 2;
  driven_engine driven(options);
  request wanted = greedy_request(1, 5, 0);
  wanted.prompt_ids = {1};
  wanted.stop_ids = {0, 1};
  wanted.min_tokens = 1;
  auto const sink = driven.submit(wanted);
  run_to_end(driven.loop);
  expect_failed(*sink, "No token may be sampled: every id is banned.", 0);
}

class thrower final : public observer {
 public:
  enum class when { output, finish };
  explicit thrower(when moment) : moment_(moment) {}
  void on_output(output_delta const&) override {
    if (moment_ == when::output) throw std::runtime_error("observer");
  }
  void on_finish(result const&) override {
    ++finishes;
    if (moment_ == when::finish) throw std::runtime_error("observer");
  }
  int finishes = 0;

 private:
  when moment_;
};

// An observer that throws breaks its contract: the engine does not go on as if nothing were.
TEST(engine_death, is_visible_and_every_request_hears_of_it) {
  for (auto moment : {thrower::when::output, thrower::when::finish}) {
    test::toy_options options;
    options.limits.max_lanes = 2;
    driven_engine driven(options);
    auto const running = driven.submit(greedy_request(400, 50, 3));
    auto const bad = std::make_shared<thrower>(moment);
    driven.loop.submit(greedy_request(5, 3, 0), bad);
    auto const waiting = driven.submit(greedy_request(5, 3, 0));
    run_to_end(driven.loop);
    EXPECT_TRUE(driven.loop.get_state().failed);
    EXPECT_EQ(driven.loop.get_state().running, 0U);
    EXPECT_EQ(driven.loop.get_state().waiting, 0U);
    EXPECT_EQ(bad->finishes, 1);
    expect_failed(*running, "The engine has stopped after an internal error.", 0);
    expect_failed(*waiting, "The engine has stopped after an internal error.", 0);
    EXPECT_EQ(driven.faults, (std::vector<std::string>{"The engine has stopped: observer"}));
    try {
      driven.submit(greedy_request(5, 3, 0));
      ADD_FAILURE() << "a dead engine takes a request";
    } catch (error const& what) {
      EXPECT_EQ(what.kind(), error_kind::internal);
    }
  }
}

TEST(engine_death, of_a_thread_leaves_the_service_answering) {
  test::toy_model model({});
  engine driven(model, byte_tokenizer());
  driven.submit(greedy_request(5, 3, 0), std::make_shared<thrower>(thrower::when::output));
  auto const waiting = std::make_shared<recorder>();
  driven.submit(greedy_request(400, 100, 0), waiting);
  driven.start();
  while (!driven.get_state().failed || driven.get_state().running > 0) std::this_thread::yield();
  EXPECT_THROW(driven.submit(greedy_request(5, 3, 0), std::make_shared<recorder>()), error);
}

}  // namespace
}  // namespace qwen38::engine
