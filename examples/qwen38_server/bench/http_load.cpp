// SPDX-License-Identifier: Apache-2.0
// Many streams at once: what clients see of the HTTP layer, and what memory it takes.
//   qwen38_http_load --clients 300 --tokens 100 --interval-ms 20 [--lanes 32] [--json]
// The server is a process of its own, with an engine that only keeps time, so that its memory is
// the HTTP layer's. Exits with 1 unless every stream came to its end with the right text.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/load_clients.hpp"
#include "bench/load_server.hpp"

namespace qwen38::bench {
namespace {

/// The value that a share of `values` does not exceed; 0 if there is none.
double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  auto const rank = std::ceil(share * static_cast<double>(values.size()));
  auto const index = static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[static_cast<std::size_t>(index)];
}

nlohmann::ordered_json summary(std::vector<double> const& values) {
  return {{"p50", percentile(values, 0.5)},
          {"p99", percentile(values, 0.99)},
          {"max", percentile(values, 1)}};
}

/// A descriptor per stream on either side.
void raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void print_table(nlohmann::ordered_json const& report) {
  std::printf("%d clients, %d lanes, %d tokens every %d ms: %d completed, %d errors, %.0f ms\n",
              report["clients"].get<int>(), report["lanes"].get<int>(), report["tokens"].get<int>(),
              report["interval_ms"].get<int>(), report["completed"].get<int>(),
              report["errors"].get<int>(), report["wall_ms"].get<double>());
  std::printf("%-16s %9s %9s %9s\n", "ms", "p50", "p99", "max");
  for (char const* const name : {"first_event_ms", "first_token_ms", "gap_ms", "health_ms"}) {
    auto const& row = report[name];
    std::printf("%-16s %9.2f %9.2f %9.2f\n", name, row["p50"].get<double>(),
                row["p99"].get<double>(), row["max"].get<double>());
  }
  std::printf("server RSS: %.1f MiB before, %.1f MiB at its peak\n",
              report["rss_before_kib"].get<double>() / 1024,
              report["rss_peak_kib"].get<double>() / 1024);
}

int measure(load_server_options const& wanted, int clients, bool as_json) {
  load_process const server(wanted);
  auto const before = server.resident_kib();
  std::string expected;
  for (int i = 0; i < wanted.tokens; ++i) expected += load_token;
  auto const seen = run_load_clients(server.port(), clients, expected);
  nlohmann::ordered_json const report = {{"clients", clients},
                                         {"lanes", wanted.lanes},
                                         {"queue", wanted.queue},
                                         {"tokens", wanted.tokens},
                                         {"interval_ms", wanted.interval_ms},
                                         {"completed", seen.completed},
                                         {"errors", seen.errors},
                                         {"wall_ms", seen.wall_ms},
                                         {"first_event_ms", summary(seen.first_event)},
                                         {"first_token_ms", summary(seen.first_token)},
                                         {"gap_ms", summary(seen.gaps)},
                                         {"health_ms", summary(seen.health)},
                                         {"health_requests", seen.health.size()},
                                         {"health_errors", seen.health_errors},
                                         {"rss_before_kib", before},
                                         {"rss_peak_kib", server.peak_resident_kib()}};
  if (as_json) {
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    print_table(report);
  }
  bool const good = seen.completed == clients && seen.errors == 0 && seen.health_errors == 0;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace qwen38::bench

int main(int count, char** arguments) {
  qwen38::bench::load_server_options wanted;
  int clients = 300;
  bool as_json = false;
  bool serve = false;
  CLI::App app{"Many streams at once on the HTTP layer"};
  app.add_option("--clients", clients, "Streams")
      ->check(CLI::Range(1, 20'000))
      ->capture_default_str();
  app.add_option("--lanes", wanted.lanes, "Answers at the same time; further streams wait")
      ->check(CLI::Range(1, 20'000))
      ->capture_default_str();
  app.add_option("--queue", wanted.queue, "Streams that may wait")->capture_default_str();
  app.add_option("--tokens", wanted.tokens, "Of each answer")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--interval-ms", wanted.interval_ms, "Between the tokens of an answer")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  app.add_flag("--json", as_json, "JSON instead of a table");
  app.add_flag("--serve", serve, "Be the server under load (for this program's own use)");
  CLI11_PARSE(app, count, arguments);
  try {
    qwen38::bench::raise_descriptor_limit();
    if (!serve) return qwen38::bench::measure(wanted, clients, as_json);
    qwen38::bench::run_load_server(wanted);
    return 0;
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "qwen38_http_load: %s\n", problem.what());
    return 1;
  }
}
