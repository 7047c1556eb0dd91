// SPDX-License-Identifier: Apache-2.0
// The promise, over ranks: a text depends on the number of ranks at most, never on draft depth,
// lanes, how the prompt was cut, or what the prefix cache knew of it; and other numbers of ranks
// differ only where two ids tie within the rounding that is measured here.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/collector.hpp"
#include "engine/engine.hpp"
#include "golden.hpp"
#include "test/support/byte_tokenizer.hpp"
#include "tiny_model.hpp"

namespace {

using namespace qwen38;
using namespace qwen38::test;

constexpr char const* tiny = "../model/golden/tiny";
constexpr char const* demo = "../../demo_model";
constexpr std::int32_t demo_valid_ids = 4077;
constexpr int lanes = 4;

using id_list = std::vector<std::int32_t>;

std::vector<id_list> demo_prompts() {
  std::vector<id_list> prompts;
  golden const known("../model/golden/demo");
  for (golden::prompt const& one : known.prompts()) prompts.push_back(one.ids);
  return prompts;
}

engine::request make_request(id_list prompt, int draft_tokens, bool is_sampled) {
  engine::request wanted;
  wanted.prompt_ids = std::move(prompt);
  wanted.sampling.temperature = is_sampled ? 1.0F : 0.0F;
  wanted.sampling.seed = 5;
  wanted.max_tokens = 16;
  wanted.draft_tokens = draft_tokens;
  return wanted;
}

/// Answers of requests that are all submitted at once; adds up their cached tokens.
std::vector<id_list> answer(engine::engine& running, std::vector<engine::request> const& requests,
                            std::int64_t& cached_tokens) {
  std::vector<std::shared_ptr<cli::collector>> sinks;
  for (engine::request const& one : requests) {
    sinks.push_back(std::make_shared<cli::collector>());
    running.submit(one, sinks.back());
  }
  std::vector<id_list> answers;
  for (auto const& sink : sinks) {
    engine::result const& outcome = sink->wait();
    EXPECT_EQ(outcome.finish, engine::finish_reason::length);
    cached_tokens += outcome.usage.cached_tokens;
    answers.push_back(sink->ids);
  }
  return answers;
}

std::unique_ptr<engine::engine> start(model::causal_lm& lm, text::tokenizer const& tokenizer) {
  engine::engine_options options;
  options.queue_limit = 1000;
  auto running = std::make_unique<engine::engine>(lm, tokenizer, options);
  running->start();
  return running;
}

/// All prompts greedy and one sampled, k of 0, 1, 3 and 7: one lane without a prefix cache, then
/// four with everything mixed, cold and warm.
void expect_one_text(
    std::function<std::unique_ptr<model::rank_group>(int lanes, std::int32_t snapshots)> const&
        open,
    text::tokenizer const& tokenizer, std::vector<id_list> const& prompts) {
  std::vector<engine::request> all;
  std::vector<id_list> wanted;
  auto const alone = open(1, 0);
  auto const one_lane = start(*alone, tokenizer);
  std::int64_t cached_tokens = 0;
  for (bool is_sampled : {false, true}) {
    std::vector<id_list> const chosen = is_sampled ? std::vector<id_list>{prompts[3]} : prompts;
    for (id_list const& prompt : chosen) {
      id_list first;
      for (int k : {0, 1, 3, 7}) {
        all.push_back(make_request(prompt, k, is_sampled));
        id_list const ids = answer(*one_lane, {all.back()}, cached_tokens).front();
        if (k == 0) first = ids;
        EXPECT_EQ(ids, first) << "prompt of " << prompt.size() << " ids, k " << k << ", sampled "
                              << is_sampled;
        wanted.push_back(first);
      }
    }
  }
  EXPECT_EQ(cached_tokens, 0);
  // Deep and shallow drafts, long and short prompts side by side.
  auto const together = open(lanes, 6);
  auto const four_lanes = start(*together, tokenizer);
  for (char const* const state : {"cold", "warm"}) {
    cached_tokens = 0;
    std::vector<id_list> const got = answer(*four_lanes, all, cached_tokens);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i], wanted[i]) << "four lanes, " << state << ", prompt of "
                                   << all[i].prompt_ids.size() << " ids, k " << all[i].draft_tokens;
    }
  }
  EXPECT_GT(cached_tokens, 0);
}

/// Prompts whose lengths lie around the prefill chunk of 64.
std::vector<id_list> around_the_chunk(id_list const& source) {
  std::vector<id_list> prompts;
  for (std::ptrdiff_t length : {1, 63, 64, 65, 129}) {
    prompts.emplace_back(source.begin(), source.begin() + length);
  }
  return prompts;
}

TEST(exactness_over_ranks, tiny_model_over_2) {
  id_list source = some_ids(129, 21);
  for (std::int32_t& id : source) id %= byte_vocab_size;
  text::tokenizer const tokenizer = make_byte_tokenizer();
  // 256 of the valid ids lie on rank 0, five on rank 1.
  expect_one_text(
      [](int count, std::int32_t snapshots) {
        return open_group(tiny, byte_vocab_size, 2, count, 1, 512, snapshots);
      },
      tokenizer, around_the_chunk(source));
}

class exactness_of_demo : public ::testing::TestWithParam<int> {};

