// SPDX-License-Identifier: Apache-2.0
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <qpn/version.hpp>

#include "cli/subcommands.hpp"
#include "support/error.hpp"

int main(int argc, char** argv) {
  // Results go to stdout, everything else to stderr.
  spdlog::set_default_logger(spdlog::stderr_logger_mt("qwen38_server"));
  spdlog::set_pattern("%H:%M:%S %^%l%$ %v");

  CLI::App app{"Qwen3.8 endpoint on qpn's low-bit kernels"};
  app.set_version_flag("--version", QPN_VERSION_STRING);
  app.require_subcommand(1);
  qwen38::cli::action chosen;
  qwen38::cli::add_serve(app, chosen);
  qwen38::cli::add_chat(app, chosen);
  qwen38::cli::add_generate(app, chosen);
  qwen38::cli::add_bench(app, chosen);
  qwen38::cli::add_plan(app, chosen);
  qwen38::cli::add_inspect(app, chosen);
  qwen38::cli::add_convert(app, chosen);
  qwen38::cli::add_synth(app, chosen);
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (CLI::ParseError const& problem) {
    int const code = app.exit(problem);
    return code == 0 ? 0 : 2;
  } catch (qwen38::error const& problem) {
    std::cerr << "qwen38_server: " << problem.what() << '\n';
    return problem.kind() == qwen38::error_kind::internal ? 1 : 2;
  } catch (std::exception const& problem) {
    std::cerr << "qwen38_server: " << problem.what() << '\n';
    return 1;
  }
}
