// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace qwen38::cli {

/// What main runs after parsing; returns the exit code.
using action = std::function<int()>;

// Each registers its subcommand and flags, and sets `chosen` if it was picked on the command line.
void add_serve(CLI::App& app, action& chosen);
void add_chat(CLI::App& app, action& chosen);
void add_generate(CLI::App& app, action& chosen);
void add_bench(CLI::App& app, action& chosen);
void add_plan(CLI::App& app, action& chosen);
void add_inspect(CLI::App& app, action& chosen);
void add_convert(CLI::App& app, action& chosen);
void add_synth(CLI::App& app, action& chosen);

}  // namespace qwen38::cli
