// SPDX-License-Identifier: Apache-2.0
// Grammars, thinking budgets and log probabilities: what they do to an answer, and that no depth of
// speculation changes it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/logprobs.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"
#include "text/answer_grammar.hpp"
#include "text/vocabulary.hpp"

namespace qwen38::engine {
namespace {

using json = nlohmann::ordered_json;

constexpr char const* schema_text =
    R"({"type":"object","properties":{"ab":{"type":"string","maxLength":6},"n":{"enum":["a","bcd",7]},
        "list":{"type":"array","items":{"type":"string","pattern":"^[a-h]{1,4}$"},"maxItems":3}},
        "required":["ab","list"],"additionalProperties":false})";

text::token_grammar grammar_of(char const* schema, bool starts_in_reasoning) {
  static auto const words = std::make_shared<text::vocabulary const>(byte_tokenizer());
  json const parsed = schema != nullptr ? json::parse(schema) : json();
  return {words, std::make_shared<text::byte_grammar const>(text::make_json_grammar(
                     schema != nullptr ? &parsed : nullptr, starts_in_reasoning))};
}

/// The toy likes the letters a to h best, and drafts that agree seven times of ten.
test::toy_options toy() {
  test::toy_options options;
  options.agrees = [](std::int64_t position, int depth) {
    return test::toy_model::mix(static_cast<std::uint64_t>(position * 16 + depth)) % 10 < 7;
  };
  return options;
}

request wanted_json(std::uint32_t seed, int k, bool sampled) {
  request out = greedy_request(5 + seed, 300, k, seed);
  out.sampling.temperature = sampled ? 1.3F : 0.0F;
  out.sampling.seed = seed;
  out.stop_ids = {test::im_end_id, test::endoftext_id};
  out.grammar = grammar_of(schema_text, false);
  return out;
}

TEST(constrained_output, is_json_of_the_schema_and_the_same_for_every_depth) {
  int accepted = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    for (bool const sampled : {false, true}) {
      for (int k = 0; k <= max_draft_tokens; k = k < 4 ? k + 1 : k + 4) {
        auto const what = "seed " + std::to_string(seed) + ", sampled " + std::to_string(sampled) +
                          ", k " + std::to_string(k);
        request const wanted = wanted_json(seed, k, sampled);
        auto const sink = run_all(toy(), {wanted}).front();
        ASSERT_EQ(sink->get(), straight_answer(toy(), wanted)) << what;
        ASSERT_EQ(sink->outcome->finish, finish_reason::stop) << what;
        accepted += static_cast<int>(sink->outcome->speculation.accepted);
        auto const value = json::parse(sink->all.content, nullptr, false);
        ASSERT_TRUE(value.is_object()) << what << ": " << sink->all.content;
        ASSERT_TRUE(value.contains("ab") && value.contains("list")) << what << ": " << value;
        ASSERT_LE(value["ab"].get<std::string>().size(), 24U) << what << ": " << value;
        ASSERT_LE(value["list"].size(), 3U) << what << ": " << value;
      }
    }
  }
  EXPECT_GT(accepted, 20);
}

TEST(constrained_output, other_lanes_neither_change_it_nor_are_changed) {
  std::vector<request> wanted;
  for (std::uint32_t i = 0; i < 9; ++i) {
    request one = wanted_json(i, i % 3 == 0 ? 0 : 7, i % 2 == 0);
    if (i % 3 == 1) one.grammar = {};
    one.max_tokens = 60;
    wanted.push_back(one);
  }
  auto const sinks = run_all(toy(), wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(sinks[i]->get(), straight_answer(toy(), wanted[i])) << "request " << i;
  }
}

