// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench_rounds.hpp"
#include "cli/bench_suites.hpp"
#include "cli/collector.hpp"
#include "cli/documents.hpp"
#include "cli/draft_depth.hpp"
#include "cli/load.hpp"
#include "cli/subcommands.hpp"
#include "support/error.hpp"

namespace qwen38::cli {
namespace {

struct bench_flags {
  model_flags model;
  std::vector<draft_depth> depths = {{0}, {1}, {3}, {7}, {15}};
  std::size_t documents = 200;
  std::string set = "heldout";  ///< eval/<set>.jsonl of the checkpoint
  std::int64_t max_tokens = 512;
  bool json = false;
};

/// All documents at one depth, one after the other, greedy.
struct depth_result {
  draft_depth depth;
  std::vector<std::uint64_t> hashes;  ///< per document, of the ids
  std::vector<bool> exact;            ///< per document
  std::int64_t tokens = 0;
  std::int64_t decoded = 0;  ///< tokens after each answer's first
  std::int64_t prompt = 0;
  std::int64_t rounds = 0;
  std::int64_t accepted = 0;
  std::array<std::int64_t, model::round_depths.size()> rounds_at = {};  ///< that k auto chose
  double prefill_ms = 0;
  double decode_ms = 0;

  [[nodiscard]] double tau() const {
    return rounds > 0 ? 1.0 + static_cast<double>(accepted) / static_cast<double>(rounds) : 0.0;
  }
  [[nodiscard]] double decode_tok_s() const {
    return decode_ms > 0 ? 1000.0 * static_cast<double>(decoded) / decode_ms : 0.0;
  }
  [[nodiscard]] double prefill_tok_s() const {
    return prefill_ms > 0 ? 1000.0 * static_cast<double>(prompt) / prefill_ms : 0.0;
  }
  [[nodiscard]] std::string hash() const {
    std::uint64_t all = fnv_offset;
    for (std::uint64_t one : hashes) all = mix(all, one);
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(all));
    return text;
  }

  // FNV-1a, 64 bits.
  static constexpr std::uint64_t fnv_offset = 0xcbf29ce484222325U;
  static std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ ((value >> (8 * byte)) & 0xff)) * 0x100000001b3U;
    }
    return hash;
  }
};

depth_result run_depth(engine::engine& engine, loaded_model const& loaded,
                       std::vector<document> const& documents, draft_depth const& depth,
                       std::int64_t max_tokens) {
  depth_result sum;
  sum.depth = depth;
  for (document const& task : documents) {
    engine::request wanted = chat_request(loaded, task.messages, task.options);
    wanted.id = task.id;
    wanted.sampling.temperature = 0;
    wanted.max_tokens = max_tokens;
    set_depth(wanted, depth, true);
    auto const output = std::make_shared<collector>();
    engine.submit(std::move(wanted), output);
    engine::result const outcome = output->wait();
    if (outcome.finish == engine::finish_reason::failed)
      throw error(error_kind::internal, outcome.message);
    std::uint64_t hash = depth_result::fnv_offset;
    for (std::int32_t id : output->ids)
      hash = depth_result::mix(hash, static_cast<std::uint64_t>(id));
    sum.hashes.push_back(hash);
    sum.exact.push_back(answers(task, output->content));
    sum.tokens += outcome.usage.completion_tokens;
    sum.decoded += std::max<std::int64_t>(outcome.usage.completion_tokens - 1, 0);
    sum.prompt += outcome.usage.prompt_tokens;
    sum.rounds += outcome.speculation.rounds;
    sum.accepted += outcome.speculation.accepted;
    for (std::size_t i = 0; i < sum.rounds_at.size(); ++i) {
      sum.rounds_at[i] += outcome.speculation.rounds_at[i];
    }
    sum.prefill_ms += outcome.timing.prefill;
    sum.decode_ms += outcome.timing.decode;
  }
  return sum;
}

