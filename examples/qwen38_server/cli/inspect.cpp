// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/inspect.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/subcommands.hpp"

namespace qwen38::cli {

void add_inspect(CLI::App& app, action& chosen) {
  struct inspect_flags {
    std::filesystem::path directory;
    bool json = false;
    bool headers_only = false;
  };
  auto const flags = std::make_shared<inspect_flags>();
  CLI::App* const command = app.add_subcommand(
      "inspect", "What a checkpoint holds, class by class, and everything that is wrong with it");
  command->add_option("directory", flags->directory, "Checkpoint directory")->required();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_flag("--headers-only", flags->headers_only, "Accept files whose data is absent");
  command->callback([flags, &chosen] {
    chosen = [flags] {
      checkpoint::inspect_options options;
      options.json = flags->json;
      if (flags->headers_only) options.mode = checkpoint::open_mode::headers_only;
      return checkpoint::inspect(flags->directory, std::cout, options);
    };
  });
}

}  // namespace qwen38::cli
