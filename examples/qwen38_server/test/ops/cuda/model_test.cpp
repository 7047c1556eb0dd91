// SPDX-License-Identifier: Apache-2.0
// The tiny model on the CUDA backend: against the goldens that the CPU is held to, and to its own
// bits.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "engine/engine.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/ops/cuda/gpu_model.hpp"
#include "test/ops/cuda/round_player.hpp"

namespace qwen38::test {
namespace {

constexpr char const* tiny = "../model/golden/tiny";
std::unique_ptr<model::qwen38_model> open_tiny(int lanes = 1) {
  return open_on_gpu(tiny, {.valid_ids = tiny_valid_ids, .lanes = lanes, .max_context = 512});
}

TEST(cuda_model, every_layer_and_the_logits_agree_with_the_oracle) {
  golden const wanted(tiny);
  auto const lm = open_tiny();
  for (golden::prompt const& prompt : wanted.prompts()) {
    std::map<std::int64_t, std::vector<float>> layers;
    lm->set_tap([&](std::int64_t layer, std::span<float const> rows) {
      layers[layer].insert(layers[layer].end(), rows.begin(), rows.end());
    });
    auto const logits = all_logits(*lm, 0, prompt.ids);
    lm->set_tap({});
    for (std::int64_t layer = 0; layer < 4; ++layer) {
      auto const& rows = wanted.array(prompt.name + ".hidden." + std::to_string(layer));
      EXPECT_LT(worst_row(layers[layer], rows, 64), gpu_tolerance)
          << prompt.name << " layer " << layer;
    }
    EXPECT_LT(worst_row(layers[4], wanted.array(prompt.name + ".final"), 64), gpu_tolerance)
        << prompt.name;
    double const error = worst_row(logits, wanted.array(prompt.name + ".logits"), 512);
    EXPECT_LT(error, gpu_tolerance) << prompt.name;
    RecordProperty(prompt.name + "_logits", std::to_string(error));
  }
}

TEST(cuda_model, chained_drafts_agree_with_the_oracle) {
  golden const wanted(tiny);
  auto const lm = open_tiny();
  for (golden::prompt const& prompt : wanted.prompts()) {
    if (test_device_is_emulated() && prompt.name != "short") continue;  // half a minute each
    all_logits(*lm, 0, prompt.ids);
    std::vector<std::int32_t> next(prompt.ids.begin() + 1, prompt.ids.end());
    next.push_back(prompt.fields.at("next_id").get<std::int32_t>());
    auto const drafts = prompt.fields.at("drafts").get<std::vector<std::int32_t>>();
    std::int32_t draft = -1;
    model::draft_rows rows{0, 0, next, true, true};
    lm->draft({&rows, 1}, {&draft, 1});
    EXPECT_EQ(draft, drafts[0]) << prompt.name;
    auto const hidden = std::span(wanted.array(prompt.name + ".mtp.hidden")).last(64);
    EXPECT_LT(relative_error(lm->draft_hidden(0), hidden), gpu_tolerance) << prompt.name;
    for (std::size_t depth = 1; depth < drafts.size(); ++depth) {
      std::int32_t const last = drafts[depth - 1];
      rows = {0, static_cast<std::int64_t>(prompt.ids.size() + depth - 1), {&last, 1}, false, true};
      lm->draft({&rows, 1}, {&draft, 1});
      EXPECT_EQ(draft, drafts[depth]) << prompt.name << " depth " << depth + 1;
    }
  }
}

// A prompt is cut at multiples of 64; within a chunk that is not whole, anywhere.
TEST(cuda_model, logits_are_the_same_bits_however_the_tokens_are_cut) {
  auto const lm = open_tiny();
  auto const ids = some_ids(68, 7);
  auto const whole = all_logits(*lm, 0, ids);
  EXPECT_TRUE(same_bits(whole, all_logits(*lm, 0, ids, {64, 65})));
}

TEST(cuda_model, what_else_is_in_the_pass_changes_no_bit) {
  auto const lm = open_tiny(3);
  auto const a = some_ids(24, 8);
  auto const b = some_ids(9, 9);
  auto const wanted = all_logits(*lm, 0, a);
  for (int lane : test_device_is_emulated() ? std::vector{2} : std::vector{2, 1}) {
    lm->begin(0, lane_pages(*lm, 0));
    lm->begin(lane, lane_pages(*lm, lane));
    std::vector<model::sequence_rows> batch = {{0, 0, std::span(b), false, 0},
                                               {lane, 0, std::span(a).first(16), false, 0}};
    auto logits = lm->forward(batch);
    EXPECT_TRUE(same_bits(logits.subspan(9 * 512), std::span(wanted).first(16 * 512)));
    batch = {{lane, 16, std::span(a).subspan(16, 8), true, 0}};
    logits = lm->forward(batch);
    EXPECT_TRUE(same_bits(logits, std::span(wanted).subspan(16 * 512))) << "lane " << lane;
    lm->keep(lane, 5);
    batch = {{lane, 21, std::span(a).subspan(21, 3), false, 0}};
    logits = lm->forward(batch);
    EXPECT_TRUE(same_bits(logits, std::span(wanted).subspan(21 * 512))) << "lane " << lane;
  }
}

TEST(cuda_model, every_product_has_a_route) {
  auto const lm = open_tiny();
  all_logits(*lm, 0, some_ids(3, 1));
  std::uint64_t launches = 0;
  for (ops::route_count const& one : lm->routes()) launches += one.launches;
  // 3 GDN layers of 5 products, one attention layer of 4, the head.
  EXPECT_EQ(launches, 3U * 5 + 4 + 1);
}

// Queued without a look at what comes out, padded, recorded and replayed: the same drafts and
// tokens as step by step; and the host waits once a round.
TEST(cuda_round, gives_the_ids_of_its_steps_and_waits_once) {
  std::vector<std::map<int, int>> const rounds = {
      {{0, 3}, {1, 2}, {2, 0}}, {{0, 3}, {1, 1}, {2, 0}}, {{0, 2}, {1, 1}, {2, 0}}, {{2, 0}}};
  auto const lm = open_tiny(3);
  auto const steps = open_tiny(3);
  round_player queued(*lm);
  stepwise_player stepwise(*steps);
  for (int index = 0; index < 3; ++index) {
    auto const ids =
        some_ids(3 + static_cast<std::size_t>(index), 50U + static_cast<unsigned>(index));
    queued.prefill(index, ids);
    stepwise.prefill(index, ids);
  }
  for (auto const& depths : rounds) {
    ops::work_counts const before = lm->counts();
    auto const launches = [&] {
      std::uint64_t sum = 0;
      for (ops::route_count const& one : lm->routes()) sum += one.launches;
      return sum;
    };
    std::uint64_t const launched = launches();
    queued.play(depths);
    EXPECT_EQ(lm->counts().waits, before.waits + 1);
    // Products: the target's 20; of settled rows fc, kv; of each draft the layer, head, and fc.
    EXPECT_EQ(launches() - launched, depths.size() == 1 ? 20U : 20 + 2 + 3 * 6 + 2);
    stepwise.play(depths);
    for (auto const& [index, one] : queued.lanes) {
      EXPECT_EQ(one.seen, stepwise.lanes[index].seen) << "lane " << index;
    }
  }
  EXPECT_EQ(lm->counts().recordings, 1U);
  EXPECT_EQ(lm->counts().replays, 2U);  // of the three alike
}

// The MTP layer catches up with what rounds without drafts settled.
TEST(cuda_round, drafts_behind_rounds_without_any_are_those_of_a_lane_that_always_drafts) {
  auto const lm = open_tiny(2);
  auto const ids = some_ids(4, 9);
  round_player player(*lm);
  for (int lane : {0, 1}) player.prefill(lane, ids);
  ops::token_choice const greedy;
  std::array<std::vector<std::int32_t>, 2> settled = {player.lanes[0].settled,
                                                      player.lanes[1].settled};
  std::array<model::round_result, 2> results;
  auto position = std::ssize(ids);
  int const gap = test_device_is_emulated() ? 2 : 15;
  for (int round = 0; round <= gap; ++round) {
    bool const last = round == gap;
    model::round_lane const batch[] = {{0, position, settled[0], last ? 1 : 0, &greedy},
                                       {1, position, settled[1], 1, &greedy}};
    lm->round(batch, results);
    if (last) break;
    ASSERT_EQ(results[0].chosen[0].id, results[1].chosen[0].id);
    settled[0].push_back(results[0].chosen[0].id);
    settled[1] = {results[0].chosen[0].id};
    lm->keep(1, 1);
    ++position;
  }
  EXPECT_EQ(results[0].drafts[0], results[1].drafts[0]);
  EXPECT_EQ(results[0].chosen[1].value, results[1].chosen[1].value);
}

// Drafts, batches and cached beginnings change no answer. An emulated pass takes most of a second,
// so there are few.
TEST(cuda_engine, answers_are_the_same_at_every_depth_cold_and_warm) {
  bool const is_slow = test_device_is_emulated();
  std::int64_t const tokens = is_slow ? 4 : 30;
  std::size_t const count = is_slow ? 1 : 6;
  std::vector<engine::answer> solo;
  for (int k : is_slow ? std::vector{0, 3} : std::vector{0, 1, 3, 7, 15}) {
    auto const lm = open_on_gpu(tiny, {byte_vocab_size, 3, 512, /*kv_pages=*/48, /*snapshots=*/6});
    engine::engine driven(*lm, engine::byte_tokenizer());
    std::vector<std::shared_ptr<engine::recorder>> sinks;
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < count; ++i) {
        sinks.push_back(std::make_shared<engine::recorder>());
        auto const seed = static_cast<std::uint32_t>(i);
        driven.submit(engine::greedy_request(i % 2 == 0 ? 66 + i : 5, tokens, k, seed),
                      sinks.back());
      }
      engine::run_to_end(driven);
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (k == 0) solo.push_back(sinks[i]->get());
      EXPECT_EQ(sinks[i]->get(), solo[i]) << "k " << k << ", request " << i;
      EXPECT_EQ(sinks[i + count]->get(), solo[i]) << "k " << k << ", request " << i << ", again";
    }
    EXPECT_EQ(sinks[count]->outcome->usage.cached_tokens, 64) << "k " << k;
  }
}

