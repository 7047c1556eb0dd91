// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/model/golden.hpp"
#include "test/model/tiny_model.hpp"

// The engine on the real model: whatever else runs, however the prompt is cut, and whether it was
// known before, a request's ids and text are the same bits as when it runs alone, cold, with k = 0.
namespace qwen38::engine {
namespace {

constexpr char const* tiny = "../model/golden/tiny";
constexpr char const* demo = "../../demo_model";
constexpr int depths[] = {0, 1, 3, 7, 15};

std::unique_ptr<model::qwen38_model> open(std::filesystem::path const& directory,
                                          std::int32_t valid_ids, std::int32_t lanes,
                                          std::int32_t pages, std::int32_t snapshots) {
  return std::make_unique<model::qwen38_model>(
      std::make_shared<checkpoint::repository>(directory), checkpoint::load_model_config(directory),
      ops::cpu::make_backend(1), model::qwen38_options{valid_ids, lanes, 512, pages, snapshots});
}

/// A model and an engine that the test drives.
struct real_engine {
  real_engine(std::int32_t lanes, std::int32_t pages, std::int32_t snapshots)
      : model(open(tiny, test::byte_vocab_size, lanes, pages, snapshots)),
        loop(*model, byte_tokenizer(), {.queue_limit = 1000}) {}
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

}  // namespace
}  // namespace qwen38::engine
