// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.hpp"
#include "engine/engine.hpp"
#include "model/causal_lm.hpp"
#include "ops/backend.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace CLI {
class App;
}

namespace qwen38::cli {

/// Flags that every subcommand which runs the model shares.
struct model_flags {
  std::filesystem::path directory;
  std::string device = "cpu";
  int threads = 0;  ///< 0: one per processor this process may use
  int tp = 1;       ///< ranks that share each layer
  int lanes = 8;
  std::int64_t context = 0;  ///< 0: the smaller of 8192 and the model's own limit
  /// Tokens that the KV cache holds for all sequences together; 0: lanes x context, but no more
  /// than 131072 or one whole context.
  std::int64_t kv_tokens = 0;
  std::int64_t prefix_cache_mib = 0;  ///< for the snapshots of the prefix cache; 0: no such cache
  std::string chat_template;  ///< what an unknown chat template is taken for; "": it is refused
};

void add_tp_flag(CLI::App& app, int& tp);
void add_model_flags(CLI::App& app, model_flags& flags);

/// A checkpoint ready to run.
struct loaded_model {
  checkpoint::generation_config generation;
  std::unique_ptr<text::tokenizer> tokenizer;
  text::chat_format chat_format = text::chat_format::qwen38;
  std::unique_ptr<model::causal_lm> model;
  std::string name;  ///< last component of the directory
  int threads = 1;
  std::string device = "CPU";  ///< its name
  /// Routes that the model's products have taken so far; asked for while the engine rests. Not over
  /// several ranks.
  std::function<std::vector<ops::route_count>()> routes;
  std::function<ops::work_counts()> counts;  ///< likewise, waits and replays
};

/// Opens, checks and packs; prints the memory plan to stderr.
loaded_model load(model_flags const& flags);

/// An engine that runs on its own thread until it is destroyed; `loaded` must outlive it. Faults go
/// to the log.
std::unique_ptr<engine::engine> start_engine(loaded_model const& loaded,
                                             engine::engine_options options = {});

/// A chat as a request with the checkpoint's stop ids; sampling, length and depth are left to the
/// caller.
engine::request chat_request(loaded_model const& loaded, std::span<text::message const> messages,
                             text::chat_options const& options);

}  // namespace qwen38::cli
