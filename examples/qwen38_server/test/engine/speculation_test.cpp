// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/error.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

namespace qwen38::engine {
namespace {

struct mode {
  char const* name;
  sampling_params sampling;
};

std::vector<mode> const& modes() {
  static std::vector<mode> const all = [] {
    std::vector<mode> made;
    auto const add = [&](char const* name, auto change) {
      mode one{name, {}};
      one.sampling.seed = 1000 + made.size();
      change(one.sampling);
      made.push_back(one);
    };
    auto const penalise = [](sampling_params& p) {
      p.repetition_penalty = 1.2F;
      p.frequency_penalty = 0.3F;
      p.presence_penalty = 0.4F;
    };
    add("greedy", [](sampling_params& p) { p.temperature = 0; });
    add("greedy with penalties", [&](sampling_params& p) {
      p.temperature = 0;
      penalise(p);
    });
    add("sampled", [](sampling_params& p) { p.temperature = 1; });
    add("sampled with penalties", [&](sampling_params& p) { penalise(p); });
    add("hot with negative penalties", [](sampling_params& p) {
      p.temperature = 2.5F;
      p.repetition_penalty = 0.9F;
      p.frequency_penalty = -0.2F;
      p.presence_penalty = -0.5F;
    });
    add("top_k", [](sampling_params& p) { p.top_k = 3; });
    add("top_p", [](sampling_params& p) { p.top_p = 0.7F; });
    add("min_p", [](sampling_params& p) { p.min_p = 0.2F; });
    add("everything", [&](sampling_params& p) {
      p.temperature = 0.7F;
      p.top_k = 20;
      p.top_p = 0.95F;
      p.min_p = 0.02F;
      penalise(p);
    });
    return made;
  }();
  return all;
}

// Seven of ten drafts agree at depth 1, fewer further on.
bool mostly_agrees(std::int64_t position, int depth) {
  return test::toy_model::mix(static_cast<std::uint64_t>(position * 16 + depth)) % 10 <
         static_cast<std::uint64_t>(std::max(8 - depth / 2, 4));
}

test::toy_options toy() {
  test::toy_options options;
  options.agrees = mostly_agrees;
  return options;
}

request sampled_request(mode const& how, std::size_t prompt, std::int64_t max_tokens, int k) {
  request wanted = greedy_request(prompt, max_tokens, k, static_cast<std::uint32_t>(prompt));
  wanted.sampling = how.sampling;
  return wanted;
}

void expect_straight(test::toy_options const& options, request const& wanted,
                     std::string const& what) {
  auto const sinks = run_all(options, {wanted});
  ASSERT_EQ(sinks[0]->get(), straight_answer(options, wanted)) << what;
}

TEST(speculation_output, is_the_same_for_every_depth_mode_and_prompt_length) {
  for (mode const& how : modes()) {
    for (std::size_t prompt : {1, 2, 63, 64, 65, 127, 128, 129}) {
      for (int k = 0; k <= max_draft_tokens; ++k) {
        expect_straight(toy(), sampled_request(how, prompt, 40, k),
                        std::string(how.name) + ", prompt " + std::to_string(prompt) + ", k " +
                            std::to_string(k));
      }
    }
  }
}

TEST(speculation_output, is_the_same_for_every_chunk_size) {
  for (std::int32_t chunk : {1, 2, 3, 7, 16, 64, 65, 96}) {
    test::toy_options options = toy();
    options.limits.prefill_chunk = chunk;
    options.limits.page_tokens = chunk % 16 == 0 ? 16 : chunk;
    for (std::size_t prompt : {1, 2, 3, 15, 16, 17, 33, 64, 65, 97}) {
      for (int k : {0, 1, 4, 15}) {
        expect_straight(options, sampled_request(modes()[3], prompt, 20, k),
                        "chunk " + std::to_string(chunk) + ", prompt " + std::to_string(prompt) +
                            ", k " + std::to_string(k));
      }
    }
  }
}

TEST(speculation_output, is_the_same_for_every_length_and_never_leaves_the_context) {
  for (std::int64_t max_tokens = 1; max_tokens <= 20; ++max_tokens) {
    for (int k = 0; k <= max_draft_tokens; ++k) {
      test::toy_options options = toy();
      options.limits.max_context = 65 + max_tokens;  // the toy refuses a row beyond it
      for (bool agree : {false, true}) {
        if (agree) options.agrees = [](std::int64_t, int) { return true; };
        request const wanted = sampled_request(modes()[0], 65, max_tokens, k);
        auto const sinks = run_all(options, {wanted});
        answer const got = sinks[0]->get();
        ASSERT_EQ(got, straight_answer(options, wanted))
            << "max_tokens " << max_tokens << ", k " << k;
        ASSERT_EQ(got.finish, finish_reason::length);
        ASSERT_EQ(got.completion_tokens, max_tokens);
      }
    }
  }
}

TEST(speculation_output, is_the_same_with_stop_ids_at_any_place_of_a_round) {
  int stopped = 0;
  test::toy_options options = toy();
  options.end_every = 12;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    for (std::int64_t min_tokens : {0, 10}) {
      for (int k = 0; k <= max_draft_tokens; ++k) {
        request wanted = greedy_request(5, 60, k, seed);
        wanted.min_tokens = min_tokens;
        wanted.stop_ids = {test::im_end_id, test::endoftext_id};
        auto const sinks = run_all(options, {wanted});
        answer const got = sinks[0]->get();
        ASSERT_EQ(got, straight_answer(options, wanted)) << "seed " << seed << ", k " << k;
        if (got.finish != finish_reason::stop) continue;
        ++stopped;
        ASSERT_EQ(got.ids.back(), test::im_end_id);
        ASSERT_EQ(std::ranges::count(got.ids, test::im_end_id), 1);
        ASSERT_EQ(got.completion_tokens, std::ssize(got.ids));
        ASSERT_GT(got.completion_tokens, min_tokens);
        ASSERT_EQ(got.content.find("im_end"), std::string::npos);
      }
    }
  }
  EXPECT_GT(stopped, 600);
}

TEST(speculation_output, is_the_same_with_stop_strings_across_tokens_and_rounds) {
  int stopped = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    for (int k = 0; k <= max_draft_tokens; ++k) {
      request wanted = greedy_request(5, 60, k, seed);
      wanted.stop_strings = {"abc", "hg", "dddd", "fa"};
      auto const sinks = run_all(toy(), {wanted});
      answer const got = sinks[0]->get();
      ASSERT_EQ(got, straight_answer(toy(), wanted)) << "seed " << seed << ", k " << k;
      if (got.finish != finish_reason::stop) continue;
      ++stopped;
      // One byte is one token here, so the last ids spell the stop string.
      std::string const tail(got.ids.end() - std::ssize(*got.stop_string), got.ids.end());
      ASSERT_EQ(tail, *got.stop_string);
    }
  }
  EXPECT_GT(stopped, 300);
}

