// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "cli/collector.hpp"
#include "cli/draft_depth.hpp"
#include "cli/load.hpp"
#include "cli/subcommands.hpp"
#include "support/error.hpp"

namespace qwen38::cli {
namespace {

struct generate_flags {
  model_flags model;
  std::string prompt;
  std::string system;
  std::int64_t max_tokens = 512;
  draft_depth depth;
  float temperature = 0;
  std::uint64_t seed = 0;
  bool no_thinking = false;
};

int generate(generate_flags flags) {
  flags.model.measures_rounds = flags.depth.is_chosen;
  loaded_model loaded = load(flags.model);
  std::vector<text::message> messages;
  if (!flags.system.empty()) {
    messages.push_back({text::chat_role::system, flags.system, {}, {}});
  }
  std::string prompt = flags.prompt == "-"
                           ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                           : flags.prompt;
  messages.push_back({text::chat_role::user, std::move(prompt), {}, {}});

  text::chat_options options = text::default_chat_options(loaded.chat_format);
  options.enable_thinking = !flags.no_thinking;
  engine::request wanted = chat_request(loaded, messages, options);
  wanted.id = "generate";
  wanted.sampling.temperature = flags.temperature;
  wanted.sampling.seed = flags.seed;
  wanted.max_tokens = flags.max_tokens;
  set_depth(wanted, flags.depth, loaded.model->get_limits().has_mtp);

  auto const engine = start_engine(loaded);
  auto const output = std::make_shared<collector>([](engine::output_delta const& delta) {
    std::cerr << delta.reasoning;
    std::cout << delta.content << std::flush;
  });
  engine->submit(std::move(wanted), output);
  engine::result const outcome = output->wait();
  std::cout << '\n';
  if (outcome.finish == engine::finish_reason::failed)
    throw error(error_kind::internal, outcome.message);
  double const seconds = outcome.timing.decode / 1000.0;
  std::fprintf(
      stderr, "%lld prompt tokens, %lld completion tokens, %.1f tok/s, k %s, tau %.2f\n",
      static_cast<long long>(outcome.usage.prompt_tokens),
      static_cast<long long>(outcome.usage.completion_tokens),
      seconds > 0 ? static_cast<double>(outcome.usage.completion_tokens - 1) / seconds : 0.0,
      flags.depth.name().c_str(), outcome.speculation.tau());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, action& chosen) {
  auto const flags = std::make_shared<generate_flags>();
  CLI::App* const command = app.add_subcommand(
      "generate", "Answer one prompt: reasoning to stderr, the answer to stdout");
  add_model_flags(*command, flags->model);
  command->add_option("--prompt", flags->prompt, "User message; - reads standard input")
      ->required();
  command->add_option("--system", flags->system, "System message");
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_depth_flag(*command, flags->depth, "MTP draft depth");
  command->add_option("--temperature", flags->temperature, "0: greedy")
      ->check(CLI::Range(0.0F, 100.0F))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Of the sampler")->capture_default_str();
  command->add_flag("--no-thinking", flags->no_thinking, "Answer at once");
  command->callback([flags, &chosen] { chosen = [flags] { return generate(*flags); }; });
}

}  // namespace qwen38::cli
