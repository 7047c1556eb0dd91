// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "model/measure_rounds.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/model/golden.hpp"
#include "test/model/tiny_model.hpp"
#include "test/text/schema_validator.hpp"
#include "text/answer_grammar.hpp"
#include "text/chat_template.hpp"
#include "text/vocabulary.hpp"

// The engine on the real model: whatever else runs, however the prompt is cut, and whether it was
// known before, a request's ids and text are the same bits as when it runs alone, cold, with k = 0.
namespace qwen38::engine {
namespace {

constexpr char const* tiny = "../model/golden/tiny";
constexpr char const* demo = "../../demo_model";
constexpr int depths[] = {0, 1, 3, 7, 15};
using json = nlohmann::ordered_json;

std::unique_ptr<model::qwen38_model> open(std::filesystem::path const& directory,
                                          std::int32_t valid_ids, std::int32_t lanes,
                                          std::int32_t pages, std::int32_t snapshots,
                                          std::int32_t prefill_pass = 64) {
  return std::make_unique<model::qwen38_model>(
      std::make_shared<checkpoint::repository>(directory), checkpoint::load_model_config(directory),
      ops::cpu::make_backend(1),
      model::qwen38_options{valid_ids, lanes, 512, pages, snapshots, prefill_pass});
}

/// A model and an engine that the test drives.
struct real_engine {
  real_engine(std::int32_t lanes, std::int32_t pages, std::int32_t snapshots,
              std::int32_t prefill_pass = 64)
      : model(open(tiny, test::byte_vocab_size, lanes, pages, snapshots, prefill_pass)),
        loop(*model, byte_tokenizer(), {.queue_limit = 1000, .costs = linear_costs(0.05, 0.05)}) {}
  ~real_engine() {
    run_to_end(loop);
    expect_idle(loop);
  }
  std::shared_ptr<recorder> submit(request const& wanted) {
    auto sink = std::make_shared<recorder>();
    latest = loop.submit(wanted, sink);
    return sink;
  }
  std::shared_ptr<recorder> run(request const& wanted) {
    auto sink = submit(wanted);
    run_to_end(loop);
    return sink;
  }

