// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/inspect.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/load.hpp"
#include "cli/subcommands.hpp"
#include "parallel/rank_bytes.hpp"

namespace qwen38::cli {

void add_inspect(CLI::App& app, action& chosen) {
  struct inspect_flags {
    std::filesystem::path directory;
    bool json = false;
    bool headers_only = false;
    int tp = 1;
  };
  auto const flags = std::make_shared<inspect_flags>();
  CLI::App* const command = app.add_subcommand(
      "inspect", "What a checkpoint holds, class by class, and everything that is wrong with it");
  command->add_option("directory", flags->directory, "Checkpoint directory")->required();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_flag("--headers-only", flags->headers_only, "Accept files whose data is absent");
  add_tp_flag(*command, flags->tp);
  command->callback([flags, &chosen] {
    chosen = [flags] {
      checkpoint::inspection result = checkpoint::inspect_checkpoint(
          flags->directory,
          flags->headers_only ? checkpoint::open_mode::headers_only : checkpoint::open_mode::full);
      if (flags->tp > 1 && result.weights) {
        parallel::shard_plan const plan(*result.config, flags->tp);
        for (int rank = 0; rank < flags->tp; ++rank) {
          result.ranks.push_back(
              parallel::bytes_of_rank(*result.weights, *result.config, plan, rank));
        }
      }
      return checkpoint::print_inspection(std::cout, result, flags->json);
    };
  });
}

}  // namespace qwen38::cli
