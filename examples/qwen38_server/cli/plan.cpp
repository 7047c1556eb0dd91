// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstddef>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/load.hpp"
#include "cli/memory_plan.hpp"
#include "cli/subcommands.hpp"

namespace qwen38::cli {
namespace {

struct plan_flags {
  model_flags model;
  std::string card = "v100-16gb";
  std::size_t card_memory = 0;  ///< 0: the card's
  bool json = false;
};

int plan(plan_flags const& flags) {
  gpu_card card = known_card(flags.card);
  if (flags.card_memory > 0) card.bytes = flags.card_memory;
  memory_plan const made = plan_memory(
      flags.model, std::vector<gpu_card>(static_cast<std::size_t>(flags.model.tp), card));
  if (flags.json) {
    std::cout << to_json(made).dump(2) << '\n';
  } else {
    std::cout << to_table(made);
  }
  std::string const shortage = made.shortage();
  if (shortage.empty()) return 0;
  std::cerr << "qwen38_server: " << shortage << '\n';
  return 1;
}

}  // namespace

void add_plan(CLI::App& app, action& chosen) {
  auto const flags = std::make_shared<plan_flags>();
  flags->model.device = "cuda";
  CLI::App* const command =
      app.add_subcommand("plan",
                         "The device memory that a model would take, part by part, with no GPU; "
                         "exit code 1 where it does not fit");
  add_size_flags(*command, flags->model);
  add_prefix_cache_flag(*command, flags->model, 1024);
  command->add_option("--card", flags->card, "The kind of GPU that each rank has")
      ->check(CLI::IsMember(known_card_names()))
      ->capture_default_str();
  command
      ->add_option("--card-memory", flags->card_memory,
                   "Its memory, e.g. 16GB or 15.78GiB, where it is another than that kind's")
      ->transform(CLI::AsSizeValue(true));
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &chosen] { chosen = [flags] { return plan(*flags); }; });
}

}  // namespace qwen38::cli
