// SPDX-License-Identifier: Apache-2.0
// Times every choice that qpn::gemm has for a call and writes the table of those that beat the
// rules. docs/gemm_tune.md says how to use it.

#include <cstdio>
#include <exception>

#include "gemm_tune/header.hpp"
#include "gemm_tune/options.hpp"
#include "gemm_tune/tuner.hpp"
#include "support/output_check.hpp"

namespace {

using namespace qpn::bench;

void write_files(tune::options const& chosen, tune::report const& measured) {
  if (!chosen.json_file.empty()) write_file(chosen.json_file, json_of(measured));
  auto const lines = tune::table_lines(measured);
  if (chosen.header_file.empty() || lines.empty()) return;  // an array has a row at least
  write_file(chosen.header_file,
             tune::header_text(tune::array_name(chosen.header_file), measured.context, lines));
}

int run(tune::options const& chosen, std::string const& command) {
  tune::report const measured =
      tune::tune(chosen, command, [&](tune::report const& known) { write_files(chosen, known); });
  std::fputs(tune::markdown_of(measured).c_str(), stdout);
  if (!chosen.header_file.empty() && tune::table_lines(measured).empty()) {
    std::fprintf(stderr,
                 "no choice beats the rules by more than 2 %% and the noise, so %s is not "
                 "written\n",
                 chosen.header_file.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    tune::options const chosen = tune::parse(argc, argv);
    if (chosen.help) {
      std::fputs(tune::usage, stdout);
      return 0;
    }
    return run(chosen, command_line(argc, argv));
  } catch (wrong_output const& error) {
    std::fprintf(stderr, "gemm_tune: %s\n", error.what());
    return 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "gemm_tune: %s\n", error.what());
    return 2;
  }
}
