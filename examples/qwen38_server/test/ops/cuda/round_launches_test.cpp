// SPDX-License-Identifier: Apache-2.0
// The launches that bench/v100_model counts for a round are those of the model's real rounds.

#include "round_launches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cuda/cuda_backend.hpp"
#include "parallel/device_group.hpp"
#include "parallel/shard.hpp"
#include "test/model/tiny_model.hpp"
#include "test/ops/cuda/naming_device.hpp"

namespace qwen38::test {
namespace {

using qpn::bench::v100::rank_model;
using qpn::bench::v100::round_launch;
using qpn::bench::v100::round_shape;

constexpr char const* tiny = "../model/golden/tiny";
model::qwen38_options const tiny_options{.valid_ids = tiny_valid_ids, .max_context = 512};

rank_model model_of(std::filesystem::path const& directory, int ranks) {
  checkpoint::model_config const config =
      parallel::shard_plan(checkpoint::load_model_config(directory), ranks).rank_shape();
  rank_model model;
  model.ranks = ranks;
  model.hidden = config.hidden_size;
  model.full_layers = std::ranges::count(config.layers, checkpoint::layer_kind::full_attention);
  model.gdn_layers = std::ssize(config.layers) - model.full_layers;
  model.heads = config.num_attention_heads;
  model.kv_heads = config.num_kv_heads;
  model.head_dim = config.head_dim;
  model.key_heads = config.linear_num_key_heads;
  model.value_heads = config.linear_num_value_heads;
  model.key_dim = config.linear_key_head_dim;
  model.value_dim = config.linear_value_head_dim;
  model.conv_taps = config.conv_kernel;
  model.intermediate = config.intermediate_size;
  model.vocabulary = config.vocab_size;
  return model;
}

launch_counts counts_of(rank_model const& model, round_shape const& shape) {
  launch_counts counts;
  for (round_launch const& one : qpn::bench::v100::round_launches(model, shape)) {
    counts[one.is_product() ? product_name(one.weight.n, one.weight.k, one.m) : one.kernel] +=
        one.count;
  }
  return counts;
}

/// Launches of two rounds and what keeps their rows, all drafts accepted, after three tokens.
std::vector<launch_counts> play_rounds(model::causal_lm& lm, naming_device& counted, int drafts) {
  std::vector<std::int32_t> const prompt = {1, 2, 3};
  lm.begin(0, lane_pages(lm, 0));
  model::sequence_rows const rows{0, 0, prompt, false, std::ssize(prompt)};
  lm.forward({&rows, 1});
  ops::token_choice const greedily = {};
  std::int64_t position = std::ssize(prompt);
  std::vector<std::int32_t> settled = {4};
  std::vector<launch_counts> counts;
  for (int round = 0; round < 2; ++round) {
    static_cast<void>(counted.take_launches());
    model::round_lane const lane{0, position, settled, drafts, &greedily};
    model::round_result result;
    lm.round({&lane, 1}, {&result, 1});
    if (drafts > 0) lm.keep(0, drafts + 1);
    counts.push_back(counted.take_launches());
    position += drafts + 1;
    settled.assign(static_cast<std::size_t>(drafts) + 1, 5);
  }
  return counts;
}

TEST(round_launches, are_those_of_a_gpu_with_the_whole_model) {
  rank_model const model = model_of(tiny, 1);
  for (int const drafts : {0, 1, 3, 7, 15}) {
    auto device = std::make_shared<naming_device>();
    auto const lm = open_model_on(ops::cuda::make_backend(device), tiny, tiny_options);
    // Rows of a recorded round are filled up.
    launch_counts const wanted = counts_of(model, {drafts, drafts + 1, 3});
    for (launch_counts const& got : play_rounds(*lm, *device, drafts)) {
      EXPECT_EQ(got, wanted) << "k = " << drafts;
    }
  }
}

TEST(round_launches, are_those_of_a_rank) {
  constexpr int ranks = 2;
  rank_model const model = model_of(tiny, ranks);
  for (int const drafts : {0, 3}) {
    std::vector<std::shared_ptr<naming_device>> counted;
    std::vector<std::shared_ptr<ops::cuda::device>> devices;
    for (int rank = 0; rank < ranks; ++rank) {
      counted.push_back(std::make_shared<naming_device>(rank));
      devices.push_back(counted.back());
    }
    model::rank_group lm(parallel::make_device_group(devices, {.max_cols = model.hidden}),
                         [&](std::shared_ptr<parallel::communicator> end) {
                           model::qwen38_options own = tiny_options;
                           auto const index = static_cast<std::size_t>(end->rank());
                           own.ranks = std::move(end);
                           return open_model_on(ops::cuda::make_backend(devices[index]), tiny, own);
                         });
    launch_counts const wanted = counts_of(model, {drafts, drafts + 1, 3});
    for (launch_counts const& got : play_rounds(lm, *counted[0], drafts)) {
      EXPECT_EQ(got, wanted) << "k = " << drafts;
    }
  }
}

}  // namespace
}  // namespace qwen38::test
