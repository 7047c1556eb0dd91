// SPDX-License-Identifier: Apache-2.0
#include "cli/startup_report.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace qwen38::cli {
namespace {

model::linear_record record(std::string name, checkpoint::quant_class stored, qpn::format_id held) {
  model::linear_record one;
  one.name = std::move(name);
  one.stored = stored;
  one.held.format = held;
  return one;
}

startup_facts good_facts() {
  startup_facts facts;
  facts.model = "m";
  facts.has_mtp = true;
  facts.drafts_asked = 3;
  facts.best_cpu_route = "cpu/avx2";
  facts.warm_up.draft_tokens = 3;
  facts.warm_up.drafted = 12;
  rank_facts rank;
  rank.linears = {
      record("layers.0.q_proj", checkpoint::quant_class::fp8_block, qpn::format_id::fp8),
      record("lm_head", checkpoint::quant_class::nvfp4, qpn::format_id::nvfp4)};
  rank.routes = {{"cpu/avx2/nvfp4", 4}, {"sm90/fp8/mt1", 4}};
  facts.ranks = {rank, rank};
  return facts;
}

TEST(startup_report, finds_nothing_in_good_facts) {
  EXPECT_EQ(find_surprise(good_facts()), "");
  EXPECT_TRUE(fallback_routes(good_facts()).empty());
  nlohmann::ordered_json const report = to_json(good_facts(), "");
  EXPECT_EQ(report["verdict"], "serves");
  EXPECT_EQ(report["checkpoint"]["known_as"], "unpinned");
  EXPECT_EQ(report["ranks"][1]["modules"]["fp8_block"]["on_packed_routes"], 1);
  EXPECT_EQ(report["ranks"][0]["head"]["own_codes"], true);
}

TEST(startup_report, names_each_surprise) {
  struct fault {
    char const* sentence;
    std::function<void(startup_facts&)> make;
  };
  fault const faults[] = {
      {"no linear layer was packed: expected those of the model",
       [](startup_facts& f) { f.ranks[1].linears.clear(); }},
      {"lm_head is nvfp4 in the checkpoint but held as dense16: expected its own codes",
       [](startup_facts& f) { f.ranks[1].linears[1].held.format = qpn::format_id::dense16; }},
      {"no head was packed: expected lm_head or the embedding in its place",
       [](startup_facts& f) { f.ranks[0].linears.pop_back(); }},
      {"the warm-up failed: logits are not finite",
       [](startup_facts& f) {
         f.warm_up.failed = true;
         f.warm_up.message = "logits are not finite";
       }},
      {"--k 3 is asked for, but the checkpoint has no MTP layer: expected --k 0",
       [](startup_facts& f) {
         f.has_mtp = false;
         f.drafts_were_asked = true;
       }},
      {"the warm-up drafted 12 tokens at depth 1: expected depth 3",
       [](startup_facts& f) { f.warm_up.draft_tokens = 1; }},
      {"the warm-up drafted 2 tokens at depth 3: expected depth 3",
       [](startup_facts& f) { f.warm_up.drafted = 2; }},
      {"the warm-up took no route: expected products on packed weights",
       [](startup_facts& f) { f.ranks[1].routes.clear(); }},
      {"products took cpu/scalar/fp8: expected none that falls back",
       [](startup_facts& f) {
         f.ranks[1].routes.push_back({"cpu/scalar/fp8", 1});
       }},
      {"products took sm70/fp8/mt1/emulated: expected none that falls back, or --allow-emulated",
       [](startup_facts& f) {
         f.ranks[0].routes.push_back({"sm70/fp8/mt1/emulated", 1});
       }},
  };
  for (fault const& one : faults) {
    startup_facts facts = good_facts();
    one.make(facts);
    EXPECT_EQ(find_surprise(facts), one.sentence);
    nlohmann::ordered_json const report = to_json(facts, find_surprise(facts));
    EXPECT_EQ(report["verdict"], "refused") << one.sentence;
    EXPECT_EQ(report["surprise"], one.sentence);
  }
}

TEST(startup_report, allows_what_a_flag_allows_and_names_it) {
  startup_facts facts = good_facts();
  facts.ranks[0].routes.push_back({"sm70/fp8/mt1/emulated", 1});
  facts.emulated_is_allowed = true;
  EXPECT_EQ(find_surprise(facts), "");
  EXPECT_EQ(to_json(facts, "")["fallback_routes"][0], "sm70/fp8/mt1/emulated");
  facts.ranks[0].routes.push_back({"cpu/scalar/fp8", 1});
  EXPECT_EQ(find_surprise(facts),
            "products took sm70/fp8/mt1/emulated, cpu/scalar/fp8: expected none that falls back");
}

TEST(startup_report, default_depth_becomes_0_without_an_mtp_layer) {
  startup_facts facts = good_facts();
  facts.has_mtp = false;
  facts.warm_up.draft_tokens = 0;
  facts.warm_up.drafted = 0;
  EXPECT_EQ(find_surprise(facts), "");
  EXPECT_EQ(to_json(facts, "")["speculation"]["served"], 0);
}

TEST(startup_report, tells_of_a_depth_that_is_chosen_and_what_rounds_take) {
  startup_facts facts = good_facts();
  EXPECT_EQ(to_json(facts, "")["speculation"]["round_ms"], nullptr);
  facts.depth_is_chosen = true;
  facts.costs.emplace();
  for (auto& one : facts.costs->of) one = {{{1, 2.5}, {4, 4}}, 0.001};
  nlohmann::ordered_json const told = to_json(facts, "")["speculation"];
  EXPECT_EQ(told["asked"], "auto");
  EXPECT_EQ(told["served"], "auto");
  EXPECT_EQ(told["round_ms"]["15"]["lanes_ms"][1], nlohmann::ordered_json({4, 4.0}));
  EXPECT_EQ(told["round_ms"]["0"]["ms_per_live_token"], 0.001);
  facts.has_mtp = false;
  facts.drafts_were_asked = true;
  EXPECT_EQ(find_surprise(facts),
            "--k auto is asked for, but the checkpoint has no MTP layer: expected --k 0");
}

TEST(startup_report, knows_published_revisions_and_calls_any_other_unpinned) {
  struct found {
    char const* repository;
    char const* commit;
    char const* known_as;
  };
  found const all[] = {
      {"RadixArk/Qwen3.8-27B-NVFP4", "319f741aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
       "RadixArk/Qwen3.8-27B-NVFP4 at 319f741"},
      {"", "482ca0f3aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "nvidia/Qwen3.8-27B-NVFP4 at 482ca0f3"},
      {"Qwen/Qwen3.8-27B", "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0",
       "Qwen/Qwen3.8-27B at 1d4bf0f2"},
      {"RadixArk/Qwen3.8-27B-NVFP4", "319f740aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "unpinned"},
      {"somebody/Qwen3.8-27B-NVFP4", "319f741aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "unpinned"},
      {"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "unpinned"},
  };
  for (found const& one : all) {
    startup_facts facts = good_facts();
    facts.revision = checkpoint::hub_revision{one.repository, one.commit};
    recognise_checkpoint(facts);
    nlohmann::ordered_json const told = to_json(facts, "")["checkpoint"];
    EXPECT_EQ(told["known_as"], one.known_as) << one.commit;
    EXPECT_EQ(told["revision"], one.commit);
    EXPECT_EQ(told["known_by"].is_null(), std::string(one.known_as) == "unpinned") << one.commit;
  }
}

TEST(startup_report, knows_the_demo_model_by_its_structure_wherever_it_lies) {
  startup_facts facts = good_facts();
  facts.structure = "0d535b28644bf938c4cfd02d544102141addf03dc5fc023c5ed51499b635e13f";
  facts.revision = checkpoint::hub_revision{"nvidia/Qwen3.8-27B-NVFP4",
                                            "482ca0f3aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  recognise_checkpoint(facts);
  EXPECT_EQ(facts.known_by, "structure");
  EXPECT_EQ(facts.known_as, "the demo model of this repository");
  facts = good_facts();
  recognise_checkpoint(facts);
  EXPECT_EQ(facts.known_as, "");
  EXPECT_EQ(to_json(facts, "")["checkpoint"]["revision"], nullptr);
}

TEST(startup_report, says_where_each_ranks_thread_runs) {
  startup_facts facts = good_facts();
  EXPECT_EQ(to_json(facts, "")["ranks"][0]["numa"], nullptr);
  facts.ranks[0].place = numa_place{1, {4, 5, 6}, ""};
  facts.ranks[1].place = numa_place{-1, {}, "it belongs to no node"};
  nlohmann::ordered_json const ranks = to_json(facts, "")["ranks"];
  EXPECT_EQ(ranks[0]["numa"]["node"], 1);
  EXPECT_EQ(ranks[0]["numa"]["processors"], 3);
  EXPECT_EQ(ranks[1]["numa"]["node"], nullptr);
  EXPECT_EQ(ranks[1]["numa"]["why_not"], "it belongs to no node");
}

TEST(startup_report, says_how_wide_a_prefill_pass_is) {
  startup_facts facts = good_facts();
  facts.prefill_pass = 512;
  EXPECT_EQ(to_json(facts, "")["prefill_pass"], 512);
}

TEST(startup_report, says_which_kv_cache_declaration_it_overrides) {
  startup_facts facts = good_facts();
  EXPECT_EQ(to_json(facts, "")["kv_cache"]["declaration_overridden"], false);
  facts.kv_cache_directive = "FP8";
  EXPECT_EQ(to_json(facts, "")["kv_cache"]["declared"], "FP8");
  EXPECT_EQ(to_json(facts, "")["kv_cache"]["declaration_overridden"], true);
}

}  // namespace
}  // namespace qwen38::cli