// With passes of 128 rows, whose products go by kernels of which a row's bits may depend on how
// many rows there are: cold, warm, in company and at every depth the same.
TEST(cuda_engine, answers_after_wide_passes_are_the_same_at_every_depth_cold_and_warm) {
  if (test_device_is_emulated()) GTEST_SKIP() << "minutes on an emulated GPU";
  constexpr std::size_t lengths[] = {127, 128, 129, 240, 319, 400};
  std::vector<engine::answer> solo;
  for (int k : {0, 3, 15}) {
    for (int lanes : {1, 3}) {
      auto const lm = open_on_gpu(tiny, {.valid_ids = byte_vocab_size,
                                         .lanes = lanes,
                                         .max_context = 512,
                                         .kv_pages = 80,
                                         .snapshots = 12,
                                         .prefill_pass = 128});
      engine::engine driven(*lm, engine::byte_tokenizer());
      for (bool const warm : {false, true}) {
        std::vector<std::shared_ptr<engine::recorder>> sinks;
        for (std::size_t i = 0; i < std::size(lengths); ++i) {
          sinks.push_back(std::make_shared<engine::recorder>());
          driven.submit(
              engine::greedy_request(lengths[i], 30, k, static_cast<std::uint32_t>(60 + i)),
              sinks.back());
        }
        engine::run_to_end(driven);
        for (std::size_t i = 0; i < std::size(lengths); ++i) {
          std::string const what = "k " + std::to_string(k) + ", lanes " + std::to_string(lanes) +
                                   (warm ? ", warm" : ", cold") + ", length " +
                                   std::to_string(lengths[i]);
          if (solo.size() <= i) solo.push_back(sinks[i]->get());
          EXPECT_EQ(sinks[i]->get(), solo[i]) << what;
          std::int64_t const cached = (static_cast<std::int64_t>(lengths[i]) - 1) / 128 * 128;
          EXPECT_EQ(sinks[i]->outcome->usage.cached_tokens, warm ? cached : 0) << what;
        }
      }
      auto const routes = lm->routes();
      EXPECT_TRUE(std::ranges::any_of(routes, [](ops::route_count const& one) {
        return one.route.find("/wide") != std::string::npos;
      }));
    }
  }
}

}  // namespace
}  // namespace qwen38::test