  std::unique_ptr<model::qwen38_model> model;
  engine loop;
  std::uint64_t latest = 0;
};

/// The answer of a request that runs alone, cold, with no drafts.
answer solo(request wanted) {
  static auto const alone = open(tiny, test::byte_vocab_size, 1, 8, 0);
  engine driven(*alone, byte_tokenizer());
  wanted.draft_tokens = 0;
  wanted.chooses_depth = false;
  auto const sink = std::make_shared<recorder>();
  driven.submit(wanted, sink);
  run_to_end(driven);
  return sink->get();
}

TEST(engine_model, cold_and_warm_answers_are_the_same_at_every_length_and_depth) {
  for (std::size_t prompt : {1, 63, 64, 65, 127, 128, 129}) {
    for (int k : depths) {
      std::string const what = "prompt " + std::to_string(prompt) + ", k " + std::to_string(k);
      request wanted = greedy_request(prompt, 12, k, 3);
      wanted.sampling.temperature = k == 3 ? 0.8F : 0.0F;
      answer const expected = solo(wanted);
      real_engine plain(1, 8, 0);
      auto const cold = plain.run(wanted);
      EXPECT_EQ(cold->get(), expected) << what;
      real_engine driven(2, 8, 2);
      EXPECT_EQ(driven.run(wanted)->get(), expected) << what;
      auto const warm = driven.run(wanted);
      EXPECT_EQ(warm->get(), expected) << what;
      EXPECT_EQ(warm->outcome->usage.cached_tokens,
                (static_cast<std::int64_t>(prompt) - 1) / 64 * 64)
          << what;
      EXPECT_EQ(warm->outcome->speculation.drafted, cold->outcome->speculation.drafted) << what;
      EXPECT_EQ(warm->outcome->speculation.accepted_at, cold->outcome->speculation.accepted_at)
          << what;
    }
  }
}

// Passes of 128 rows: on the CPU a row's bits do not depend on a pass's rows, so that answers are
// also those of passes of 64.
TEST(engine_model, wide_prefill_passes_change_no_answer_cold_or_warm) {
  constexpr std::int32_t pass = 128;
  for (std::size_t prompt : {1, 64, 127, 128, 129, 255, 257, 319, 400}) {
    for (int k : {0, 7}) {
      std::string const what = "prompt " + std::to_string(prompt) + ", k " + std::to_string(k);
      request wanted = greedy_request(prompt, 12, k, 5);
      wanted.sampling.temperature = k == 7 ? 0.8F : 0.0F;
      answer const expected = solo(wanted);
      real_engine plain(1, 8, 0, pass);
      auto const cold = plain.run(wanted);
      EXPECT_EQ(cold->get(), expected) << what;
      real_engine driven(2, 16, 2, pass);
      EXPECT_EQ(driven.run(wanted)->get(), expected) << what;
      request longer = wanted;  // goes on from the last border of the first
      auto const more = random_prompt(70, 9);
      longer.prompt_ids.insert(longer.prompt_ids.end(), more.begin(), more.end());
      for (request const* again : {&wanted, &longer}) {
        auto const warm = driven.run(*again);
        EXPECT_EQ(warm->get(), solo(*again)) << what;
        EXPECT_EQ(warm->outcome->usage.cached_tokens,
                  (static_cast<std::int64_t>(prompt) - 1) / pass * pass)
            << what;
      }
      auto const same = driven.run(wanted);
      EXPECT_EQ(same->outcome->speculation.accepted_at, cold->outcome->speculation.accepted_at)
          << what;
    }
  }
}

// Eight lanes at k = 15 are 128 rows: more than one pass holds.
TEST(engine_model, lanes_split_over_passes_change_no_answer) {
  for (std::uint32_t lanes : {1U, 2U, 5U, 8U}) {
    real_engine driven(static_cast<std::int32_t>(lanes), 24, 0);
    std::vector<request> wanted;
    std::vector<std::shared_ptr<recorder>> sinks;
    for (std::uint32_t i = 0; i < lanes; ++i) {
      wanted.push_back(greedy_request(20 + i, 20, 15, i));
      sinks.push_back(driven.submit(wanted.back()));
    }
    run_to_end(driven.loop);
    for (std::size_t i = 0; i < lanes; ++i)
      EXPECT_EQ(sinks[i]->get(), solo(wanted[i])) << "lanes " << lanes << ", lane " << i;
  }
}

TEST(engine_model, a_dialogue_goes_on_where_it_was) {
  for (std::size_t first : {20, 130}) {
    real_engine driven(2, 16, 3);
    request turn = greedy_request(first, 30, 7, 8);
    for (std::uint32_t number = 1; number <= 3; ++number) {
      auto const before = std::ssize(turn.prompt_ids);
      auto const sink = driven.run(turn);
      EXPECT_EQ(sink->get(), solo(turn)) << "first " << first << ", turn " << number;
      turn.prompt_ids.insert(turn.prompt_ids.end(), sink->all.ids.begin(), sink->all.ids.end());
      auto const more = random_prompt(30, number);
      turn.prompt_ids.insert(turn.prompt_ids.end(), more.begin(), more.end());
      auto const again = driven.run(turn);
      EXPECT_EQ(again->outcome->usage.cached_tokens, (before - 1) / 64 * 64);
      EXPECT_EQ(again->get(), solo(turn)) << "first " << first << ", turn " << number;
    }
  }
}

// Random arrivals, depths, cancellations, prompts that meet and part, and a pool that is too small
// for all.
TEST(engine_model, no_mix_of_lanes_depths_and_cached_beginnings_changes_an_answer) {
  std::int64_t compared = 0;
  std::int64_t cached = 0;
  for (std::uint32_t seed = 0; seed < 7; ++seed) {
    std::mt19937 generator(seed);
    auto const random = [&](std::uint32_t below) {
      return static_cast<std::uint32_t>(generator()) % below;
    };
    real_engine driven(2 + static_cast<std::int32_t>(seed), 14,
                       static_cast<std::int32_t>(seed % 4));
    std::vector<request> wanted;
    std::vector<std::shared_ptr<recorder>> sinks;
    for (int i = 0; i < 20; ++i) {
      request one = greedy_request(1 + random(200), 1 + random(16), depths[random(5)], random(3));
      one.sampling.temperature = random(2) == 0 ? 0.0F : 1.0F;
      one.sampling.seed = random(100);
      one.chooses_depth = one.draft_tokens == max_draft_tokens;
      if (random(4) == 0) one.stop_ids = {static_cast<std::int32_t>(random(200))};
      wanted.push_back(one);
      sinks.push_back(driven.submit(one));
      if (random(5) == 0) driven.loop.cancel(driven.latest - random(3));
      for (std::uint32_t steps = random(8); steps > 0; --steps) driven.loop.step();
    }
    run_to_end(driven.loop);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      cached += sinks[i]->outcome->usage.cached_tokens;
      answer const got = sinks[i]->get();
      if (got.finish == finish_reason::cancelled) continue;
      ASSERT_EQ(got, solo(wanted[i])) << "seed " << seed << ", request " << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 80);
  EXPECT_GT(cached, 500);
}

// The demo model's texts are drafted well, the tiny one's, whose weights are random, badly.
TEST(engine_model, a_chosen_depth_gives_the_text_of_every_depth_and_follows_the_text) {
  request const noise = choosing_request(30, 120, 5);
  real_engine random(1, 8, 0);
  auto const badly = random.run(noise);
  EXPECT_EQ(badly->get(), solo(noise));
  auto const& bad = badly->outcome->speculation;
  EXPECT_GT(bad.rounds_at[0], bad.rounds / 2);
  EXPECT_GT(bad.drafted, 0);

  text::tokenizer const tokenizer = text::tokenizer::from_checkpoint(demo);
  auto const lm = open(demo, tokenizer.vocab_size(), 1, 8, 0);
  auto const measured = model::measure_rounds(*lm, {});
  ASSERT_TRUE(measured);
  for (auto const& one : measured->of) EXPECT_GT(one.points.front().ms, 0);
  engine driven(*lm, tokenizer, {.costs = linear_costs(0.05, 0.05)});
  test::golden const documents("../model/golden/demo");
  request wanted;
  wanted.prompt_ids = documents.prompts().front().ids;
  wanted.sampling.temperature = 0;
  wanted.max_tokens = 100;
  std::vector<std::shared_ptr<recorder>> sinks;
  for (int k : {0, 15}) {
    wanted.draft_tokens = k;
    wanted.chooses_depth = k > 0;
    sinks.push_back(std::make_shared<recorder>());
    driven.submit(wanted, sinks.back());
    run_to_end(driven);
  }
  EXPECT_EQ(sinks[1]->get(), sinks[0]->get());
  auto const& good = sinks[1]->outcome->speculation;
  EXPECT_EQ(good.rounds_at[0], 0);
  EXPECT_GT(good.tau(), 4);
}

// By a clock that counts passes: a round is one of the target and one for each draft.
TEST(measure_rounds, times_every_depth_with_one_lane_and_with_many) {
  test::toy_options options;
  options.limits.max_lanes = 8;
  test::toy_model toy(options);
  model::measure_options how;
  how.untimed_rounds = 1;
  how.lanes = 100;
  how.now = [&toy] {
    auto const passes = toy.counts().forward_passes + toy.counts().draft_passes;
    return std::chrono::steady_clock::time_point(std::chrono::milliseconds(passes));
  };
  auto const costs = model::measure_rounds(toy, how);
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->max_rows, 96);
  for (std::size_t i = 0; i < costs->of.size(); ++i) {
    int const k = model::round_depths[i];
    auto const& points = costs->of[i].points;
    ASSERT_EQ(points.size(), 2U) << "k " << k;
    EXPECT_EQ(points[0].lanes, 1);
    EXPECT_EQ(points[1].lanes, std::min(8, 96 / (k + 1))) << "k " << k;
    for (auto const& point : points) EXPECT_DOUBLE_EQ(point.ms, 1 + k);
    EXPECT_EQ(costs->of[i].ms_per_token, 0);
  }
  options.limits.has_mtp = false;
  test::toy_model plain(options);
  EXPECT_FALSE(model::measure_rounds(plain, how));
  options.limits.has_mtp = true;
  options.limits.max_context = 20;
  test::toy_model narrow(options);
  EXPECT_FALSE(model::measure_rounds(narrow, how));
}

TEST(measure_rounds, counts_live_context_and_leaves_no_trace_in_answers) {
  real_engine driven(2, 8, 2);
  // Each pass takes a millisecond more than the one before: what comes later takes longer.
  std::int64_t calls = 0;
  model::measure_options how;
  how.least_far = 256;
  how.now = [&calls] {
    ++calls;
    return std::chrono::steady_clock::time_point(std::chrono::microseconds(calls * calls));
  };
  auto const costs = model::measure_rounds(*driven.model, how);
  ASSERT_TRUE(costs);
  EXPECT_GT(costs->of[0].ms_per_token, 0);
  request const wanted = greedy_request(130, 20, 7, 4);
  EXPECT_EQ(driven.run(wanted)->get(), solo(wanted));
  EXPECT_EQ(driven.run(wanted)->get(), solo(wanted));
}

// Log probabilities make the sampler choose, from logits; without them the model does.
TEST(engine_model, penalties_give_the_same_ids_whoever_chooses_at_every_depth) {
  std::vector<answer> all;
  for (float temperature : {0.0F, 0.9F}) {
    for (int k : {0, 3, 15}) {
      for (bool by_sampler : {true, false}) {
        request wanted = greedy_request(40, 40, k, 6);
        wanted.sampling.temperature = temperature;
        wanted.sampling.repetition_penalty = 1.3F;
        wanted.sampling.frequency_penalty = 0.4F;
        wanted.sampling.presence_penalty = -0.2F;
        if (by_sampler) wanted.top_logprobs = 0;
        real_engine driven(1, 8, 0);
        all.push_back(driven.run(wanted)->get());
        std::size_t const first = temperature == 0 ? 0 : 6;
        EXPECT_EQ(all.back().ids, all[first].ids) << "k " << k << ", by sampler " << by_sampler;
      }
    }
  }
  request plain = greedy_request(40, 40, 0, 6);
  EXPECT_NE(solo(plain).ids, all.front().ids);
}

// Where drafts are good: a resumed prompt drafts as well as a cold one.
TEST(engine_model, acceptance_after_a_resume_equals_the_cold_one) {
  text::tokenizer const tokenizer = text::tokenizer::from_checkpoint(demo);
  test::golden const documents("../model/golden/demo");
  for (test::golden::prompt const& prompt : documents.prompts()) {
    request wanted;
    wanted.prompt_ids = prompt.ids;
    wanted.sampling.temperature = 0;
    wanted.max_tokens = 40;
    wanted.draft_tokens = 7;
    ASSERT_GT(prompt.ids.size(), 65U) << prompt.name;
    auto const model = open(demo, tokenizer.vocab_size(), 1, 8, 2);
    engine driven(*model, tokenizer);
    std::vector<std::shared_ptr<recorder>> sinks;
    for (int k : {7, 7, 0}) {
      wanted.draft_tokens = k;
      sinks.push_back(std::make_shared<recorder>());
      driven.submit(wanted, sinks.back());
      run_to_end(driven);
    }
    EXPECT_EQ(sinks[0]->outcome->usage.cached_tokens, 0) << prompt.name;
    EXPECT_GE(sinks[1]->outcome->usage.cached_tokens, 64) << prompt.name;
    EXPECT_EQ(sinks[1]->get(), sinks[0]->get()) << prompt.name;
    EXPECT_EQ(sinks[2]->get(), sinks[0]->get()) << prompt.name;
    EXPECT_GT(sinks[0]->outcome->speculation.accepted, 0) << prompt.name;
    EXPECT_EQ(sinks[1]->outcome->speculation.accepted_at,
              sinks[0]->outcome->speculation.accepted_at)
        << prompt.name;
  }
}

json schema_of(json const& value) {
  if (value.is_string()) return {{"type", "string"}};
  if (value.is_number_integer()) return {{"type", "integer"}};
  if (value.is_number()) return {{"type", "number"}};
  if (value.is_array())
    return {{"type", "array"}, {"minItems", 1}, {"items", schema_of(value.at(0))}};
  json properties = json::object();
  json required = json::array();
  for (auto const& [name, member] : value.items()) {
    properties[name] = schema_of(member);
    required.push_back(name);
  }
  return {{"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

/// The demo model on its first held-out documents, each with the schema of its own answer.
struct demo_answers {
  demo_answers()
      : tokenizer(text::tokenizer::from_checkpoint(demo)),
        words(std::make_shared<text::vocabulary const>(tokenizer)),
        model(open(demo, tokenizer.vocab_size(), 2, 32, 0)),
        loop(*model, tokenizer) {
    std::ifstream file(std::string(demo) + "/eval/heldout.jsonl");
    for (std::string line; documents.size() < 2 && std::getline(file, line);)
      documents.push_back(json::parse(line));
  }

  request ask(json const& document, bool thinking, json const* schema) {
    text::message user;
    user.content = document.at("user").get<std::string>();
    text::chat_options options;
    options.enable_thinking = thinking;
    request out;
    out.prompt_ids = text::encode_chat(tokenizer, std::span(&user, 1), nullptr, options);
    out.sampling.temperature = 0;
    out.max_tokens = 330;
    out.stop_ids = {*tokenizer.token_to_id("<|im_end|>")};
    out.split_reasoning = true;
    out.starts_in_reasoning = thinking;
    out.end_reasoning_id = *tokenizer.token_to_id("</think>");
    out.grammar = {words, std::make_shared<text::byte_grammar const>(
                              text::make_json_grammar(schema, thinking))};
    return out;
  }
  std::shared_ptr<recorder> run(request const& wanted) {
    auto sink = std::make_shared<recorder>();
    loop.submit(wanted, sink);
    run_to_end(loop);
    return sink;
  }

  text::tokenizer tokenizer;
  std::shared_ptr<text::vocabulary const> words;
  std::unique_ptr<model::qwen38_model> model;
  engine loop;
  std::vector<json> documents;
};

// The model answers in JSON anyway; the schema that it is held to here has other names for its
// members, which it would never write by itself.
TEST(engine_model, a_schema_holds_whatever_the_depth_and_drafts_are_still_accepted) {
  demo_answers served;
  for (json const& document : served.documents) {
    bool const thinking = document.at("enable_thinking");
    json const& answer = document.at("expected");
    json const own = schema_of(answer);
    json const odd = json::parse(
        R"({"type":"object","properties":{"kind":{"enum":["first","second"]},"note":{"type":"string","maxLength":12},
        "count":{"type":["integer","null"]}},"required":["kind","note","count"],"additionalProperties":false})");
    for (json const* const schema : {&own, &odd}) {
      for (float const temperature : {0.0F, 1.0F}) {
        std::vector<std::int32_t> ids;
        for (int k : {0, 3, 7}) {
          auto const what = document.at("id").get<std::string>() + ", k " + std::to_string(k) +
                            ", temperature " + std::to_string(temperature) +
                            (schema == &own ? ", own" : ", odd");
          request wanted = served.ask(document, thinking, schema);
          wanted.draft_tokens = k;
          wanted.sampling.temperature = temperature;
          wanted.top_logprobs = 2;
          auto const sink = served.run(wanted);
          ASSERT_EQ(sink->outcome->finish, finish_reason::stop)
              << what << ": " << sink->all.content;
          json const value = json::parse(sink->all.content, nullptr, false);
          ASSERT_TRUE(text::testing::fulfils(value, *schema, *schema))
              << what << ": " << sink->all.content;
          if (schema == &own && temperature == 0 && k == 0) {
            EXPECT_EQ(value, answer) << what;
          }
          if (k == 0) {
            ids = sink->all.ids;
            continue;
          }
          EXPECT_EQ(sink->all.ids, ids) << what;
          EXPECT_GT(sink->outcome->speculation.accepted, 0) << what;
        }
      }
    }
  }
}

TEST(engine_model, a_thinking_budget_is_exact_and_the_answer_still_comes) {
  demo_answers served;
  json const& document = served.documents.at(1);
  ASSERT_TRUE(document.at("enable_thinking").get<bool>());
  json const schema = schema_of(document.at("expected"));
  for (std::int64_t const budget : {0, 5, 12}) {
    std::vector<std::int32_t> ids;
    for (int k : {0, 3, 7}) {
      request wanted = served.ask(document, true, &schema);
      wanted.thinking_budget = budget;
      wanted.draft_tokens = k;
      auto const sink = served.run(wanted);
      auto const what = "budget " + std::to_string(budget) + ", k " + std::to_string(k);
      EXPECT_EQ(sink->outcome->usage.reasoning_tokens, budget + 1) << what;  // </think> is one
      EXPECT_EQ(sink->all.ids.at(static_cast<std::size_t>(budget)), wanted.end_reasoning_id)
          << what;
      EXPECT_TRUE(
          text::testing::fulfils(json::parse(sink->all.content, nullptr, false), schema, schema))
          << what << ": " << sink->all.content;
      if (k == 0) ids = sink->all.ids;
      EXPECT_EQ(sink->all.ids, ids) << what;
    }
  }
}

// S10, with the real model: a row's log probabilities are the same bits in any pass.
TEST(engine_model, s10_log_probabilities_are_the_same_bits_for_every_depth) {
  demo_answers served;
  request wanted = served.ask(served.documents.at(0), false, nullptr);
  wanted.grammar = {};
  wanted.sampling.temperature = 0.9F;
  wanted.top_logprobs = 5;
  wanted.max_tokens = 60;
  auto const plain = served.run(wanted);
  ASSERT_GE(plain->all.logprobs.size(), 59U);
  for (int k : {1, 3, 7, 15}) {
    wanted.draft_tokens = k;
    EXPECT_EQ(served.run(wanted)->all.logprobs, plain->all.logprobs) << "k " << k;
  }
}

}  // namespace
}  // namespace qwen38::engine
