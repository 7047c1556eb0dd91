// SPDX-License-Identifier: Apache-2.0
// The plan of a model's device memory, against what the model takes on an emulated device.

#include "cli/memory_plan.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/rank_devices.hpp"
#include "model/rank_group.hpp"
#include "model/rehearsal.hpp"
#include "ops/cuda/cuda_backend.hpp"
#include "ops/cuda/read_rate.hpp"
#include "parallel/device_group.hpp"
#include "test/ops/cuda/test_device.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::cli {
namespace {

constexpr char const* tiny = "synth:tiny";
constexpr char const* demo = "../../demo_model";

model_flags flags_of(std::string model, int tp = 1) {
  model_flags flags;
  flags.model = std::move(model);
  flags.tp = tp;
  flags.lanes = 2;
  flags.context = 256;
  flags.prefix_cache_mib = 24;
  return flags;
}

std::vector<gpu_card> cards_of(model_flags const& flags, gpu_card const& card) {
  return std::vector<gpu_card>(static_cast<std::size_t>(flags.tp), card);
}

memory_plan plan_on(model_flags const& flags, std::string const& card) {
  return plan_memory(flags, cards_of(flags, known_card(card)));
}

/// A model that is loaded as `load` does, on emulated devices.
class emulated_model {
 public:
  explicit emulated_model(model_flags const& flags)
      : source_(std::make_shared<model_source const>(flags.model)) {
    auto const config = checkpoint::load_model_config(source_->directory());
    auto const tokenizer = text::tokenizer::from_checkpoint(source_->directory());
    for (int rank = 0; rank < flags.tp; ++rank) devices.push_back(test::open_test_device());
    auto const make_rank = [&](std::shared_ptr<parallel::communicator> ranks) {
      auto own = options_of(flags, config, tokenizer.vocab_size());
      own.ranks = std::move(ranks);
      auto const& device = devices[static_cast<std::size_t>(own.ranks ? own.ranks->rank() : 0)];
      return std::make_unique<model::qwen38_model>(source_->open(), config,
                                                   ops::cuda::make_backend(device), own);
    };
    if (flags.tp == 1) {
      lm = make_rank(nullptr);
    } else {
      lm = std::make_unique<model::rank_group>(
          parallel::make_device_group(devices, {.max_cols = config.hidden_size}), make_rank);
    }
  }

  std::vector<std::shared_ptr<ops::cuda::device>> devices;
  std::unique_ptr<model::causal_lm> lm;

 private:
  std::shared_ptr<model_source const> source_;
};

memory_plan plan_for(model_flags const& flags, emulated_model const& made) {
  return plan_memory(
      flags, cards_of(flags, {"emulated", made.devices.front()->info(), std::size_t{1} << 34}));
}

void expect_same_parts(rank_memory const& planned, rank_memory const& taken) {
  EXPECT_EQ(taken.weights, planned.weights);
  EXPECT_EQ(taken.embedding, planned.embedding);
  EXPECT_EQ(taken.kv_cache, planned.kv_cache);
  EXPECT_EQ(taken.gdn_state, planned.gdn_state);
  EXPECT_EQ(taken.workspace, planned.workspace);
  EXPECT_EQ(taken.exchange, planned.exchange);
  EXPECT_EQ(taken.parts(), planned.parts());
}

// The model has run: what it takes at its first work of a kind is there.
TEST(memory_plan, is_what_a_model_takes_to_the_byte) {
  model_flags const flags = flags_of(tiny);
  emulated_model const made(flags);
  model::rehearse(*made.lm, 1);
  memory_plan const plan = plan_for(flags, made);
  expect_same_parts(plan.ranks.front(), by_part(made.devices.front()->memory()));
  EXPECT_LE(made.devices.front()->memory().extent(), plan.ranks.front().arena);
  EXPECT_GT(plan.launches, 0U);
  EXPECT_GT(plan.snapshots, 0);
}

TEST(memory_plan, is_what_a_model_with_wide_passes_takes_to_the_byte) {
  model_flags flags = flags_of(tiny);
  flags.prefill_pass = 128;
  emulated_model const made(flags);
  model::rehearse(*made.lm, 1);
  memory_plan const plan = plan_for(flags, made);
  EXPECT_EQ(plan.prefill_pass, 128);
  expect_same_parts(plan.ranks.front(), by_part(made.devices.front()->memory()));
}

TEST(memory_plan, wide_passes_take_more_workspace_and_no_more_exchange) {
  model_flags flags = flags_of("synth:27b", 4);
  flags.context = 8192;
  flags.prefix_cache_mib = 1024;
  std::vector<memory_plan> plans;
  for (std::int64_t const pass : {64, 512, 1024}) {
    flags.prefill_pass = pass;
    plans.push_back(plan_on(flags, "h200"));
  }
  for (std::size_t i = 1; i < plans.size(); ++i) {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_GT(plans[i].ranks[rank].workspace, plans[i - 1].ranks[rank].workspace);
      EXPECT_EQ(plans[i].ranks[rank].exchange, plans[i - 1].ranks[rank].exchange);
      EXPECT_EQ(plans[i].ranks[rank].weights, plans[i - 1].ranks[rank].weights);
    }
  }
}