TEST(speculation_output, is_the_same_with_reasoning_split_off) {
  bool closed = false;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    for (int k : {0, 1, 3, 7, 15}) {
      request wanted = greedy_request(70, 60, k, seed);
      wanted.split_reasoning = true;
      wanted.starts_in_reasoning = true;
      auto const sinks = run_all(toy(), {wanted});
      answer const got = sinks[0]->get();
      ASSERT_EQ(got, straight_answer(toy(), wanted)) << "seed " << seed << ", k " << k;
      auto const end = std::ranges::find(got.ids, test::think_end_id);
      auto const inside = end - got.ids.begin() + (end == got.ids.end() ? 0 : 1);
      ASSERT_EQ(got.reasoning_tokens, inside);  // the closing tag is the last of them
      ASSERT_EQ(std::ssize(got.reasoning), end - got.ids.begin());
      closed = closed || !got.content.empty();
    }
  }
  EXPECT_TRUE(closed);
}

// Lanes with one row and lanes with many, greedy and sampled, in the same passes.
TEST(speculation_lanes, do_not_change_each_others_output) {
  for (std::int32_t lanes : {1, 2, 3, 5, 8}) {
    for (std::int32_t max_rows : {16, 17, 31, 96}) {
      test::toy_options options = toy();
      options.limits.max_lanes = lanes;
      options.limits.max_rows = max_rows;
      options.limits.prefill_chunk = 16;
      options.limits.page_tokens = 16;
      options.end_every = 40;
      std::vector<request> wanted;
      std::size_t const prompts[] = {1, 17, 16, 40, 2, 33, 15};
      int const depths[] = {0, 3, 15, 1, 0, 7, 12, 2};
      for (std::size_t i = 0; i < 24; ++i) {
        wanted.push_back(sampled_request(modes()[i % modes().size()], prompts[i % 7],
                                         5 + static_cast<std::int64_t>(7 * i % 40), depths[i % 8]));
        if (i % 3 == 0) wanted.back().stop_ids = {test::im_end_id};
        if (i % 4 == 0) wanted.back().stop_strings = {i % 8 == 0 ? "ab" : "ca"};
      }
      test::toy_model model(options);
      auto const sinks = run_all(model, wanted);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(sinks[i]->get(), straight_answer(options, wanted[i]))
            << "lanes " << lanes << ", max_rows " << max_rows << ", request " << i;
      }
      EXPECT_LE(model.counts().widest_pass, max_rows);
      if (max_rows == 96) {
        EXPECT_EQ(model.counts().most_sequences, lanes);
      }
    }
  }
}