nlohmann::ordered_json to_json(std::vector<depth_result> const& results, loaded_model const& loaded,
                               bench_flags const& flags) {
  nlohmann::ordered_json report;
  report["model"] = loaded.name;
  report["device"] = flags.model.device;
  report["device_name"] = loaded.device;
  report["tp"] = flags.model.tp;
  if (!loaded.reduction.empty()) report["reduction"] = loaded.reduction;
  report["threads"] = loaded.threads;
  report["set"] = flags.set;
  report["documents"] = results.front().exact.size();
  auto per_depth = [&](auto value) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (depth_result const& one : results) object[one.depth.name()] = value(one);
    return object;
  };
  report["decode_tok_s"] = per_depth([](depth_result const& one) { return one.decode_tok_s(); });
  report["prefill_tok_s"] = per_depth([](depth_result const& one) { return one.prefill_tok_s(); });
  report["tau"] = per_depth([](depth_result const& one) { return one.tau(); });
  report["completion_tokens"] = per_depth([](depth_result const& one) { return one.tokens; });
  report["ids_hash"] = per_depth([](depth_result const& one) { return one.hash(); });
  for (depth_result const& one : results) {
    if (one.depth.is_chosen) report["chosen_depths"] = rounds_json(one.rounds_at);
  }
  std::int64_t const exact = std::ranges::count(results.front().exact, true);
  report["exact_documents"] = exact;
  report["exact_json"] =
      static_cast<double>(exact) / static_cast<double>(results.front().exact.size());
  auto& routes = report["routes"] = nlohmann::ordered_json::object();
  for (ops::route_count const& one : routes_of(loaded)) routes[one.route] = one.launches;
  ops::work_counts const counts = loaded.ranks.front()->counts();
  report["waits"] = counts.waits;
  report["recordings"] = counts.recordings;
  report["replays"] = counts.replays;
  report["greedy_identical"] = std::ranges::all_of(
      results, [&](depth_result const& one) { return one.hashes == results.front().hashes; });
  return report;
}

int bench(bench_flags flags) {
  flags.model.measures_rounds = has_automatic(flags.depths);
  loaded_model loaded = load(flags.model);
  std::vector<document> documents = read_documents(
      loaded.source->directory() / "eval" / (flags.set + ".jsonl"), loaded.chat_format);
  documents.resize(std::min(documents.size(), flags.documents));
  if (documents.empty())
    throw error(error_kind::invalid_argument, "--documents 0: expected at least one document");
  auto const engine = start_engine(loaded);

  std::vector<depth_result> results;
  std::fprintf(stderr, "   k  decode tok/s    tau  prefill tok/s  exact JSON  ids\n");
  for (draft_depth const& depth : flags.depths) {
    results.push_back(run_depth(*engine, loaded, documents, depth, flags.max_tokens));
    depth_result const& one = results.back();
    std::fprintf(stderr, "%4s  %12.1f  %5.2f  %13.1f  %4td of %3zu  %s\n", depth.name().c_str(),
                 one.decode_tok_s(), one.tau(), one.prefill_tok_s(),
                 std::ranges::count(one.exact, true), one.exact.size(), one.hash().c_str());
  }
  for (std::size_t i = 0; i < documents.size(); ++i) {
    if (!results.front().exact[i]) std::fprintf(stderr, "not exact: %s\n", documents[i].id.c_str());
  }
  for (ops::route_count const& one : routes_of(loaded)) {
    std::fprintf(stderr, "route %s: %llu launches\n", one.route.c_str(),
                 static_cast<unsigned long long>(one.launches));
  }
  {
    ops::work_counts const counts = loaded.ranks.front()->counts();
    std::fprintf(stderr, "waits %llu, rounds recorded %llu, replayed %llu\n",
                 static_cast<unsigned long long>(counts.waits),
                 static_cast<unsigned long long>(counts.recordings),
                 static_cast<unsigned long long>(counts.replays));
  }
  std::fprintf(stderr, "device: %s\n", loaded.device.c_str());
  nlohmann::ordered_json const report = to_json(results, loaded, flags);
  if (flags.json) std::cout << report.dump(2) << '\n';
  return report["greedy_identical"].get<bool>() ? 0 : 1;
}

/// Which benchmark, and the flags of each.
struct all_flags {
  bench_flags documents;
  round_bench_flags rounds;
  suite_bench_flags suites;
  std::string suite;  ///< "": documents where the checkpoint has some, else rounds
  bool profile_round = false;
};

