// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/error.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

namespace qwen38::engine {
namespace {

test::toy_options toy(std::int32_t lanes) {
  test::toy_options options;
  options.limits.max_lanes = lanes;
  return options;
}

std::string error_of(std::function<void()> const& call, error_kind expected) {
  try {
    call();
  } catch (error const& what) {
    EXPECT_EQ(what.kind(), expected) << what.what();
    return what.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// Every lane can be taken again, at the same time, and answers as if new.
void expect_lanes_usable(engine& driven, test::toy_options const& options) {
  std::vector<std::shared_ptr<recorder>> sinks;
  for (std::int32_t i = 0; i < options.limits.max_lanes; ++i) {
    sinks.push_back(std::make_shared<recorder>());
    driven.submit(greedy_request(70, 5, 3, 900), sinks.back());
  }
  driven.step();
  EXPECT_EQ(driven.get_state().running, static_cast<std::size_t>(options.limits.max_lanes));
  run_to_end(driven);
  for (auto const& sink : sinks)
    EXPECT_EQ(sink->get(), straight_answer(options, greedy_request(70, 5, 3, 900)));
  expect_idle(driven);
}

TEST(engine_submit, refuses_what_is_out_of_range_by_name) {
  test::toy_model model(toy(1));
  engine driven(model, byte_tokenizer());
  auto const refusal = [&](std::function<void(request&)> const& change, error_kind kind) {
    request wanted = greedy_request(10, 10, 3);
    change(wanted);
    auto const sink = std::make_shared<recorder>();
    std::string const sentence = error_of([&] { driven.submit(wanted, sink); }, kind);
    run_to_end(driven);
    EXPECT_FALSE(sink->ended()) << sentence;
    return sentence;
  };
  auto const bad = error_kind::invalid_argument;
  EXPECT_EQ(refusal([](request& r) { r.prompt_ids.clear(); }, bad),
            "prompt: expected at least one token, got none.");
  EXPECT_EQ(refusal([](request& r) { r.prompt_ids[4] = -1; }, bad),
            "prompt[4]: expected a token id from 0 to 260, got -1.");
  EXPECT_EQ(refusal([](request& r) { r.prompt_ids[9] = 261; }, bad),
            "prompt[9]: expected a token id from 0 to 260, got 261.");
  EXPECT_EQ(refusal(
                [](request& r) {
                  r.stop_ids = {258, 272};
                },
                bad),
            "stop_ids[1]: expected a token id from 0 to 271, got 272.");
  EXPECT_EQ(refusal([](request& r) { r.max_tokens = 0; }, bad),
            "max_tokens: expected at least 1, got 0.");
  EXPECT_EQ(refusal([](request& r) { r.min_tokens = -1; }, bad),
            "min_tokens: expected at least 0, got -1.");
  EXPECT_EQ(refusal([](request& r) { r.draft_tokens = 16; }, bad),
            "draft_tokens: expected 0 to 15, got 16.");
  EXPECT_EQ(refusal([](request& r) { r.draft_tokens = -1; }, bad),
            "draft_tokens: expected 0 to 15, got -1.");
  EXPECT_EQ(refusal([](request& r) { r.sampling.top_p = 2; }, bad).substr(0, 6), "top_p:");
  EXPECT_NE(refusal([](request& r) { r.stop_strings = {""}; }, bad), "");
  EXPECT_EQ(refusal([](request& r) { r.max_tokens = 503; }, error_kind::context_length_exceeded),
            "The prompt has 10 tokens and max_tokens is 503, but the context holds 512 tokens.");
  refusal([](request& r) { r.max_tokens = std::numeric_limits<std::int64_t>::max(); },
          error_kind::context_length_exceeded);
  refusal([](request& r) { r.prompt_ids.assign(512, 1); }, error_kind::context_length_exceeded);
  refusal([](request& r) { r.prompt_ids.assign(600, 1); }, error_kind::context_length_exceeded);
  expect_idle(driven);
}

TEST(engine_submit, takes_what_just_fits_the_context) {
  auto const sinks = run_all(toy(1), {greedy_request(10, 502, 15), greedy_request(511, 1, 15)});
  EXPECT_EQ(sinks[0]->get().completion_tokens, 502);
  EXPECT_EQ(sinks[1]->get().completion_tokens, 1);
}

TEST(engine_submit, refuses_drafts_without_an_mtp_layer) {
  test::toy_options options = toy(1);
  options.limits.has_mtp = false;
  test::toy_model model(options);
  engine driven(model, byte_tokenizer());
  EXPECT_FALSE(driven.supports_drafts());
  EXPECT_EQ(error_of([&] { driven.submit(greedy_request(1, 4, 1), std::make_shared<recorder>()); },
                     error_kind::invalid_argument),
            "draft_tokens: this model has no MTP layer, so it must be 0, got 1.");
}

TEST(engine_submit, refuses_beyond_the_queue_limit_and_takes_again_when_one_has_ended) {
  test::toy_model model(toy(2));
  engine driven(model, byte_tokenizer(), {.queue_limit = 3});
  std::vector<std::shared_ptr<recorder>> sinks;
  auto const submit = [&] {
    sinks.push_back(std::make_shared<recorder>());
    return driven.submit(greedy_request(3, 4 + std::ssize(sinks), 0), sinks.back());
  };
  for (int i = 0; i < 5; ++i) submit();
  EXPECT_EQ(error_of(submit, error_kind::overloaded),
            "The queue is full: 5 requests run or wait for 2 lanes; try again later.");
  driven.step();
  EXPECT_EQ(driven.get_state().running, 2U);
  EXPECT_EQ(driven.get_state().waiting, 3U);
  error_of(submit, error_kind::overloaded);
  while (!sinks[0]->ended()) driven.step();
  submit();
  run_to_end(driven);
  expect_idle(driven);
}

TEST(engine_submit, without_a_queue_fills_the_lanes_only) {
  test::toy_model model(toy(2));
  engine driven(model, byte_tokenizer(), {.queue_limit = 0});
  auto const submit = [&] { driven.submit(greedy_request(3, 4, 0), std::make_shared<recorder>()); };
  submit();
  submit();
  error_of(submit, error_kind::overloaded);
  run_to_end(driven);
  submit();
  run_to_end(driven);
}

TEST(engine_limits, that_contradict_each_other_are_refused) {
  auto const refusal = [](std::function<void(model::causal_lm::limits&)> const& change) {
    test::toy_options options;
    change(options.limits);
    test::toy_model model(options);
    return error_of([&] { engine const driven(model, byte_tokenizer()); }, error_kind::internal);
  };
  EXPECT_NE(refusal([](auto& l) { l.max_lanes = 0; }), "");
  EXPECT_NE(refusal([](auto& l) { l.prefill_chunk = 0; }), "");
  EXPECT_NE(refusal([](auto& l) { l.valid_ids = 0; }), "");
  EXPECT_NE(refusal([](auto& l) { l.valid_ids = 262; }), "");  // the tokenizer has 261
  EXPECT_NE(refusal([](auto& l) { l.vocab_size = 260; }), "");
  EXPECT_NE(refusal([](auto& l) { l.max_rows = 15; }), "");
}

/// Notes which requests give output or end, in the order in which that happens.
class logger final : public observer {
 public:
  logger(std::vector<std::string>& log, std::string name) : log_(log), name_(std::move(name)) {}
  void on_output(output_delta const&) override {
    if (!std::exchange(begun_, true)) log_.push_back(name_ + " begins");
  }
  void on_finish(result const& outcome) override {
    log_.push_back(name_ + (outcome.finish == finish_reason::cancelled ? " cancelled" : " ends"));
  }

 private:
  std::vector<std::string>& log_;
  std::string name_;
  bool begun_ = false;
};

TEST(engine_admission, is_first_come_first_served) {
  test::toy_model model(toy(2));
  engine driven(model, byte_tokenizer());
  std::vector<std::string> log;
  // Shorter ones that come later do not overtake.
  std::int64_t const lengths[] = {30, 20, 10, 2, 2, 2};
  for (std::size_t i = 0; i < 6; ++i) {
    driven.submit(greedy_request(3, lengths[i], 0),
                  std::make_shared<logger>(log, std::to_string(i)));
  }
  run_to_end(driven);
  std::vector<std::string> begins;
  for (auto const& line : log) {
    if (line.ends_with("begins")) begins.push_back(line);
  }
  EXPECT_EQ(begins, (std::vector<std::string>{"0 begins", "1 begins", "2 begins", "3 begins",
                                              "4 begins", "5 begins"}));
  // 0 and 1 run; 2 takes the lane that 1 leaves and both go on together.
  EXPECT_EQ(log[2], "1 ends");
  EXPECT_EQ(log[3], "2 begins");
}

TEST(engine_turn, runs_answers_on_between_the_chunks_of_a_prompt) {
  test::toy_options options = toy(2);
  std::vector<std::int64_t> passes;  // rows of each
  options.on_forward = [&](std::span<model::sequence_rows const> batch) {
    passes.push_back(std::ssize(batch[0].ids));
    if (passes.back() > 1) {
      EXPECT_EQ(batch.size(), 1U) << "a chunk shares its pass";
    }
  };
  test::toy_model model(options);
  engine driven(model, byte_tokenizer());
  auto const first = std::make_shared<recorder>();
  driven.submit(greedy_request(1, 50, 0), first);
  driven.step();
  passes.clear();
  driven.submit(greedy_request(64 * 4 + 10, 5, 0), std::make_shared<recorder>());
  for (int i = 0; i < 4; ++i) {
    auto const before = std::ssize(first->all.ids);
    driven.step();
    EXPECT_EQ(std::ssize(first->all.ids), before + 1);
  }
  EXPECT_EQ(passes, (std::vector<std::int64_t>{64, 1, 64, 1, 64, 1, 64, 1}));
  run_to_end(driven);
}

TEST(engine_output, comes_with_each_step_and_adds_up) {
  test::toy_model model(toy(1));
  engine driven(model, byte_tokenizer());
  auto const sink = std::make_shared<recorder>();
  driven.submit(greedy_request(3, 33, 3), sink);
  driven.step();  // the prompt's token, then a round of four
  EXPECT_EQ(sink->all.ids.size(), 5U);
  driven.step();
  EXPECT_EQ(sink->all.ids.size(), 9U);
  run_to_end(driven);
  EXPECT_EQ(sink->all.ids.size(), 33U);
  EXPECT_EQ(sink->outputs, 9);
  EXPECT_EQ(sink->outcome->usage.prompt_tokens, 3);
  EXPECT_EQ(sink->outcome->usage.cached_tokens, 0);
  EXPECT_GE(sink->outcome->timing.queued, 0);
  EXPECT_GT(sink->outcome->timing.prefill, 0);
  EXPECT_GT(sink->outcome->timing.decode, 0);
}

TEST(engine_output, holds_back_what_may_become_a_stop_string_and_gives_it_out_at_the_end) {
  request wanted = greedy_request(3, 6, 0);
  std::string const whole = straight_answer(toy(1), wanted).content;
  ASSERT_EQ(whole.size(), 6U);
  wanted.stop_strings = {whole.substr(4) + "!"};
  test::toy_model model(toy(1));
  engine driven(model, byte_tokenizer());
  auto const sink = std::make_shared<recorder>();
  driven.submit(wanted, sink);
  while (sink->all.ids.size() < 5) driven.step();
  EXPECT_EQ(sink->all.content, whole.substr(0, 4));
  run_to_end(driven);
  EXPECT_EQ(sink->get().content, whole);
  EXPECT_EQ(sink->get().finish, finish_reason::length);
}

TEST(engine_lanes, stop_words_of_one_never_stop_another) {
  test::toy_options const options = toy(4);
  std::vector<request> wanted;
  for (int i = 0; i < 4; ++i) wanted.push_back(greedy_request(20, 60, 3 * i));  // the same prompt
  wanted[1].stop_strings = {straight_answer(options, wanted[1]).content.substr(7, 2)};
  wanted[2].stop_ids = {straight_answer(options, wanted[2]).ids[12]};
  auto const sinks = run_all(options, wanted);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sinks[i]->get(), straight_answer(options, wanted[i])) << "request " << i;
  }
  EXPECT_EQ(sinks[0]->get().completion_tokens, 60);
  EXPECT_EQ(sinks[1]->get().finish, finish_reason::stop);
  EXPECT_EQ(sinks[2]->get().finish, finish_reason::stop);
  EXPECT_EQ(sinks[3]->get().completion_tokens, 60);
}

TEST(engine_lanes, hold_nothing_of_the_request_before) {
  test::toy_options options = toy(3);
  options.end_every = 30;
  std::vector<request> wanted;
  for (std::uint32_t i = 0; i < 100; ++i) {
    wanted.push_back(greedy_request(1 + i % 5 * 32, 1 + i % 9, static_cast<int>(i % 4), i));
    wanted.back().stop_ids = {test::im_end_id};
    wanted.back().sampling.repetition_penalty = 1.3F;
  }
  auto const sinks = run_all(options, wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(sinks[i]->get(), straight_answer(options, wanted[i])) << "request " << i;
  }
}

// A prompt of one token, and a last chunk of one token, are prefill and no decode step, whatever
// the other lanes do.
TEST(engine_lanes, prompts_of_one_token_and_last_chunks_of_one_token_are_prefilled) {
  test::toy_options const options = toy(3);
  for (int k : {0, 1, 15}) {
    std::vector<request> wanted;
    for (std::size_t prompt : {129, 1, 65, 1, 193, 64, 1, 129}) {
      wanted.push_back(greedy_request(prompt, 9, k, static_cast<std::uint32_t>(wanted.size())));
    }
    auto const sinks = run_all(options, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(sinks[i]->get(), straight_answer(options, wanted[i]))
          << "request " << i << ", k " << k;
    }
  }
}

TEST(engine_cancel, ends_a_request_in_the_queue_without_waiting_for_a_lane) {
  test::toy_options const options = toy(1);
  test::toy_model model(options);
  engine driven(model, byte_tokenizer());
  std::vector<std::string> log;
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < 5; ++i) {
    tickets.push_back(
        driven.submit(greedy_request(3, 40, 0), std::make_shared<logger>(log, std::to_string(i))));
  }
  driven.step();
  driven.cancel(tickets[3]);
  driven.cancel(tickets[1]);
  EXPECT_EQ(log,
            (std::vector<std::string>{"0 begins"}));  // observers are called from the loop alone
  driven.step();
  EXPECT_EQ(log, (std::vector<std::string>{"0 begins", "1 cancelled", "3 cancelled"}));
  EXPECT_EQ(driven.get_state().waiting, 2U);
  run_to_end(driven);
  EXPECT_EQ(std::ranges::count(log, "2 ends"), 1);
  EXPECT_EQ(std::ranges::count(log, "4 ends"), 1);
  expect_lanes_usable(driven, options);
}

TEST(engine_cancel, reports_a_request_that_never_ran_in_full) {
  test::toy_model model(toy(1));
  engine driven(model, byte_tokenizer());
  auto const sink = std::make_shared<recorder>();
  driven.cancel(driven.submit(greedy_request(3, 40, 4), sink));
  EXPECT_FALSE(driven.step());
  answer const got = sink->get();
  EXPECT_EQ(got.finish, finish_reason::cancelled);
  EXPECT_EQ(got.prompt_tokens, 3);
  EXPECT_EQ(got.completion_tokens, 0);
  EXPECT_EQ(sink->outcome->speculation.draft_tokens, 4);
  EXPECT_EQ(sink->outcome->speculation.accepted_at.size(), 4U);
  EXPECT_EQ(sink->outcome->timing.prefill, 0);
  EXPECT_EQ(model.counts().forward_passes, 0);
}

TEST(engine_cancel, ends_a_request_at_any_step_of_prefill_and_decode) {
  test::toy_options const options = toy(2);
  for (int k : {0, 3}) {
    for (int steps = 0; steps < 12; ++steps) {
      test::toy_model model(options);
      engine driven(model, byte_tokenizer());
      request const wanted = greedy_request(64 * 4 + 7, 60, k);  // five chunks
      auto const sink = std::make_shared<recorder>();
      auto const other = std::make_shared<recorder>();
      auto const ticket = driven.submit(wanted, sink);
      driven.submit(greedy_request(5, 80, 2), other);
      for (int i = 0; i < steps; ++i) driven.step();
      driven.cancel(ticket);
      driven.cancel(ticket);
      driven.step();
      ASSERT_TRUE(sink->ended()) << "steps " << steps;
      answer const got = sink->get();
      answer const whole = straight_answer(options, wanted);
      EXPECT_EQ(got.finish, finish_reason::cancelled);
      EXPECT_EQ(got.completion_tokens, std::ssize(got.ids));
      EXPECT_EQ(got.ids.empty(), steps < 5);
      EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), whole.ids.begin()));
      run_to_end(driven);
      EXPECT_EQ(other->get(), straight_answer(options, greedy_request(5, 80, 2)));
      expect_lanes_usable(driven, options);
    }
  }
}

