// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_suites.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/collector.hpp"
#include "cli/documents.hpp"
#include "cli/suite_tasks.hpp"
#include "support/error.hpp"

namespace qwen38::cli {
namespace {

using nlohmann::ordered_json;

struct samples {
  std::vector<double> values;

  [[nodiscard]] double mean() const {
    return values.empty() ? 0.0
                          : std::accumulate(values.begin(), values.end(), 0.0) /
                                static_cast<double>(values.size());
  }
  [[nodiscard]] double spread() const {
    if (values.size() < 2) return 0;
    double const middle = mean();
    double sum = 0;
    for (double const one : values) sum += (one - middle) * (one - middle);
    return std::sqrt(sum / static_cast<double>(values.size() - 1));
  }
  [[nodiscard]] ordered_json to_json() const {
    return {{"mean", mean()}, {"spread", spread()}, {"count", values.size()}};
  }
};

/// All answers of one cell at one depth.
struct cell_result {
  std::string cell;
  draft_depth depth;
  std::array<std::int64_t, model::round_depths.size()> rounds_at = {};  ///< that k auto chose
  engine::sampling_params sampling;
  samples tok_s;
  samples tau;
  samples tokens;
  samples seconds_to_right;
  int known = 0;  ///< answers that could be checked
  int right = 0;
};

bool is_right(suite_task const& task, collector const& output) {
  if (task.answer) return final_integer(output.content) == task.answer;
  document expected;
  expected.expected = task.expected_json;
  return answers(expected, output.content);
}

engine::request request_of(loaded_model const& loaded, suite_task const& task,
                           draft_depth const& depth, std::uint64_t seed, std::int64_t max_tokens) {
  std::vector<text::message> const messages = {{text::chat_role::user, task.prompt, {}, {}}};
  text::chat_options options = text::default_chat_options(loaded.chat_format);
  options.enable_thinking = task.thinking;
  options.reasoning_effort = task.effort;
  engine::request wanted = chat_request(loaded, messages, options);
  wanted.id = task.cell;
  wanted.sampling = task.sampling;
  wanted.sampling.seed = seed;
  set_depth(wanted, depth, loaded.model->get_limits().has_mtp);
  wanted.max_tokens =
      std::min(max_tokens, loaded.model->get_limits().max_context - std::ssize(wanted.prompt_ids));
  return wanted;
}

void answer(engine::engine& engine, loaded_model const& loaded, suite_task const& task,
            std::uint64_t seed, std::int64_t max_tokens, cell_result& into) {
  auto const output = std::make_shared<collector>();
  engine.submit(request_of(loaded, task, into.depth, seed, max_tokens), output);
  engine::result const outcome = output->wait();
  if (outcome.finish == engine::finish_reason::failed) {
    throw error(error_kind::internal, outcome.message);
  }
  double const tau = outcome.speculation.tau();
  into.tau.values.push_back(tau);
  for (std::size_t i = 0; i < into.rounds_at.size(); ++i) {
    into.rounds_at[i] += outcome.speculation.rounds_at[i];
  }
  into.tokens.values.push_back(static_cast<double>(outcome.usage.completion_tokens));
  into.tok_s.values.push_back(
      suite_tok_s(outcome.usage.completion_tokens, tau, outcome.timing.decode));
  if (!task.answer && task.expected_json.empty()) return;
  ++into.known;
  if (!is_right(task, *output)) return;
  ++into.right;
  into.seconds_to_right.values.push_back((outcome.timing.prefill + outcome.timing.decode) / 1000.0);
}

ordered_json to_json(cell_result const& one) {
  ordered_json out = {{"cell", one.cell}, {"k", to_json(one.depth)}};
  out["sampling"] = {{"temperature", one.sampling.temperature},
                     {"top_p", one.sampling.top_p},
                     {"top_k", one.sampling.top_k},
                     {"min_p", one.sampling.min_p},
                     {"repetition_penalty", one.sampling.repetition_penalty},
                     {"frequency_penalty", one.sampling.frequency_penalty},
                     {"presence_penalty", one.sampling.presence_penalty}};
  out["tok_s"] = one.tok_s.to_json();
  out["tokens_per_round"] = one.tau.to_json();
  out["tokens"] = one.tokens.to_json();
  if (one.depth.is_chosen) out["chosen_depths"] = rounds_json(one.rounds_at);
  if (one.known > 0) {
    out["answers"] = one.known;
    out["right"] = one.right;
    out["seconds_to_right"] = one.seconds_to_right.to_json();
  }
  return out;
}

void print(cell_result const& one) {
  std::string const right =
      one.known > 0 ? ", right " + std::to_string(one.right) + " of " + std::to_string(one.known)
                    : std::string();
  std::fprintf(stderr, "%-14s k %4s: %8.1f +- %6.1f tok/s, tau %5.2f +- %.2f%s\n", one.cell.c_str(),
               one.depth.name().c_str(), one.tok_s.mean(), one.tok_s.spread(), one.tau.mean(),
               one.tau.spread(), right.c_str());
}

}  // namespace

double suite_tok_s(std::int64_t generated, double tau, double decode_ms) {
  double const decoded = static_cast<double>(generated) - (tau + 1);
  return decoded > 0 && decode_ms > 0 ? 1000.0 * decoded / decode_ms : 0.0;
}

int bench_suite(model_flags flags, suite_bench_flags const& wanted) {
  bool const is_aime = wanted.suite == "aime";
  std::vector<suite_task> tasks = is_aime ? aime_suite() : domain_suite();
  if (wanted.tasks > 0) tasks.resize(std::min(tasks.size(), wanted.tasks));
  int const seeds = wanted.seeds > 0 ? wanted.seeds : (is_aime ? 5 : 3);
  std::int64_t const usual = is_aime ? 16384 : 1024;
  std::int64_t const max_tokens = wanted.max_tokens > 0 ? wanted.max_tokens : usual;
  flags.measures_rounds = has_automatic(wanted.depths);
  loaded_model const loaded = load(flags);
  auto const engine = start_engine(loaded);

  ordered_json report = {{"model", loaded.name},    {"suite", wanted.suite},
                         {"device", flags.device},  {"device_name", loaded.device},
                         {"tp", flags.tp},          {"seeds", seeds},
                         {"max_tokens", max_tokens}};
  report["cells"] = ordered_json::array();
  for (draft_depth const& depth : wanted.depths) {
    if (depth.most > 0 && !loaded.model->get_limits().has_mtp) continue;
    std::vector<cell_result> cells;
    for (suite_task const& task : tasks) {
      if (cells.empty() || cells.back().cell != task.cell) {
        cells.emplace_back();
        cells.back().cell = task.cell;
        cells.back().depth = depth;
        cells.back().sampling = task.sampling;
      }
      int const runs = task.sampling.temperature > 0 ? seeds : 1;
      for (int seed = 1; seed <= runs; ++seed) {
        answer(*engine, loaded, task, static_cast<std::uint64_t>(seed), max_tokens, cells.back());
      }
    }
    for (cell_result const& one : cells) {
      print(one);
      report["cells"].push_back(to_json(one));
    }
  }
  if (wanted.json) std::cout << report.dump(2) << '\n';
  return 0;
}

}  // namespace qwen38::cli