int run(all_flags flags, CLI::Option const& depths) {
  model_flags& model = flags.documents.model;
  if (flags.suite.empty()) {
    bool const has_documents = std::filesystem::exists(std::filesystem::path(model.model) / "eval");
    flags.suite = has_documents ? "documents" : "rounds";
  }
  if (depths.count() > 0) {
    flags.suites.depths = flags.documents.depths;
    flags.rounds.depths.clear();
    for (draft_depth const& one : flags.documents.depths) flags.rounds.depths.push_back(one.most);
  }
  flags.rounds.json = flags.suites.json = flags.documents.json;
  if (flags.suite == "documents") return bench(flags.documents);
  if (flags.profile_round && model.tp > 1 && model.device != "cpu") {
    throw error(error_kind::invalid_argument,
                "--profile-round replays parts of rounds on one GPU, for which other ranks would "
                "not wait: expected --tp 1 with it");
  }
  model.profiled = flags.profile_round;
  if (flags.suite == "rounds") {
    if (has_automatic(flags.documents.depths)) {
      throw error(error_kind::invalid_argument,
                  "--k auto: these rounds have a depth and forced acceptance; expected numbers");
    }
    return bench_rounds(model, flags.rounds);
  }
  flags.suites.suite = flags.suite;
  return bench_suite(model, flags.suites);
}

void add_round_flags(CLI::App& command, round_bench_flags& flags) {
  auto const list = [&](char const* name, auto& into, char const* what) {
    command.add_option(name, into, what)->delimiter(',')->group("Rounds")->capture_default_str();
  };
  list("--live", flags.live, "Live contexts, tokens");
  list("--prefill", flags.prefill,
       "Prompts to prefill, tokens; the longest also fills the contexts");
  list("--accept", flags.accepts,
       "Drafts that each round accepts, whatever the model says; k: all");
  list("--declared", flags.declared, "Declared contexts, at the live context --side-live");
  list("--lanes-list", flags.lanes, "Lanes, at the live context --side-live");
  command.add_option("--side-live", flags.side_live, "Live context of these two")
      ->check(CLI::Range(192, 1 << 20))
      ->group("Rounds")
      ->capture_default_str();
  command.add_option("--rounds", flags.rounds, "Rounds that are timed of each kind")
      ->check(CLI::Range(1, 1000))
      ->group("Rounds")
      ->capture_default_str();
}

}  // namespace

void add_bench(CLI::App& app, action& chosen) {
  auto const all = std::make_shared<all_flags>();
  bench_flags* const flags = &all->documents;
  CLI::App* const command =
      app.add_subcommand("bench",
                         "Speed: of held-out documents (also acceptance and exactness), of "
                         "rounds with forced acceptance, or of suites of prompts");
  command
      ->add_option("--suite", all->suite,
                   "documents, rounds, domain or aime; without it documents where the checkpoint "
                   "has an eval folder, else rounds")
      ->check(CLI::IsMember({"documents", "rounds", "domain", "aime"}));
  add_model_flags(*command, flags->model);
  CLI::Option* const depths =
      command->add_option("--k", flags->depths, "Draft depths, 0 to 15 or auto: e.g. 0,3,7,auto")
          ->delimiter(',')
          ->type_name("DEPTH");
  command->add_option("--documents", flags->documents, "How many documents, from the first")
      ->capture_default_str();
  command->add_option("--set", flags->set, "Which of the checkpoint's eval/NAME.jsonl")
      ->capture_default_str();
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object to stdout");
  add_round_flags(*command, all->rounds);
  command
      ->add_flag("--profile-round", all->profile_round,
                 "Rounds: also where the time of each kind of round goes")
      ->group("Rounds");
  command
      ->add_option("--seeds", all->suites.seeds,
                   "Suites: seeds of sampled tasks; 0: 3, or 5 of aime")
      ->check(CLI::Range(0, 1000))
      ->group("Suites");
  command
      ->add_option("--tasks", all->suites.tasks, "Suites: how many tasks, from the first; 0: all")
      ->group("Suites");
  command
      ->add_option("--answer-tokens", all->suites.max_tokens,
                   "Suites: longest answer; 0: 1024, or 16384 of aime")
      ->check(CLI::Range(0, 1 << 20))
      ->group("Suites");
  command->callback(
      [all, depths, &chosen] { chosen = [all, depths] { return run(*all, *depths); }; });
}

}  // namespace qwen38::cli