TEST(memory_plan, a_pass_is_a_multiple_of_64_and_no_longer_than_the_context) {
  auto const config = checkpoint::load_model_config(demo);
  model_flags flags = flags_of(demo);
  auto const rows = [&] { return options_of(flags, config, 100).prefill_pass; };
  EXPECT_EQ(rows(), 64);
  flags.device = "cuda";
  EXPECT_EQ(rows(), 256);  // the context
  flags.context = 200;
  EXPECT_EQ(rows(), 256);
  flags.context = 1024;
  EXPECT_EQ(rows(), 512);
  flags.prefill_pass = 128;
  EXPECT_EQ(rows(), 128);
  for (std::int64_t const wrong : {1, 96, 129}) {
    flags.prefill_pass = wrong;
    EXPECT_THROW(rows(), error) << wrong;
  }
}

// The demo model's passes take too long to emulate. Before the first one, all but the scratch is
// there.
TEST(memory_plan, is_what_loading_the_demo_model_takes) {
  for (int const tp : {1, 2}) {
    model_flags const flags = flags_of(demo, tp);
    emulated_model const made(flags);
    memory_plan const plan = plan_for(flags, made);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(tp); ++rank) {
      rank_memory const taken = by_part(made.devices[rank]->memory());
      rank_memory const& planned = plan.ranks[rank];
      EXPECT_EQ(taken.weights, planned.weights) << "rank " << rank << " of " << tp;
      EXPECT_EQ(taken.embedding, planned.embedding) << "rank " << rank << " of " << tp;
      EXPECT_EQ(taken.kv_cache, planned.kv_cache) << "rank " << rank << " of " << tp;
      EXPECT_EQ(taken.exchange, planned.exchange) << "rank " << rank << " of " << tp;
      EXPECT_LT(taken.workspace, planned.workspace) << "rank " << rank << " of " << tp;
    }
  }
}