TEST(constrained_output, stop_ids_come_at_the_end_and_nowhere_else) {
  test::toy_options eager = toy();
  eager.end_every = 1;  // the end is always likeliest
  request wanted = wanted_json(3, 7, false);
  auto const sink = run_all(eager, {wanted}).front();
  EXPECT_EQ(sink->outcome->finish, finish_reason::stop);
  EXPECT_TRUE(json::accept(sink->all.content)) << sink->all.content;
  EXPECT_EQ(sink->all.ids.back(), test::im_end_id);

  wanted.min_tokens = 290;  // longer than any text of the schema: it ends where it must
  auto const long_one = run_all(toy(), {wanted}).front();
  EXPECT_EQ(long_one->outcome->finish, finish_reason::stop);
  EXPECT_TRUE(json::accept(long_one->all.content)) << long_one->all.content;

  wanted.min_tokens = 0;
  wanted.stop_ids.clear();  // ignore_eos
  auto const no_stop = run_all(toy(), {wanted}).front();
  EXPECT_EQ(no_stop->outcome->finish, finish_reason::stop);
  EXPECT_EQ(no_stop->all.content, straight_answer(toy(), wanted).content);
  EXPECT_TRUE(json::accept(no_stop->all.content)) << no_stop->all.content;

  wanted.stop_ids = {'}'};  // a stop id that is text: it ends the output where the text has it
  auto const odd = run_all(toy(), {wanted}).front();
  EXPECT_EQ(odd->get(), straight_answer(toy(), wanted));
  EXPECT_EQ(odd->outcome->finish, finish_reason::stop);
  EXPECT_EQ(odd->all.content + "}", no_stop->all.content);
}

// T21: the grammar holds from behind the reasoning on, and the JSON is content.
TEST(constrained_output, t21_begins_behind_the_reasoning) {
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    for (int k : {0, 3, 15}) {
      request wanted = wanted_json(seed, k, seed % 2 == 1);
      wanted.grammar = grammar_of(schema_text, true);
      wanted.split_reasoning = wanted.starts_in_reasoning = true;
      auto const sink = run_all(toy(), {wanted}).front();
      ASSERT_EQ(sink->get(), straight_answer(toy(), wanted)) << "seed " << seed << ", k " << k;
      ASSERT_TRUE(json::accept(sink->all.content)) << "seed " << seed << ": " << sink->all.content;
      if (k > 0 || wanted.sampling.temperature > 0) continue;
      // The reasoning is that of a free answer.
      request free = wanted;
      free.grammar = {};
      auto const plain = run_all(toy(), {free}).front();
      EXPECT_EQ(plain->all.reasoning, sink->all.reasoning) << "seed " << seed;
    }
  }
}

