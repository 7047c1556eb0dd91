// SPDX-License-Identifier: Apache-2.0
// A model over ranks of the CUDA backend: against the CPU's ranks, and to its own bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/engine.hpp"
#include "parallel/device_group.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/ops/cuda/device_ranks.hpp"
#include "test/ops/cuda/gpu_model.hpp"
#include "test/ops/cuda/round_player.hpp"

namespace qwen38::test {
namespace {

constexpr char const* tiny = "../model/golden/tiny";
constexpr char const* demo = "../../demo_model";
constexpr std::int32_t demo_valid_ids = 4077;

/// `size` ranks on one GPU, or on GPUs of their own.
std::unique_ptr<model::rank_group> open_ranks_of(std::filesystem::path const& directory, int size,
                                                 model::qwen38_options const& options,
                                                 bool one_gpu = true) {
  auto const devices = open_ranks(size, one_gpu);
  checkpoint::model_config const config = checkpoint::load_model_config(directory);
  return std::make_unique<model::rank_group>(
      parallel::make_device_group(devices, {.max_cols = config.hidden_size}),
      [&](std::shared_ptr<parallel::communicator> ranks) {
        model::qwen38_options own = options;
        auto const index = static_cast<std::size_t>(ranks->rank());
        own.ranks = std::move(ranks);
        return open_model_on(ops::cuda::make_backend(devices[index]), directory, own);
      });
}

/// On a machine with several GPUs also with one for each rank.
std::vector<bool> placements(int size) {
  return test_gpu_count() >= size ? std::vector{true, false} : std::vector{true};
}

TEST(cuda_ranks, logits_agree_with_those_of_the_cpus_ranks) {
  auto const ids = some_ids(test_device_is_emulated() ? 5 : 70, 3);
  for (bool one_gpu : placements(2)) {
    auto const gpu =
        open_ranks_of(tiny, 2, {.valid_ids = tiny_valid_ids, .max_context = 512}, one_gpu);
    auto const cpu = open_group(tiny, tiny_valid_ids, 2);
    std::vector<std::size_t> const cuts = {3};
    double const error =
        worst_row(all_logits(*gpu, 0, ids, cuts), all_logits(*cpu, 0, ids, cuts), 512);
    EXPECT_LT(error, gpu_tolerance) << "one GPU " << one_gpu;
    RecordProperty("worst_row", std::to_string(error));
  }
}

TEST(cuda_ranks, four_ranks_of_the_demo_agree_with_the_cpus) {
  auto const ids = some_ids(test_device_is_emulated() ? 1 : 70, 4);
  for (bool one_gpu : placements(4)) {
    auto const gpu =
        open_ranks_of(demo, 4, {.valid_ids = demo_valid_ids, .max_context = 512}, one_gpu);
    auto const cpu = open_group(demo, demo_valid_ids, 4);
    std::vector<std::size_t> const cuts =
        ids.size() > 64 ? std::vector<std::size_t>{64} : std::vector<std::size_t>{};
    EXPECT_LT(worst_row(all_logits(*gpu, 0, ids, cuts), all_logits(*cpu, 0, ids, cuts), 4096),
              gpu_tolerance)
        << "one GPU " << one_gpu;
  }
}

TEST(cuda_ranks, each_rank_holds_its_share_on_its_device) {
  auto const whole = open_on_gpu(tiny, {.valid_ids = tiny_valid_ids, .max_context = 512});
  auto const group = open_ranks_of(tiny, 2, {.valid_ids = tiny_valid_ids, .max_context = 512});
  for (int rank = 0; rank < 2; ++rank) {
    auto const own = group->rank(rank).get_memory_use();
    EXPECT_EQ(own.kv_cache * 2, whole->get_memory_use().kv_cache) << rank;
    EXPECT_EQ(own.gdn_state * 2, whole->get_memory_use().gdn_state) << rank;
    EXPECT_LT(own.weights, whole->get_memory_use().weights) << rank;
  }
}

// The promise over ranks: k and company change no answer.
TEST(cuda_ranks, answers_are_the_same_at_every_depth_and_in_company) {
  bool const is_slow = test_device_is_emulated();
  std::int64_t const tokens = is_slow ? 3 : 30;
  std::size_t const count = is_slow ? 1 : 6;
  for (bool one_gpu : placements(2)) {
    std::vector<engine::answer> solo;
    for (int k : is_slow ? std::vector{0, 2} : std::vector{0, 1, 3, 7, 15}) {
      auto const lm = open_ranks_of(tiny, 2,
                                    {.valid_ids = byte_vocab_size,
                                     .lanes = 3,
                                     .max_context = 512,
                                     .kv_pages = 48,
                                     .snapshots = 6},
                                    one_gpu);
      engine::engine driven(*lm, engine::byte_tokenizer());
      std::vector<std::shared_ptr<engine::recorder>> sinks;
      for (std::size_t i = 0; i < count; ++i) {
        sinks.push_back(std::make_shared<engine::recorder>());
        auto const seed = static_cast<std::uint32_t>(i);
        driven.submit(engine::greedy_request(is_slow      ? 4
                                             : i % 2 == 0 ? 66 + i
                                                          : 5,
                                             tokens, k, seed),
                      sinks.back());
        if (k == 0) engine::run_to_end(driven);  // alone
      }
      engine::run_to_end(driven);
      for (std::size_t i = 0; i < count; ++i) {
        if (k == 0) solo.push_back(sinks[i]->get());
        EXPECT_EQ(sinks[i]->get(), solo[i]) << "one GPU " << one_gpu << ", k " << k << ", " << i;
      }
    }
  }
}

/// Lanes of a round, and the most drafts of one.
struct round_kind {
  int lanes = 1;
  int drafts = 0;
};

std::vector<round_kind> kinds_of_rounds() {
  if (test_device_is_emulated()) return {{1, 0}, {1, 1}, {2, 3}};
  std::vector<round_kind> kinds;
  for (int const drafts : {0, 1, 3, 7, 15}) {
    for (int const lanes : {1, 2, 3, 4, 5, 6, 7, 8}) {
      if (lanes * (drafts + 1) <= 96) kinds.push_back({lanes, drafts});
    }
  }
  return kinds;
}

/// Rounds of that kind behind short prompts; all lanes but the first have a draft less.
void play_rounds(round_player& player, round_kind const& kind,
                 std::vector<std::int32_t> const& source, int rounds) {
  std::map<int, int> depths;
  for (int lane = 0; lane < kind.lanes; ++lane) {
    auto const first = source.begin() + lane;
    player.prefill(lane, {first, first + 4 + lane});
    depths[lane] = lane == 0 ? kind.drafts : std::max(kind.drafts - 1, 0);
  }
  for (int round = 0; round < rounds; ++round) player.play(depths);
}

/// Where a text parts from that of the model, both tokens must be as good, but for `near_tie`.
void expect_near_tie(model::causal_lm& lm, std::vector<std::int32_t> const& text,
                     std::vector<std::int32_t> const& got, std::string const& what) {
  constexpr float near_tie = 0.1F;
  auto const [here, there] = std::ranges::mismatch(text, got);
  if (here == text.end() || there == got.end()) return;  // rounds that accepted another number
  auto const logits = all_logits(lm, 0, {text.begin(), here});
  auto const last = std::span(logits).last(static_cast<std::size_t>(lm.get_limits().vocab_size));
  EXPECT_LT(last[static_cast<std::size_t>(*here)] - last[static_cast<std::size_t>(*there)],
            near_tie)
      << what << ", token " << here - text.begin();
}

// A kind's first round is done operation by operation, its second is recorded, and replayed like
// all later ones; also where ranks share a GPU.
TEST(cuda_ranks, recorded_rounds_give_the_ids_of_unrecorded_ones_and_of_one_rank) {
  bool const is_slow = test_device_is_emulated();
  int const size = is_slow ? 2 : 4;
  char const* const directory = is_slow ? tiny : demo;
  constexpr std::uint64_t rounds = 3;
  model::qwen38_options const options{
      .valid_ids = is_slow ? tiny_valid_ids : demo_valid_ids, .lanes = 8, .max_context = 128};
  auto const source =
      is_slow ? some_ids(20, 50) : golden("../model/golden/demo").prompts().back().ids;
  auto const whole = open_on_gpu(directory, options);
  for (bool one_gpu : placements(size)) {
    auto const recorded = open_ranks_of(directory, size, options, one_gpu);
    auto const unrecorded = open_ranks_of(directory, size, options, one_gpu);
    for (int rank = 0; rank < size; ++rank) {
      unrecorded->rank(rank).set_tap([](std::int64_t, std::span<float const>) {});
    }
    std::set<std::pair<unsigned, int>> known;  // lanes as they are filled up, drafts
    ops::work_counts wanted;
    int same = 0;
    int all = 0;
    for (round_kind const& kind : kinds_of_rounds()) {
      std::string const what = std::to_string(kind.lanes) + " lanes, k " +
                               std::to_string(kind.drafts) + ", one GPU " + std::to_string(one_gpu);
      round_player player(*recorded);
      round_player reference(*unrecorded);
      round_player alone(*whole);
      for (round_player* one : {&player, &reference, &alone}) {
        play_rounds(*one, kind, source, static_cast<int>(rounds));
      }
      bool const is_new =
          known.emplace(std::bit_ceil(static_cast<unsigned>(kind.lanes)), kind.drafts).second;
      wanted.recordings += is_new ? 1 : 0;
      wanted.replays += is_new ? rounds - 1 : rounds;
      for (int rank = 0; rank < size; ++rank) {
        ops::work_counts const got = recorded->rank(rank).counts();
        EXPECT_EQ(got.recordings, wanted.recordings) << what << ", rank " << rank;
        EXPECT_EQ(got.replays, wanted.replays) << what << ", rank " << rank;
        EXPECT_EQ(unrecorded->rank(rank).counts().recordings, 0U);
      }
      for (auto const& [lane, own] : player.lanes) {
        EXPECT_EQ(own.seen, reference.lanes[lane].seen) << what << ", lane " << lane;
        ++all;
        if (own.text == alone.lanes[lane].text) {
          ++same;
        } else {
          expect_near_tie(*whole, alone.lanes[lane].text, own.text, what);
        }
      }
    }
    RecordProperty(one_gpu ? "texts_of_one_rank_on_one_gpu" : "texts_of_one_rank",
                   std::to_string(same) + " of " + std::to_string(all));
    EXPECT_GE(same * 100, all * 90);
  }
}

// A rank that dies in a pass ends the engine's requests with its sentence; nobody waits for it.
TEST(cuda_ranks, a_rank_that_dies_in_a_pass_ends_the_requests_with_its_sentence) {
  for (bool one_gpu : placements(2)) {
    auto const lm =
        open_ranks_of(tiny, 2, {.valid_ids = byte_vocab_size, .max_context = 512}, one_gpu);
    lm->rank(1).set_tap([](std::int64_t layer, std::span<float const>) {
      if (layer == 1) throw error(error_kind::internal, "GPU 1 is lost");
    });
    engine::engine driven(*lm, engine::byte_tokenizer());
    auto const sink = std::make_shared<engine::recorder>();
    driven.submit(engine::greedy_request(4, 3, 0, 1), sink);
    engine::run_to_end(driven);
    EXPECT_EQ(sink->outcome->finish, engine::finish_reason::failed) << one_gpu;
    EXPECT_NE(sink->outcome->message.find("GPU 1 is lost"), std::string::npos)
        << sink->outcome->message;
  }
}

}  // namespace
}  // namespace qwen38::test
