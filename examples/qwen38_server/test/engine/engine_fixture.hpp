// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/generation.hpp"
#include "test/engine/toy_model.hpp"
#include "test/support/byte_tokenizer.hpp"

namespace qwen38::engine {

inline text::tokenizer const& byte_tokenizer() {
  static text::tokenizer const made = test::make_byte_tokenizer();
  return made;
}

inline std::vector<std::int32_t> random_prompt(std::size_t length, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids(length);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % test::byte_vocab_size);
  return ids;
}

inline request greedy_request(std::size_t prompt_length, std::int64_t max_tokens, int draft_tokens,
                              std::uint32_t seed = 1) {
  request wanted;
  wanted.prompt_ids = random_prompt(prompt_length, seed);
  wanted.sampling.temperature = 0;
  wanted.max_tokens = max_tokens;
  wanted.draft_tokens = draft_tokens;
  return wanted;
}

/// As greedy_request, of a depth that is chosen round by round.
inline request choosing_request(std::size_t prompt_length, std::int64_t max_tokens,
                                std::uint32_t seed = 1) {
  request wanted = greedy_request(prompt_length, max_tokens, max_draft_tokens, seed);
  wanted.chooses_depth = true;
  return wanted;
}

/// Rounds whose rows cost `row` each and whose drafts `draft` more, beyond 1 of the pass.
inline model::round_costs linear_costs(double row, double draft) {
  model::round_costs costs;
  for (std::size_t i = 0; i < costs.of.size(); ++i) {
    int const k = model::round_depths[i];
    auto const ms = [&](int lanes) { return 1 + draft * k + row * lanes * (k + 1); };
    costs.of[i].points = {{1, ms(1)}, {2, ms(2)}};
  }
  return costs;
}

/// What a request put out that may not depend on speculation or on the other lanes.
struct answer {
  std::vector<std::int32_t> ids;
  std::string reasoning;
  std::string content;
  finish_reason finish = finish_reason::failed;
  std::optional<std::string> stop_string;
  std::string message;
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t reasoning_tokens = 0;
  bool operator==(answer const&) const = default;
};

inline void PrintTo(answer const& one, std::ostream* out) {
  *out << "finish " << static_cast<int>(one.finish) << " stop '" << one.stop_string.value_or("-")
       << "' message '" << one.message << "' tokens " << one.prompt_tokens << '+'
       << one.completion_tokens << " (" << one.reasoning_tokens << " reasoning) reasoning '"
       << one.reasoning << "' content '" << one.content << "' ids";
  for (std::int32_t id : one.ids) *out << ' ' << id;
}

inline answer to_answer(output_delta const& all, result const& outcome) {
  return {all.ids,
          all.reasoning,
          all.content,
          outcome.finish,
          outcome.stop_string,
          outcome.message,
          outcome.usage.prompt_tokens,
          outcome.usage.completion_tokens,
          outcome.usage.reasoning_tokens};
}

/// Gathers what one request puts out; not for use from two threads.
class recorder final : public observer {
 public:
  void on_output(output_delta const& delta) override {
    EXPECT_FALSE(outcome) << "output after the end";
    EXPECT_FALSE(delta.ids.empty() && delta.content.empty() && delta.reasoning.empty());
    ++outputs;
    all.reasoning += delta.reasoning;
    all.content += delta.content;
    all.ids.insert(all.ids.end(), delta.ids.begin(), delta.ids.end());
    all.logprobs.insert(all.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  }
  void on_finish(result const& end) override {
    EXPECT_FALSE(outcome) << "a second end";
    outcome = end;
  }

  [[nodiscard]] bool ended() const { return outcome.has_value(); }
  [[nodiscard]] answer get() const { return to_answer(all, outcome.value_or(result{})); }

  output_delta all;
  int outputs = 0;
  std::optional<result> outcome;
};

inline void run_to_end(engine& driven) {
  for (int turns = 0; driven.step(); ++turns)
    ASSERT_LT(turns, 100000) << "the engine does not come to an end";
}

/// Nothing runs, and no lane, page or snapshot is lost.
inline void expect_idle(engine const& driven) {
  auto const now = driven.get_state();
  EXPECT_EQ(now.running, 0U);
  EXPECT_EQ(now.waiting, 0U);
  EXPECT_FALSE(now.failed);
  EXPECT_EQ(now.kv_pages_reserved, 0U);
  EXPECT_EQ(now.kv_pages_cached == 0, now.snapshots_used == 0);
  EXPECT_LE(now.snapshots_used, now.snapshots);
  EXPECT_EQ(now.snapshots_reserved, 0U);
}

/// Submits all at once to an engine on this model and runs it until nothing is left.
inline std::vector<std::shared_ptr<recorder>> run_all(test::toy_model& model,
                                                      std::vector<request> const& wanted) {
  engine driven(model, byte_tokenizer(),
                {.queue_limit = wanted.size(), .costs = linear_costs(0.05, 0.05)});
  std::vector<std::shared_ptr<recorder>> sinks;
  for (request const& one : wanted) {
    sinks.push_back(std::make_shared<recorder>());
    driven.submit(one, sinks.back());
  }
  run_to_end(driven);
  expect_idle(driven);
  for (auto const& sink : sinks) EXPECT_TRUE(sink->ended());
  return sinks;
}

inline std::vector<std::shared_ptr<recorder>> run_all(test::toy_options const& options,
                                                      std::vector<request> const& wanted) {
  test::toy_model model(options);
  return run_all(model, wanted);
}

/// The answer by definition: token after token from the toy's own state, without engine, lanes,
/// passes or drafts.
inline answer straight_answer(test::toy_options const& options, request const& wanted) {
  test::toy_model const model(options);
  generation output(wanted, byte_tokenizer(), options.limits.valid_ids);
  output.begin();
  test::toy_state state = model.first_state();
  for (std::int32_t id : wanted.prompt_ids) state = test::toy_model::advance(state, id);
  std::vector<float> row(static_cast<std::size_t>(options.limits.vocab_size));
  sampler_scratch scratch;
  output_delta all;
  while (!output.ended()) {
    model.logits_after(state, row);
    std::int32_t const id = output.sample(row, scratch);
    output.add(id);
    state = test::toy_model::advance(state, id);
  }
  return to_answer(output.take_delta(), output.outcome());
}

}  // namespace qwen38::engine