// Sizes that leave a part of a CTA's last turn, and of the last word, over.
TEST(read_rate, is_measured_and_gives_its_memory_back) {
  auto const device = test::open_test_device();
  for (std::size_t const bytes : {16, 4096, 200'008}) {
    EXPECT_GT(ops::cuda::measure_read_rate(*device, bytes), 0.0) << bytes;
    EXPECT_EQ(device->memory().taken(), 0U) << bytes;
  }
}

model_flags long_context(int tp, std::int64_t context, int lanes = 1) {
  model_flags flags = flags_of("synth:27b", tp);
  flags.device = "cuda";
  flags.lanes = lanes;
  flags.context = context;
  flags.prefix_cache_mib = 1024;
  return flags;
}

constexpr std::size_t gib = std::size_t{1} << 30;

TEST(memory_plan, of_27b_fits_four_v100_of_16_gb_at_262144_tokens) {
  memory_plan const plan = plan_on(long_context(4, 262144), "v100-16gb");
  EXPECT_TRUE(plan.fits()) << plan.shortage();
  EXPECT_EQ(plan.shortage(), "");
  EXPECT_EQ(plan.prefill_pass, 512);
  for (rank_memory const& rank : plan.ranks) {
    EXPECT_GT(rank.needed(), 11 * gib);
    EXPECT_LT(rank.needed(), 13 * gib);
  }
  // 17 layers with one key and one value head of 256 fp16 numbers on each rank.
  EXPECT_EQ(plan.ranks.front().kv_cache, std::size_t{262144 + 64} * 17 * 2 * 256 * 2);
  EXPECT_GT(plan.tokens_that_fit(), 262144);
}

TEST(memory_plan, of_27b_on_fewer_and_larger_cards) {
  EXPECT_FALSE(plan_on(long_context(2, 262144), "v100-16gb").fits());
  EXPECT_TRUE(plan_on(long_context(2, 262144), "v100-32gb").fits());
  EXPECT_TRUE(plan_on(long_context(1, 65536), "v100-32gb").fits());
  EXPECT_FALSE(plan_on(long_context(1, 262144), "v100-32gb").fits());
  EXPECT_TRUE(plan_on(long_context(1, 262144), "h200").fits());
  EXPECT_FALSE(plan_on(long_context(1, 512), "v100-16gb").fits());
}

TEST(memory_plan, says_what_is_missing_and_which_flag_helps) {
  memory_plan plan = plan_on(long_context(1, 262144), "v100-32gb");
  std::string const sentence = plan.shortage();
  EXPECT_NE(sentence.find("memory: synth:27b needs "), std::string::npos) << sentence;
  EXPECT_NE(sentence.find(" GiB on v100-32gb, of whose 31.75 GiB it may have 29.21 GiB"),
            std::string::npos)
      << sentence;
  std::string const helps = "with --kv-tokens " + std::to_string(plan.tokens_that_fit());
  EXPECT_NE(sentence.find(helps), std::string::npos) << sentence;

  model_flags flags = long_context(1, 262144);
  flags.kv_tokens = plan.tokens_that_fit();
  EXPECT_TRUE(plan_on(flags, "v100-32gb").fits());
  flags.kv_tokens += 2 * ops::kv_page_tokens;
  EXPECT_FALSE(plan_on(flags, "v100-32gb").fits());

  plan = plan_on(long_context(1, 512), "v100-16gb");
  EXPECT_EQ(plan.tokens_that_fit(), 0);
  EXPECT_NE(plan.shortage().find("without any KV cache"), std::string::npos) << plan.shortage();
}

TEST(memory_plan, counts_what_others_hold_of_a_card) {
  model_flags const flags = flags_of(tiny);
  gpu_card card = known_card("v100-16gb");
  card.used = card.bytes / 2;
  memory_plan const plan = plan_memory(flags, {card});
  EXPECT_EQ(plan.room(0),
            static_cast<std::size_t>(0.92 * static_cast<double>(card.bytes)) - card.bytes / 2);
  memory_plan full = plan;
  full.cards.front().used = card.bytes;
  EXPECT_EQ(full.room(0), 0U);
  EXPECT_FALSE(full.fits());
}

TEST(memory_plan, json_has_each_rank_and_its_parts) {
  nlohmann::ordered_json const json = to_json(plan_on(flags_of(demo, 2), "v100-16gb"));
  ASSERT_EQ(json["ranks"].size(), 2U);
  std::size_t sum = 0;
  for (auto const& [part, bytes] : json["ranks"][0]["bytes"].items())
    sum += bytes.get<std::size_t>();
  EXPECT_LE(sum, json["ranks"][0]["needed_bytes"].get<std::size_t>());
  EXPECT_TRUE(json["fits"].get<bool>());
  EXPECT_EQ(json["prefill_pass"].get<int>(), 64);
}

}  // namespace
}  // namespace qwen38::cli