TEST(speculation_lanes, more_lanes_than_rows_take_several_passes) {
  test::toy_options options = toy();
  options.limits.max_lanes = 40;
  options.limits.max_rows = 16;
  std::vector<request> wanted;
  for (std::uint32_t i = 0; i < 40; ++i)
    wanted.push_back(greedy_request(3, 12, i % 2 == 0 ? 0 : 15, i));
  auto const sinks = run_all(options, wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(sinks[i]->get(), straight_answer(options, wanted[i])) << "request " << i;
  }
}

TEST(speculation_depth_0, never_touches_the_mtp_layer) {
  test::toy_options options = toy();
  options.on_draft = [](std::span<model::draft_rows const>) { FAIL() << "a draft for k = 0"; };
  run_all(options, {greedy_request(70, 20, 0)});
  run_all(options, {greedy_request(70, 2, 15)});  // no room for a draft either
  options.limits.has_mtp = false;
  run_all(options, {greedy_request(70, 20, 0)});
}

std::int64_t chosen_rounds(speculation_counts const& counts) {
  return std::accumulate(counts.rounds_at.begin(), counts.rounds_at.end(), std::int64_t{0});
}

// Agreement that comes and goes, so that all depths are chosen and left again, 0 too.
bool agrees_at_times(std::int64_t position, int depth) {
  switch (position / 100 % 4) {
    case 0: return true;
    case 1: return false;
    case 2: return mostly_agrees(position, depth);
    default: return depth == 1;
  }
}

TEST(speculation_auto, gives_the_text_of_every_depth_in_every_mode) {
  for (mode const& how : modes()) {
    for (std::size_t prompt : {1, 64, 65}) {
      test::toy_options options = toy();
      options.agrees = agrees_at_times;
      request wanted = choosing_request(prompt, 420, static_cast<std::uint32_t>(prompt));
      wanted.sampling = how.sampling;
      std::string const what = std::string(how.name) + ", prompt " + std::to_string(prompt);
      auto const sinks = run_all(options, {wanted});
      ASSERT_EQ(sinks[0]->get(), straight_answer(options, wanted)) << what;
      speculation_counts const& counts = sinks[0]->outcome->speculation;
      EXPECT_TRUE(counts.chooses_depth);
      EXPECT_EQ(chosen_rounds(counts), counts.rounds) << what;
    }
  }
}

TEST(speculation_auto, comes_to_the_deepest_round_where_all_is_accepted) {
  test::toy_options options;  // every draft is right
  auto const counts = run_all(options, {choosing_request(10, 480)})[0]->outcome->speculation;
  EXPECT_GT(counts.rounds_at.back() * 10, counts.rounds * 6);
  EXPECT_GT(counts.tau(), 12);
}

TEST(speculation_auto, comes_to_plain_rounds_with_few_drafts_where_none_is) {
  test::toy_options options;
  options.agrees = [](std::int64_t, int) { return false; };
  auto const counts = run_all(options, {choosing_request(10, 480)})[0]->outcome->speculation;
  EXPECT_EQ(counts.rounds, 479);
  EXPECT_GT(counts.rounds_at.front() * 10, counts.rounds * 8);
  // One draft for each 16 tokens, beside those before it was known.
  EXPECT_GE(counts.rounds_at[1], 25);
  EXPECT_EQ(counts.rounds_at.back(), 0);
}

TEST(speculation_auto, finds_back_to_deep_rounds_when_the_text_is_drafted_well_again) {
  test::toy_options options;
  options.limits.max_context = 2048;
  auto const late = [](std::int64_t position, int) { return position > 700; };
  options.agrees = late;
  auto const counts = run_all(options, {choosing_request(10, 1400)})[0]->outcome->speculation;
  EXPECT_GT(counts.rounds_at.front(), 500);
  EXPECT_GE(counts.rounds_at.back(), 20);
}

TEST(speculation_auto, is_each_lanes_own_and_changes_no_other_lane) {
  test::toy_options options = toy();
  options.limits.max_lanes = 6;
  std::vector<request> wanted;
  for (std::uint32_t i = 0; i < 18; ++i) {
    wanted.push_back(i % 3 == 2 ? greedy_request(5 + 7 * i, 200, static_cast<int>(i) % 8, i)
                                : choosing_request(5 + 7 * i, 200, i));
    wanted.back().sampling = modes()[i % modes().size()].sampling;
  }
  options.agrees = agrees_at_times;
  test::toy_model model(options);
  auto const sinks = run_all(model, wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(sinks[i]->get(), straight_answer(options, wanted[i])) << "request " << i;
    auto const& counts = sinks[i]->outcome->speculation;
    EXPECT_EQ(chosen_rounds(counts), wanted[i].chooses_depth ? counts.rounds : 0)
        << "request " << i;
  }
  EXPECT_LE(model.counts().widest_pass, options.limits.max_rows);
}

