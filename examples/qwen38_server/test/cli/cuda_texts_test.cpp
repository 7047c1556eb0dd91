// SPDX-License-Identifier: Apache-2.0
// What the demo checkpoint answers to its held-out documents on a GPU: the same ids however they
// are come by, and those of the CPU but for near ties.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/collector.hpp"
#include "cli/documents.hpp"
#include "cli/draft_depth.hpp"
#include "cli/load.hpp"
#include "model/rank_group.hpp"
#include "support/error.hpp"
#include "test/cli/answers.hpp"

namespace qwen38::test {
namespace {

std::filesystem::path const demo = "../../demo_model";
constexpr std::int64_t max_tokens = 512;
constexpr std::int64_t prefill_pass = 64;

cli::model_flags flags_for(std::string const& device) {
  cli::model_flags flags;
  flags.model = demo;
  flags.device = device;
  flags.context = 1024;
  flags.prefix_cache_mib = 256;
  flags.prefill_pass = prefill_pass;
  flags.allow_busy_gpu = true;  // the models of other tests
  return flags;
}

std::vector<cli::document> read_heldout(cli::loaded_model const& loaded, std::size_t count) {
  auto documents = cli::read_documents(demo / "eval" / "heldout.jsonl", loaded.chat_format);
  EXPECT_GE(documents.size(), count);
  documents.resize(std::min(documents.size(), count));
  return documents;
}

engine::sampling_params greedy() {
  engine::sampling_params how;
  how.temperature = 0;
  return how;
}

engine::request request_for(cli::loaded_model const& loaded, cli::document const& task,
                            cli::draft_depth const& depth,
                            engine::sampling_params const& how = greedy()) {
  engine::request wanted = chat_request(loaded, task.messages, task.options);
  wanted.sampling = how;
  wanted.max_tokens = max_tokens;
  set_depth(wanted, depth, true);
  return wanted;
}

std::vector<engine::request> requests_for(cli::loaded_model const& loaded,
                                          std::vector<cli::document> const& documents,
                                          cli::draft_depth const& depth,
                                          engine::sampling_params const& how = greedy()) {
  std::vector<engine::request> requests;
  for (cli::document const& task : documents) {
    requests.push_back(request_for(loaded, task, depth, how));
  }
  return requests;
}

answers answer_on(std::string const& device, std::size_t count, int k, std::size_t together) {
  cli::loaded_model const loaded = cli::load(flags_for(device));
  auto const engine = cli::start_engine(loaded);
  return answer(*engine, requests_for(loaded, read_heldout(loaded, count), {k}), together);
}

struct texts {
  answers ids;
  std::set<std::string> routes;  ///< of all products
};

/// Every depth and lane count, with an empty prefix cache and with a full one; all in recorded
/// rounds.
texts expect_one_text(cli::model_flags flags, std::size_t count,
                      std::vector<cli::draft_depth> const& depths, std::vector<int> const& lanes,
                      engine::sampling_params const& how = greedy()) {
  texts all;
  answers& wanted = all.ids;
  for (int together : lanes) {
    for (cli::draft_depth const& depth : depths) {
      flags.lanes = together;
      flags.measures_rounds = depth.is_chosen;
      cli::loaded_model const loaded = cli::load(flags);
      auto const engine = cli::start_engine(loaded);
      auto const documents = read_heldout(loaded, count);
      for (bool warm : {false, true}) {
        answers const got = answer(*engine, requests_for(loaded, documents, depth, how),
                                   static_cast<std::size_t>(together));
        if (wanted.empty()) wanted = got;
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(got[i], wanted[i]) << documents[i].id << ", k " << depth.name() << ", "
                                       << together << " lanes, " << (warm ? "warm" : "cold");
        }
      }
      for (ops::route_count const& one : cli::routes_of(loaded)) all.routes.insert(one.route);
      ops::work_counts const first = loaded.ranks.front()->counts();
      EXPECT_GT(first.replays, first.recordings);
      for (model::qwen38_model const* const rank : loaded.ranks) {
        EXPECT_EQ(rank->counts().recordings, first.recordings);
        EXPECT_EQ(rank->counts().replays, first.replays);
      }
    }
  }
  return all;
}

TEST(cuda_texts, are_the_same_at_every_depth_in_company_and_with_cached_beginnings) {
  expect_one_text(flags_for("cuda"), 40, {{0}, {1}, {3}, {7}, {15}, cli::automatic_depth},
                  {1, 2, 8});
}

TEST(cuda_texts, with_penalties_are_the_same_at_every_depth_and_in_company) {
  engine::sampling_params how;
  how.temperature = 0.6F;
  how.top_k = 20;
  how.repetition_penalty = 1.05F;
  how.presence_penalty = 0.3F;
  how.frequency_penalty = 0.02F;
  how.seed = 3;
  expect_one_text(flags_for("cuda"), 8, {{0}, {3}, {7}, {15}, cli::automatic_depth}, {1, 4}, how);
}

// The model chooses, penalties or not: a replay and one wait a round, as without them.
TEST(cuda_texts, with_penalties_stay_in_recorded_rounds) {
  cli::model_flags flags = flags_for("cuda");
  flags.lanes = 1;
  std::vector<ops::work_counts> spent;
  for (bool penalised : {false, true}) {
    cli::loaded_model const loaded = cli::load(flags);
    auto engine = cli::start_engine(loaded);
    ops::work_counts const before = loaded.ranks.front()->counts();
    engine::sampling_params how;
    how.seed = 3;
    how.presence_penalty = penalised ? 0.3F : 0.0F;
    cli::document const task = read_heldout(loaded, 1).front();
    engine::request wanted = request_for(loaded, task, {0}, how);
    wanted.max_tokens = 40;
    wanted.stop_ids.clear();  // 40 tokens, whatever they are
    auto const output = std::make_shared<cli::collector>();
    engine->submit(std::move(wanted), output);
    EXPECT_EQ(output->wait().usage.completion_tokens, 40);
    engine.reset();  // its thread may still be in the last round, and counts
    ops::work_counts const after = loaded.ranks.front()->counts();
    spent.push_back({after.waits - before.waits, after.recordings - before.recordings,
                     after.replays - before.replays});
  }
  // A wait more each round would be 39. A pass of the prompt may find all pinned buffers still in
  // use, which is a wait, too, and depends on timing.
  EXPECT_LT(spent[1].waits, spent[0].waits + 5);
  EXPECT_EQ(spent[1].replays, spent[0].replays);
  EXPECT_GT(spent[1].replays, 30U);
}

// Passes of 128 rows go by the kernels for many rows.
TEST(cuda_texts, are_the_same_after_wide_prefill_passes) {
  cli::model_flags flags = flags_for("cuda");
  flags.prefill_pass = 2 * prefill_pass;
  auto const routes = expect_one_text(flags, 40, {{0}, {7}}, {1, 8}).routes;
  EXPECT_TRUE(std::ranges::any_of(
      routes, [](std::string const& route) { return route.find("/wide") != std::string::npos; }));
}

TEST(cuda_texts, are_the_same_for_four_ranks_on_one_gpu_and_but_for_near_ties_those_of_one) {
  constexpr std::size_t count = 12;
  constexpr float near_tie = 0.1F;
  cli::model_flags flags = flags_for("cuda");
  flags.tp = 4;
  flags.devices = {0, 0, 0, 0};
  answers const got =
      expect_one_text(flags, count, {{0}, {1}, {3}, {7}, {15}, cli::automatic_depth}, {1, 8}).ids;
  {
    flags.lanes = 4;
    cli::loaded_model const loaded = cli::load(flags);
    auto& group = dynamic_cast<model::rank_group&>(*loaded.model);
    for (int rank = 0; rank < group.size(); ++rank) {  // no round is recorded
      group.rank(rank).set_tap([](std::int64_t, std::span<float const>) {});
    }
    ops::work_counts const before = loaded.ranks.front()->counts();
    auto const engine = cli::start_engine(loaded);
    auto const requests = requests_for(loaded, read_heldout(loaded, count), {3});
    EXPECT_EQ(answer(*engine, requests, 4), got);
    EXPECT_EQ(loaded.ranks.front()->counts().replays, before.replays);
  }
  cli::loaded_model const alone = cli::load(flags_for("cuda"));
  auto const requests = requests_for(alone, read_heldout(alone, count), {0});
  answers wanted;
  {
    auto const engine = cli::start_engine(alone);
    wanted = answer(*engine, requests, 1);
  }
  agreement const all = expect_near_ties(alone, requests, got, wanted, near_tie);
  std::printf("%zu of %zu texts of four ranks are those of one; the widest near tie is %g\n",
              all.same, got.size(), static_cast<double>(all.widest));
}

TEST(cuda_texts, are_those_of_the_cpu_but_for_near_ties) {
  constexpr std::size_t count = 200;
  constexpr float near_tie = 0.1F;  // of logits whose rows differ by up to 5e-3 of some 20
  answers const got = answer_on("cuda", count, 7, 8);
  cli::loaded_model const cpu = cli::load(flags_for("cpu"));
  std::vector<cli::document> const documents = read_heldout(cpu, count);
  answers wanted;
  {
    auto const engine = cli::start_engine(cpu);
    wanted = answer(*engine, requests_for(cpu, documents, {7}), 8);
  }
  agreement const all =
      expect_near_ties(cpu, requests_for(cpu, documents, {0}), got, wanted, near_tie);
  std::printf("%zu of %zu texts are the CPU's; the widest near tie is %g\n", all.same, got.size(),
              static_cast<double>(all.widest));
  EXPECT_GE(all.same * 100, count * 95);
}

}  // namespace
}  // namespace qwen38::test