TEST_P(exactness_of_demo, one_text_whatever_k_lanes_and_prompt_length) {
  id_list source;
  for (id_list const& prompt : demo_prompts()) {
    source.insert(source.end(), prompt.begin(), prompt.end());
  }
  ASSERT_GE(source.size(), 129U);
  text::tokenizer const tokenizer = text::tokenizer::from_checkpoint(demo);
  expect_one_text(
      [](int count, std::int32_t snapshots) {
        return open_group(demo, demo_valid_ids, GetParam(), count, 1, 512, snapshots);
      },
      tokenizer, around_the_chunk(source));
}

/// A row of logits' best valid id, and its lead over the second.
struct decision {
  std::int32_t id = 0;
  double margin = 0;
};

decision decide(std::span<float const> row, std::int32_t valid_ids) {
  auto const valid = row.first(static_cast<std::size_t>(valid_ids));
  auto const best = std::ranges::max_element(valid);
  double second = -INFINITY;
  for (auto it = valid.begin(); it != valid.end(); ++it) {
    if (it != best) second = std::max(second, static_cast<double>(*it));
  }
  return {static_cast<std::int32_t>(best - valid.begin()), static_cast<double>(*best) - second};
}

/// Logits of all positions, in passes that fit.
std::vector<float> forced(model::causal_lm& lm, id_list const& ids) {
  std::vector<std::size_t> cuts;
  for (std::size_t cut = 64; cut < ids.size(); cut += 64) cuts.push_back(cut);
  return all_logits(lm, 0, ids, cuts);
}

/// `count` greedy ids after the prompt.
id_list greedy(model::causal_lm& lm, id_list ids, std::size_t count) {
  std::size_t const width = static_cast<std::size_t>(lm.get_limits().vocab_size);
  id_list answer;
  auto row = forced(lm, ids);
  while (answer.size() < count) {
    answer.push_back(decide(std::span(row).last(width), lm.get_limits().valid_ids).id);
    model::sequence_rows const next{
        0, static_cast<std::int64_t>(ids.size()), {&answer.back(), 1}, false, 0};
    auto const logits = lm.forward({&next, 1});
    row.assign(logits.begin(), logits.end());
    ids.push_back(answer.back());
  }
  return answer;
}

void expect_only_near_ties(model::causal_lm& whole, model::causal_lm& ranks,
                           std::vector<id_list> const& prompts) {
  std::int32_t const valid_ids = whole.get_limits().valid_ids;
  std::size_t const width = static_cast<std::size_t>(whole.get_limits().vocab_size);
  constexpr std::size_t generated = 40;
  double measured_error = 0;     // over all positions, the whole model's text forced on both
  std::vector<double> margins;   // the whole model's, at all positions
  std::vector<double> switched;  // margins where the two choose different ids
  for (id_list const& prompt : prompts) {
    id_list const text = greedy(whole, prompt, generated);
    id_list const other = greedy(ranks, prompt, generated);
    id_list ids = prompt;
    ids.insert(ids.end(), text.begin(), text.end());
    auto const a = forced(whole, ids);
    auto const b = forced(ranks, ids);
    for (std::size_t at = 0; at < ids.size(); ++at) {
      auto const row = std::span(a).subspan(at * width, width);
      auto const other_row = std::span(b).subspan(at * width, width);
      for (std::size_t i = 0; i < static_cast<std::size_t>(valid_ids); ++i) {
        measured_error = std::max(measured_error, std::abs(static_cast<double>(row[i]) -
                                                           static_cast<double>(other_row[i])));
      }
      decision const chosen = decide(row, valid_ids);
      margins.push_back(chosen.margin);
      if (decide(other_row, valid_ids).id != chosen.id) switched.push_back(chosen.margin);
    }
    auto const [mine, theirs] = std::ranges::mismatch(text, other);
    if (mine != text.end()) {
      // Up to here both texts are one: the choice was made on the row before.
      std::size_t const at = prompt.size() + static_cast<std::size_t>(mine - text.begin()) - 1;
      switched.push_back(decide(std::span(a).subspan(at * width, width), valid_ids).margin);
    }
  }
  std::ranges::sort(margins);
  ::testing::Test::RecordProperty("measured_error", std::to_string(measured_error));
  ::testing::Test::RecordProperty("median_margin", std::to_string(margins[margins.size() / 2]));
  ::testing::Test::RecordProperty("switched", static_cast<int>(switched.size()));
  // Else a margin below the error would say nothing.
  EXPECT_LT(measured_error, margins[margins.size() / 2]);
  for (double margin : switched) EXPECT_LT(margin, measured_error);
}

TEST_P(exactness_of_demo, against_one_rank_only_near_ties_differ) {
  auto const whole = open_model(demo, demo_valid_ids, 1, 1, 1024);
  auto const ranks = open_group(demo, demo_valid_ids, GetParam(), 1, 1, 1024);
  expect_only_near_ties(*whole, *ranks, demo_prompts());
}

INSTANTIATE_TEST_SUITE_P(ranks, exactness_of_demo, ::testing::Values(2, 4));

TEST(exactness_over_ranks, tiny_model_against_one_rank_only_near_ties_differ) {
  auto const whole = open_model(tiny, tiny_valid_ids);
  auto const ranks = open_group(tiny, tiny_valid_ids, 2);
  std::vector<id_list> prompts;
  for (std::uint32_t seed = 31; seed < 37; ++seed) prompts.push_back(some_ids(90, seed));
  expect_only_near_ties(*whole, *ranks, prompts);
}

}  // namespace