TEST(speculation_auto, is_refused_where_no_costs_were_measured) {
  test::toy_model model(toy());
  engine driven(model, byte_tokenizer());
  try {
    driven.submit(choosing_request(3, 3), std::make_shared<recorder>());
    FAIL() << "no refusal";
  } catch (error const& refused) {
    EXPECT_EQ(refused.kind(), error_kind::invalid_argument);
    EXPECT_NE(std::string(refused.what()).find("not measured"), std::string::npos);
  }
}

// What a script of agreements implies, counted without tokens: a round at depth d accepts the first
// drafts that agree.
speculation_counts expected_counts(test::toy_options const& options, request const& wanted) {
  speculation_counts counts = no_rounds(wanted);
  for (std::int64_t emitted = 1; emitted < wanted.max_tokens;) {
    std::int64_t const depth =
        std::min<std::int64_t>(wanted.draft_tokens, wanted.max_tokens - emitted - 1);
    std::int64_t const anchor = std::ssize(wanted.prompt_ids) + emitted - 1;
    std::int64_t accepted = 0;
    while (accepted < depth &&
           options.agrees(anchor + accepted + 1, static_cast<int>(accepted) + 1)) {
      ++counts.accepted_at[static_cast<std::size_t>(accepted++)];
    }
    counts.rounds += 1;
    counts.drafted += depth;
    counts.accepted += accepted;
    emitted += accepted + 1;
  }
  return counts;
}

void expect_counts(speculation_counts const& got, speculation_counts const& expected,
                   std::string const& what) {
  EXPECT_EQ(got.draft_tokens, expected.draft_tokens) << what;
  EXPECT_EQ(got.rounds, expected.rounds) << what;
  EXPECT_EQ(got.drafted, expected.drafted) << what;
  EXPECT_EQ(got.accepted, expected.accepted) << what;
  EXPECT_EQ(got.accepted_at, expected.accepted_at) << what;
}

TEST(speculation_counts, equal_what_scripted_agreement_implies) {
  for (int k = 0; k <= max_draft_tokens; ++k) {
    for (std::size_t prompt : {1, 64, 65, 130}) {
      request const wanted = greedy_request(prompt, 101, k);
      test::toy_options options = toy();
      for (int right = 0; right <= k; ++right) {  // the draft at depth right + 1 is rejected
        options.agrees = [right](std::int64_t, int depth) { return depth <= right; };
        auto const sinks = run_all(options, {wanted});
        expect_counts(sinks[0]->outcome->speculation, expected_counts(options, wanted),
                      "k " + std::to_string(k) + ", right to depth " + std::to_string(right));
      }
      options.agrees = mostly_agrees;
      auto const sinks = run_all(options, {wanted});
      expect_counts(sinks[0]->outcome->speculation, expected_counts(options, wanted),
                    "k " + std::to_string(k));
    }
  }
}

TEST(speculation_counts, give_tau_as_tokens_per_round) {
  test::toy_options options;  // every draft is right: 1 + 25 * 4 tokens
  auto const all = run_all(options, {greedy_request(10, 101, 3)})[0]->outcome->speculation;
  EXPECT_EQ(all.rounds, 25);
  EXPECT_DOUBLE_EQ(all.tau(), 4.0);
  options.agrees = [](std::int64_t, int) { return false; };
  auto const none = run_all(options, {greedy_request(10, 101, 3)})[0]->outcome->speculation;
  EXPECT_EQ(none.rounds, 100);
  EXPECT_DOUBLE_EQ(none.tau(), 1.0);
  auto const plain = run_all(options, {greedy_request(10, 101, 0)})[0]->outcome->speculation;
  EXPECT_EQ(plain.rounds, 100);
  EXPECT_EQ(plain.drafted, 0);
}

TEST(speculation_counts, leave_out_drafts_behind_the_end) {
  test::toy_options options;
  options.end_every = 12;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    request wanted = greedy_request(5, 60, 15, seed);
    wanted.stop_ids = {test::im_end_id};
    result const outcome = *run_all(options, {wanted})[0]->outcome;
    EXPECT_EQ(outcome.usage.completion_tokens,
              1 + outcome.speculation.rounds + outcome.speculation.accepted);
  }
}

}  // namespace
}  // namespace qwen38::engine