TEST(engine_cancel, ignores_unknown_and_ended_tickets) {
  test::toy_model model(toy(1));
  engine driven(model, byte_tokenizer());
  driven.cancel(0);
  driven.cancel(77);
  auto const sink = std::make_shared<recorder>();
  auto const ticket = driven.submit(greedy_request(3, 4, 0), sink);
  run_to_end(driven);
  driven.cancel(ticket);
  driven.step();
  EXPECT_EQ(sink->get().finish, finish_reason::length);
  expect_idle(driven);
}

TEST(engine_destructor, cancels_what_runs_and_what_waits) {
  for (bool threaded : {false, true}) {
    std::vector<std::shared_ptr<recorder>> sinks;
    {
      test::toy_model model(toy(2));
      engine driven(model, byte_tokenizer());
      for (int i = 0; i < 5; ++i) {
        sinks.push_back(std::make_shared<recorder>());
        driven.submit(greedy_request(400, 100, 3), sinks.back());
      }
      if (threaded) {
        driven.start();
      } else {
        driven.step();
      }
    }
    for (auto const& sink : sinks) {
      ASSERT_TRUE(sink->ended());
      // A thread may have been quick enough to finish some.
      bool const whole = threaded && sink->get().finish == finish_reason::length;
      EXPECT_TRUE(whole || sink->get().finish == finish_reason::cancelled);
    }
  }
}

}  // namespace
}  // namespace qwen38::engine
