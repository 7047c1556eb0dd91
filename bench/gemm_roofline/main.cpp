// SPDX-License-Identifier: Apache-2.0
// qpn::gemm over the shapes of Qwen3.8-27B, beside a kernel that only reads the weight and cuBLAS
// on the same weight in f16. docs/gemm_roofline.md says how it measures.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

#include "gemm_roofline/options.hpp"
#include "gemm_roofline/report.hpp"
#include "gemm_roofline/session.hpp"
#include "support/run_context.hpp"

namespace {

using namespace qpn::bench;

/// The names and values of lines_of, in the head of what Google Benchmark prints.
void add_to_head(roofline::report const& report) {
  for (std::string const& line : lines_of(report.context)) {
    std::size_t const colon = line.find(": ");
    benchmark::AddCustomContext(line.substr(0, colon), line.substr(colon + 2));
  }
  benchmark::AddCustomContext("cuBLAS", report.cublas);
}

/// Takes its own arguments.
void initialize_benchmark(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (roofline::is_google_benchmark(argv[i])) {
      throw std::invalid_argument(std::string("Google Benchmark does not know ") + argv[i]);
    }
  }
}

int run(roofline::options const& chosen, std::string const& command) {
  roofline::session session(chosen, command);
  session.register_benchmarks();
  roofline::report const& report = session.measured();
  add_to_head(report);
  for (std::string const& sentence : report.skipped) std::fprintf(stderr, "%s\n", sentence.c_str());
  benchmark::ConsoleReporter reporter;
  if (chosen.table) {
    reporter.SetOutputStream(&std::cerr);
    reporter.SetErrorStream(&std::cerr);
  }
  if (benchmark::RunSpecifiedBenchmarks(&reporter) == 0) {
    throw std::invalid_argument("the arguments leave nothing to measure");
  }
  if (!chosen.json_file.empty()) write_file(chosen.json_file, json_of(report));
  if (!chosen.svg_file.empty()) write_file(chosen.svg_file, svg_of(report));
  if (chosen.table) std::fputs(markdown_of(report).c_str(), stdout);
  return session.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  std::string const command = command_line(argc, argv);
  try {
    roofline::options const chosen = roofline::parse(argc, argv);
    if (chosen.help) {
      std::fputs(roofline::usage, stdout);
      return 0;
    }
    initialize_benchmark(argc, argv);
    int const code = run(chosen, command);
    benchmark::Shutdown();
    return code;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "gemm_roofline: %s\n", error.what());
    return 2;
  }
}
