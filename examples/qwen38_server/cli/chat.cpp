// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/collector.hpp"
#include "cli/draft_depth.hpp"
#include "cli/load.hpp"
#include "cli/subcommands.hpp"
#include "support/error.hpp"

namespace qwen38::cli {
namespace {

struct chat_flags {
  model_flags model;
  std::string system;
  std::int64_t max_tokens = 4096;
  draft_depth depth;
  float temperature = -1;  // the checkpoint's
  std::uint64_t seed = 0;
  bool no_thinking = false;
  bool hide_reasoning = false;
};

std::atomic<bool> interrupted = false;
static_assert(decltype(interrupted)::is_always_lock_free);

extern "C" void on_interrupt(int /*signal*/) {
  interrupted = true;
}

/// Ctrl-C is a wish while this lives, and ends the program otherwise.
class interrupt_guard {
 public:
  interrupt_guard() {
    interrupted = false;
    previous_ = std::signal(SIGINT, on_interrupt);
  }
  ~interrupt_guard() { std::signal(SIGINT, previous_); }
  interrupt_guard(interrupt_guard const&) = delete;
  interrupt_guard& operator=(interrupt_guard const&) = delete;

 private:
  void (*previous_)(int) = SIG_DFL;
};

/// Prints an answer as it comes: reasoning dim where the output is a terminal.
class answer_printer {
 public:
  answer_printer(bool hide_reasoning, bool terminal) : hide_(hide_reasoning), dim_(terminal) {}

  void operator()(engine::output_delta const& delta) {
    if (!delta.reasoning.empty() && !hide_) {
      if (!std::exchange(reasoning_, true) && dim_) std::cout << "\033[2m";
      std::cout << delta.reasoning;
    }
    if (!delta.content.empty()) {
      end_reasoning();
      std::cout << delta.content;
    }
    std::cout << std::flush;
  }
  void end_reasoning() {
    if (!std::exchange(reasoning_, false)) return;
    std::cout << (dim_ ? "\033[0m\n" : "\n");
  }

 private:
  bool const hide_;
  bool const dim_;
  bool reasoning_ = false;
};

class dialogue {
 public:
  dialogue(chat_flags const& flags, loaded_model const& loaded, engine::engine& engine)
      : flags_(flags),
        loaded_(loaded),
        engine_(engine),
        terminal_(::isatty(STDOUT_FILENO) != 0),
        options_(text::default_chat_options(loaded.chat_format)) {
    options_.enable_thinking = !flags.no_thinking;
    reset();
  }

  void reset() {
    messages_.clear();
    if (!flags_.system.empty())
      messages_.push_back({text::chat_role::system, flags_.system, {}, {}});
  }

  /// One line of the user and its answer. A line whose answer does not come, or is cut off by
  /// Ctrl-C, leaves no trace in the history.
  void say(std::string line) {
    messages_.push_back({text::chat_role::user, std::move(line), {}, {}});
    try {
      engine::result const outcome = answer();
      if (outcome.finish == engine::finish_reason::cancelled) {
        std::cout << "[cancelled]\n";
        messages_.pop_back();
      } else if (outcome.finish == engine::finish_reason::failed) {
        throw error(error_kind::internal, outcome.message);
      } else if (outcome.finish == engine::finish_reason::length) {
        std::cout << "[cut off at " << outcome.usage.completion_tokens << " tokens]\n";
      }
    } catch (error const& problem) {
      if (problem.kind() != error_kind::context_length_exceeded) throw;
      messages_.pop_back();
      std::cout << "[" << problem.what() << " /reset begins a new conversation.]\n";
    }
    std::cout << std::flush;
  }

 private:
  engine::result answer() {
    engine::request wanted = chat_request(loaded_, messages_, options_);
    wanted.id = "chat";
    sampling_of(wanted.sampling);
    wanted.max_tokens = flags_.max_tokens;
    set_depth(wanted, flags_.depth, loaded_.model->get_limits().has_mtp);
    auto const room = engine_.max_context() - static_cast<std::int64_t>(wanted.prompt_ids.size());
    if (room > 0) wanted.max_tokens = std::min(wanted.max_tokens, room);

    answer_printer print(flags_.hide_reasoning, terminal_);
    auto const output = std::make_shared<collector>(std::ref(print));
    interrupt_guard const guard;
    auto const ticket = engine_.submit(std::move(wanted), output);
    engine::result outcome;
    while (!output->wait_for(std::chrono::milliseconds(50), outcome)) {
      if (interrupted) engine_.cancel(ticket);
    }
    print.end_reasoning();
    std::cout << '\n';
    if (outcome.finish == engine::finish_reason::stop ||
        outcome.finish == engine::finish_reason::length) {
      messages_.push_back({text::chat_role::assistant, output->content, output->reasoning, {}});
    }
    return outcome;
  }

  void sampling_of(engine::sampling_params& to) {
    to = default_sampling(loaded_.generation);
    if (flags_.temperature >= 0) to.temperature = flags_.temperature;
    to.seed = flags_.seed + turn_++;
  }

  chat_flags const& flags_;
  loaded_model const& loaded_;
  engine::engine& engine_;
  bool const terminal_;
  text::chat_options options_;
  std::vector<text::message> messages_;
  std::uint64_t turn_ = 0;
};

/// The next message: a line, and the lines after it while they end in a backslash. False at the
/// end of the input.
bool read_message(bool asks, std::string& message) {
  message.clear();
  bool goes_on = true;
  for (char const* prompt = "> "; goes_on; prompt = "  ") {
    if (asks) std::cout << prompt << std::flush;
    std::string line;
    if (!std::getline(std::cin, line)) return !message.empty();
    goes_on = line.ends_with('\\');
    if (goes_on) line.back() = '\n';
    message += line;
  }
  return true;
}

int chat(chat_flags const& flags) {
  loaded_model const loaded = load(flags.model);
  auto const engine = start_engine(loaded);
  dialogue talk(flags, loaded, *engine);
  bool const asks = ::isatty(STDIN_FILENO) != 0;
  if (asks) {
    std::cout << "/reset begins a new conversation; /quit or Ctrl-D ends it; Ctrl-C stops an "
                 "answer; a line that ends in \\ goes on.\n";
  }
  std::string message;
  while (read_message(asks, message) && message != "/quit") {
    if (message == "/reset") {
      talk.reset();
    } else if (message.find_first_not_of(" \t\r\n") != std::string::npos) {
      talk.say(std::move(message));
    }
  }
  if (asks) std::cout << '\n';
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, action& chosen) {
  auto const flags = std::make_shared<chat_flags>();
  CLI::App* const command =
      app.add_subcommand("chat", "Talk with the model: a line of standard input is a message");
  add_model_flags(*command, flags->model);
  flags->model.lanes = 1;
  add_prefix_cache_flag(*command, flags->model, 256);
  command->add_option("--system", flags->system, "System message");
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_depth_flag(*command, flags->depth, "MTP draft depth");
  command->add_option("--temperature", flags->temperature, "0: greedy; default: the checkpoint's")
      ->check(CLI::Range(0.0F, 100.0F));
  command
      ->add_option("--seed", flags->seed,
                   "Of the sampler for the first answer; one more for each after it")
      ->capture_default_str();
  command->add_flag("--no-thinking", flags->no_thinking, "Answer at once");
  command->add_flag("--hide-reasoning", flags->hide_reasoning, "Print answers only");
  command->callback([flags, &chosen] {
    flags->model.measures_rounds = flags->depth.is_chosen;
    chosen = [flags] { return chat(*flags); };
  });
}

}  // namespace qwen38::cli
