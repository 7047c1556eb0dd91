// SPDX-License-Identifier: Apache-2.0
// Load on any endpoint that streams OpenAI chat completions: latency, throughput, goodput,
// acceptance.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/serving_client.hpp"

namespace qwen38::bench {
namespace {

using json = nlohmann::ordered_json;

struct bench_flags {
  serving_run run;
  std::string corpus;
  std::string model;
  std::string kind;  // of the corpus; "": all
  std::int64_t prompts = 0;
  std::int64_t max_tokens = 256;
  std::string depth;  // of drafts; "": the server's
  bool ignore_eos = false;
  double temperature = 0;
  std::vector<std::string> goodput;
  bool as_json = false;
};

service_level read_goodput(std::vector<std::string> const& wanted) {
  service_level out;
  std::map<std::string, double*> const names = {
      {"ttft", &out.ttft}, {"tpot", &out.tpot}, {"e2el", &out.e2el}};
  for (auto const& one : wanted) {
    auto const colon = one.find(':');
    auto const name = names.find(one.substr(0, colon));
    if (colon == std::string::npos || name == names.end()) {
      throw std::invalid_argument("--goodput " + one + ": expected ttft:MS, tpot:MS or e2el:MS");
    }
    *name->second = std::stod(one.substr(colon + 1));
  }
  return out;
}

/// A number, "auto", or null where none is given.
json to_json(std::string const& depth) {
  if (depth.empty()) return {};
  return depth == "auto" ? json(depth) : json(std::stoi(depth));
}

/// The corpus in its order, again and again until there are as many requests as asked for.
std::vector<std::string> make_bodies(bench_flags const& flags) {
  std::ifstream file(flags.corpus);
  if (!file) throw std::runtime_error("--corpus " + flags.corpus + " cannot be read");
  std::vector<json> dialogues;
  for (std::string line; std::getline(file, line);) {
    auto const fields = json::parse(line);
    if (flags.kind.empty() || fields.at("kind") == flags.kind)
      dialogues.push_back(fields.at("messages"));
  }
  if (dialogues.empty()) throw std::runtime_error(flags.corpus + " has nothing of that kind");
  auto const count = flags.prompts > 0 ? static_cast<std::size_t>(flags.prompts) : dialogues.size();
  std::vector<std::string> bodies;
  for (std::size_t i = 0; i < count; ++i) {
    json body;
    if (!flags.model.empty()) body["model"] = flags.model;
    body["messages"] = dialogues[i % dialogues.size()];
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    body["max_tokens"] = flags.max_tokens;
    body["temperature"] = flags.temperature;
    body["seed"] = flags.run.seed + i;
    if (flags.ignore_eos) body["ignore_eos"] = true;
    if (!flags.depth.empty()) body["speculative"] = {{"k", to_json(flags.depth)}};
    bodies.push_back(body.dump());
  }
  return bodies;
}

void print_line(char const* name, json const& value) {
  if (value.is_number_integer()) {
    std::printf("%-40s %lld\n", name, value.get<long long>());
  } else {
    std::printf("%-40s %.2f\n", name, value.get<double>());
  }
}

void print_table(json const& report) {
  std::printf("============ Serving Benchmark Result ============\n");
  struct named {
    char const* title;
    char const* field;
  };
  auto const print = [&](std::initializer_list<named> lines) {
    for (auto const& line : lines) {
      if (report.contains(line.field)) print_line(line.title, report[line.field]);
    }
  };
  print({{"Successful requests:", "completed"},
         {"Failed requests:", "failed"},
         {"Benchmark duration (s):", "duration"},
         {"Total input tokens:", "total_input_tokens"},
         {"Total cached input tokens:", "total_cached_tokens"},
         {"Total generated tokens:", "total_output_tokens"},
         {"Request throughput (req/s):", "request_throughput"},
         {"Request goodput (req/s):", "request_goodput"},
         {"Output token throughput (tok/s):", "output_throughput"},
         {"Total token throughput (tok/s):", "total_token_throughput"},
         {"Tokens per chunk:", "tokens_per_chunk"}});
  for (auto const& [name, title] : {std::pair<std::string, std::string>{"ttft", "TTFT"},
                                    {"tpot", "TPOT"},
                                    {"itl", "ITL"},
                                    {"e2el", "E2EL"}}) {
    for (std::string const of : {"mean", "median", "p90", "p99"}) {
      auto const shown = of == "mean"     ? "Mean"
                         : of == "median" ? "Median"
                         : of == "p90"    ? "P90"
                                          : "P99";
      print_line((shown + (' ' + title) + " (ms):").c_str(), report[of + '_' + name + "_ms"]);
    }
  }
  print({{"Acceptance rate (%):", "spec_decode_acceptance_rate"},
         {"Acceptance length (tau):", "spec_decode_acceptance_length"}});
  std::printf("==================================================\n");
}

int measure(bench_flags& flags) {
  auto const wanted = read_goodput(flags.goodput);
  flags.run.bodies = make_bodies(flags);
  auto const seen = run_serving_clients(flags.run);
  json report = {
      {"backend", "openai-chat"},
      {"model_id", flags.model},
      {"corpus", flags.corpus},
      {"num_prompts", flags.run.bodies.size()},
      {"request_rate", flags.run.request_rate > 0 ? json(flags.run.request_rate) : json("inf")},
      {"max_concurrency", flags.run.concurrency > 0 ? json(flags.run.concurrency) : json()},
      {"max_tokens", flags.max_tokens},
      {"k", to_json(flags.depth)}};
  report.update(serving_report(seen.requests, seen.duration_s, wanted));
  for (std::size_t i = 0; i < seen.requests.size(); ++i) {
    if (auto const& problem = seen.requests[i].error; !problem.empty())
      std::fprintf(stderr, "request %zu: %s\n", i, problem.c_str());
  }
  if (flags.as_json) {
    std::printf("%s\n", report.dump(2, ' ', false, json::error_handler_t::replace).c_str());
  } else {
    print_table(report);
  }
  return report["failed"] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace qwen38::bench

int main(int count, char** arguments) {
  qwen38::bench::bench_flags flags;
  CLI::App app{
      "Load on an endpoint of streamed OpenAI chat completions; figures are named as in `vllm "
      "bench "
      "serve`"};
  app.add_option("--host", flags.run.host, "Of the endpoint")->capture_default_str();
  app.add_option("--port", flags.run.port, "Of the endpoint")->capture_default_str();
  app.add_option("--path", flags.run.path, "Of the endpoint")->capture_default_str();
  app.add_option("--api-key", flags.run.api_key, "Bearer token");
  app.add_option("--model", flags.model, "Model to ask for; default: none");
  app.add_option("--corpus", flags.corpus,
                 "JSON Lines of {\"kind\": .., \"messages\": [..]}, e.g. corpus.jsonl beside this "
                 "program's source")
      ->required();
  app.add_option("--kind", flags.kind, "Only dialogues of this kind");
  app.add_option("--num-prompts", flags.prompts, "Requests; 0: the corpus once")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--max-concurrency", flags.run.concurrency, "Requests at once; 0: no limit")
      ->check(CLI::Range(0, 20'000))
      ->capture_default_str();
  app.add_option("--request-rate", flags.run.request_rate,
                 "Requests a second, Poisson; 0: as fast as --max-concurrency allows")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--max-tokens", flags.max_tokens, "Of each answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--k", flags.depth, "Draft depth, or auto; default: the server's")
      ->check(CLI::Range(0, 15) | CLI::IsMember({"auto"}));
  app.add_flag("--ignore-eos", flags.ignore_eos, "Every answer has --max-tokens tokens");
  app.add_option("--temperature", flags.temperature, "0: greedy")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--seed", flags.run.seed,
                 "Of arrivals and, one more for each request, of sampling")
      ->capture_default_str();
  app.add_option("--goodput", flags.goodput,
                 "Service level in ms, e.g. ttft:2000 tpot:40; requests that keep it are goodput");
  app.add_option("--timeout", flags.run.timeout_s, "Seconds for each request")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  app.add_flag("--json", flags.as_json, "JSON instead of a table");
  CLI11_PARSE(app, count, arguments);
  try {
    return qwen38::bench::measure(flags);
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "qwen38_serving_bench: %s\n", problem.what());
    return 1;
  }
}