TEST(constrained_output, a_budget_ends_the_reasoning_after_exactly_so_many_tokens) {
  int spent = 0;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    for (std::int64_t const budget : {0, 1, 2, 5, 17, 40}) {
      for (bool const held : {false, true}) {
        for (int k : {0, 7, 15}) {
          auto const what = "seed " + std::to_string(seed) + ", budget " + std::to_string(budget) +
                            ", k " + std::to_string(k) + ", grammar " + std::to_string(held);
          request wanted = wanted_json(seed, k, seed % 2 == 1);
          wanted.grammar = held ? grammar_of(schema_text, true) : text::token_grammar{};
          wanted.split_reasoning = wanted.starts_in_reasoning = true;
          wanted.max_tokens = 120;
          request unlimited = wanted;
          wanted.thinking_budget = budget;
          wanted.end_reasoning_id = test::think_end_id;
          auto const got = run_all(toy(), {wanted}).front();
          ASSERT_EQ(got->get(), straight_answer(toy(), wanted)) << what;
          auto const& ids = got->all.ids;
          auto const end = std::ranges::find(ids, test::think_end_id) - ids.begin();
          ASSERT_LE(end, budget) << what;
          ASSERT_EQ(got->outcome->usage.reasoning_tokens, end + 1) << what;  // with </think>
          auto const free = run_all(toy(), {unlimited}).front()->all.ids;
          auto const free_end = std::ranges::find(free, test::think_end_id) - free.begin();
          ASSERT_EQ(end, std::min<std::int64_t>(budget, free_end)) << what;
          ASSERT_TRUE(std::equal(ids.begin(), ids.begin() + end, free.begin())) << what;
          spent += free_end > budget ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(spent, 20);
}

TEST(constrained_output, a_budget_without_a_token_for_the_end_is_refused) {
  test::toy_model model(toy());
  engine driven(model, byte_tokenizer());
  request wanted = greedy_request(3, 5, 0);
  wanted.thinking_budget = 5;
  EXPECT_THROW(driven.submit(wanted, std::make_shared<recorder>()), error);
  wanted.thinking_budget = -1;
  wanted.end_reasoning_id = test::think_end_id;
  EXPECT_THROW(driven.submit(wanted, std::make_shared<recorder>()), error);
  wanted.thinking_budget.reset();
  wanted.top_logprobs = 1000;
  EXPECT_THROW(driven.submit(wanted, std::make_shared<recorder>()), error);
}

// By the definition, in long double and with all ids sorted.
TEST(logprobs, are_the_log_of_the_share_of_each_id) {
  std::vector<float> const row = {1.5F, -2, 30, 30, 0, 29.5F};
  long double sum = 0;
  for (float const logit : row) sum += std::exp(static_cast<long double>(logit));
  auto const expected = [&](std::size_t id) {
    return static_cast<double>(static_cast<long double>(row[id]) - std::log(sum));
  };
  auto const got = logprobs_of(row, 4, 4);
  EXPECT_EQ(got.chosen.id, 4);
  EXPECT_NEAR(got.chosen.logprob, expected(4), 1e-12);
  std::vector<std::int32_t> ids;
  for (auto const& one : got.top) {
    ids.push_back(one.id);
    EXPECT_NEAR(one.logprob, expected(static_cast<std::size_t>(one.id)), 1e-12);
  }
  EXPECT_EQ(ids, (std::vector<std::int32_t>{2, 3, 5, 0}));  // of equal ones the lower first
  EXPECT_EQ(logprobs_of(row, 0, 100).top.size(), row.size());
  EXPECT_TRUE(logprobs_of(row, 0, 0).top.empty());
  EXPECT_TRUE(std::isfinite(logprobs_of(std::vector<float>{3e38F, -3e38F}, 1, 2).chosen.logprob));
}

// S10: rows of a verify pass, penalties, temperature and masks make no difference to them.
TEST(logprobs, s10_are_of_the_model_alone_and_the_same_for_every_depth) {
  for (bool const held : {false, true}) {
    for (int k : {0, 1, 3, 7, 15}) {
      request wanted = wanted_json(4, k, true);
      if (!held) wanted.grammar = {};
      wanted.sampling.frequency_penalty = 0.5F;
      wanted.top_logprobs = 3;
      wanted.max_tokens = 60;
      auto const options = toy();
      auto const sinks = run_all(options, {wanted, wanted_json(9, 7, true)});
      auto const& got = sinks[0]->all;
      bool const stopped = sinks[0]->outcome->finish == finish_reason::stop;
      ASSERT_EQ(got.logprobs.size(), got.ids.size() - (stopped ? 1 : 0)) << "k " << k;
      EXPECT_TRUE(sinks[1]->all.logprobs.empty());

      test::toy_model const model(options);
      test::toy_state state = model.first_state();
      for (std::int32_t const id : wanted.prompt_ids) state = test::toy_model::advance(state, id);
      std::vector<float> row(static_cast<std::size_t>(options.limits.vocab_size));
      for (std::size_t i = 0; i < got.logprobs.size(); ++i) {
        model.logits_after(state, row);
        auto const valid =
            std::span<float const>(row).first(static_cast<std::size_t>(options.limits.valid_ids));
        ASSERT_EQ(got.logprobs[i], logprobs_of(valid, got.ids[i], 3))
            << "k " << k << ", token " << i;
        state = test::toy_model::advance(state, got.ids[i]);
      }
    }
  }
}

}  // namespace
}  // namespace qwen38::engine
