// SPDX-License-Identifier: Apache-2.0
// A model over ranks of the CUDA backend: against the CPU's ranks, and to its own bits.

#include <gtest/gtest.h>

#include <string>

#include "engine/engine.hpp"
#include "parallel/device_group.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/ops/cuda/device_ranks.hpp"
#include "test/ops/cuda/gpu_model.hpp"

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
