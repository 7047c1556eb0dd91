// SPDX-License-Identifier: Apache-2.0
// What a V100 should need for the library's GEMMs, from their machine code: modelled, not measured.
// No GPU is needed. docs/benchmarks.md says how the model works.

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>

#include "fit.hpp"
#include "report.hpp"
#include "round_report.hpp"

namespace {

using namespace qpn::bench::v100;

constexpr char const* usage =
    "v100_model [--round] [--markdown | --json | --svg FILE | --fit] [--no-limits]\n"
    "  --round      rounds of Qwen3.8-27B on four cards instead of products; --markdown or --json\n"
    "  --markdown   the tables of docs/benchmarks.md; what is printed where nothing is asked for\n"
    "  --json       an array of {shape, format, n, k, m, us, read_us, gb_s, registers, spills,\n"
    "               instr_per_weight}; of rounds: of {drafts, context, launches, round_ms,\n"
    "               predecessor_ms, and the ms of each part}\n"
    "  --svg FILE   the chart of docs/benchmarks.md\n"
    "  --fit        fits the constants to the published timings again and prints them\n"
    "  --no-limits  exit 0 also where a limit is missed\n"
    "Exit code: 0, 1 where a limit is missed (a sentence each on stderr), 2 on an error.\n";

struct options {
  std::string_view output = "--markdown";
  std::string svg_file;
  bool limits = true;
  bool rounds = false;
  bool help = false;
};

/// False, and a sentence on stderr, where an argument is not understood.
bool parse(int argc, char** argv, options& chosen) {
  bool has_output = false;
  for (int i = 1; i < argc; ++i) {
    std::string_view const argument = argv[i];
    if (argument == "--help") {
      chosen.help = true;
    } else if (argument == "--no-limits") {
      chosen.limits = false;
    } else if (argument == "--round") {
      chosen.rounds = true;
    } else if (argument == "--markdown" || argument == "--json" || argument == "--svg" ||
               argument == "--fit") {
      if (has_output) {
        std::fprintf(stderr, "v100_model: %s is a second output, expected one\n", argv[i]);
        return false;
      }
      has_output = true;
      chosen.output = argument;
      if (argument != "--svg") continue;
      if (++i == argc) {
        std::fprintf(stderr, "v100_model: --svg needs the name of a file\n");
        return false;
      }
      chosen.svg_file = argv[i];
    } else {
      std::fprintf(stderr, "v100_model: unknown argument %s, see --help\n", argv[i]);
      return false;
    }
  }
  if (chosen.rounds && chosen.output != "--markdown" && chosen.output != "--json") {
    std::fprintf(stderr, "v100_model: --round goes with --markdown or --json\n");
    return false;
  }
  return true;
}

int print_fit() {
  fitted_constants const found = fit_constants(published_timings());
  std::printf("ramp and drain %g us, interference p = %g\n", found.launch_us, found.interference);
  if (found == fitted) return 0;
  std::fprintf(stderr, "v100_model: fit.hpp has %g us and p = %g, the fit gives others\n",
               fitted.launch_us, fitted.interference);
  return 1;
}

/// The exit code: 0, or 1 where a limit is missed and that matters.
int judge(options const& chosen, std::vector<std::string> const& misses) {
  if (!chosen.limits) return 0;
  for (std::string const& miss : misses) std::fprintf(stderr, "v100_model: %s\n", miss.c_str());
  return misses.empty() ? 0 : 1;
}

int print_rounds(options const& chosen) {
  round_timer timer(built_in_sass_table(), fitted);
  std::vector<round_time> const rounds = make_rounds(timer);
  std::string const text =
      chosen.output == "--json" ? round_json_of(rounds) : round_markdown_of(rounds, timer);
  std::fputs(text.c_str(), stdout);
  return judge(chosen, missed_round_limits(rounds));
}

int run(options const& chosen) {
  if (chosen.output == "--fit") return print_fit();
  if (chosen.rounds) return print_rounds(chosen);
  sass_table const& table = built_in_sass_table();
  std::vector<model_row> const rows = make_rows(table, fitted);
  if (chosen.output == "--json") {
    std::fputs(json_of(rows).c_str(), stdout);
  } else if (chosen.output == "--svg") {
    std::ofstream file(chosen.svg_file);
    file << svg_of(rows);
    if (!file.flush()) {
      std::fprintf(stderr, "v100_model: %s cannot be written\n", chosen.svg_file.c_str());
      return 2;
    }
  } else {
    std::fputs(markdown_of(rows, table, fitted).c_str(), stdout);
  }
  return judge(chosen, missed_limits(rows));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    options chosen;
    if (!parse(argc, argv, chosen)) return 2;
    if (chosen.help) {
      std::fputs(usage, stdout);
      return 0;
    }
    return run(chosen);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "v100_model: %s\n", error.what());
    return 2;
  }
}
