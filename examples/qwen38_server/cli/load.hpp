// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.hpp"
#include "cli/model_source.hpp"
#include "cli/numa.hpp"
#include "engine/engine.hpp"
#include "model/causal_lm.hpp"
#include "model/qwen38.hpp"
#include "model/round_costs.hpp"
#include "ops/backend.hpp"
#include "ops/profiled_backend.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace CLI {
class App;
}

namespace qwen38::cli {

/// Flags that every subcommand which runs the model shares.
struct model_flags {
  std::string model;  ///< a checkpoint's directory, or synth:PRESET
  std::string device = "cpu";
  int threads = 0;           ///< 0: one per processor this process may use
  int tp = 1;                ///< ranks that share each layer
  std::vector<int> devices;  ///< each rank's GPU; none: rank r has GPU r
  std::string reduction =
      "one-shot";  ///< how ranks on GPUs add up: one-shot, nccl, nccl-all-reduce
  int lanes = 8;
  std::int64_t context = 0;  ///< 0: the smaller of default_context and the model's own limit
  std::int64_t default_context = 8192;
  /// Tokens that the KV cache holds for all sequences together; 0: lanes x context, but no more
  /// than 131072 or one whole context.
  std::int64_t kv_tokens = 0;
  /// Rows of a prefill pass; 0: 512 on GPUs, 64 else. No more than the context holds.
  std::int64_t prefill_pass = 0;
  std::int64_t prefix_cache_mib = 0;  ///< for the snapshots of the prefix cache; 0: no such cache
  double gpu_memory_fraction = 0.92;  ///< of each GPU, which the model may fill with what is there
  std::string numa = "auto";          ///< or "off": ranks' threads stay near their GPUs
  bool allow_busy_gpu = false;        ///< load beside other programs' memory
  bool measures_rounds = false;       ///< for requests that choose their draft depth
  bool profiled = false;              ///< a backend that says where its time goes
  bool force_fallback = false;        ///< CPU products in plain C++; to test the start-up gate
  std::string chat_template;  ///< what an unknown chat template is taken for; "": it is refused
};

void add_tp_flag(CLI::App& app, int& tp);
/// Those of which its memory depends: --model, --tp, --lanes, --context, --kv-tokens,
/// --prefill-pass, --gpu-memory-fraction.
void add_size_flags(CLI::App& app, model_flags& flags);
void add_model_flags(CLI::App& app, model_flags& flags);
void add_prefix_cache_flag(CLI::App& app, model_flags& flags, std::int64_t default_mib);

/// A checkpoint ready to run.
struct loaded_model {
  std::shared_ptr<model_source const> source;  ///< outlives the model
  checkpoint::generation_config generation;
  std::unique_ptr<text::tokenizer> tokenizer;
  text::chat_format chat_format = text::chat_format::qwen38;
  std::unique_ptr<model::causal_lm> model;
  std::string name;  ///< of the source
  int threads = 1;
  std::string device = "CPU";  ///< its name, or those of the ranks' devices
  std::string reduction;       ///< how ranks add up; "" where there is one
  /// The parts of `model`, in rank order; asked while the engine rests.
  std::vector<model::qwen38_model const*> ranks;
  std::vector<numa_place> places;  ///< each rank's with --numa auto on GPUs, else none
  /// With model_flags::measures_rounds, where the model drafts.
  std::optional<model::round_costs> costs;
  /// With model_flags::profiled rank 0's backend; the model's own.
  ops::profiled_backend* profile = nullptr;
};

/// Routes that the products of all ranks have taken so far.
std::vector<ops::route_count> routes_of(loaded_model const& loaded);

/// What a model of these flags is made with; valid_ids: of its tokenizer.
/// @throws qwen38::error (invalid_argument) that names the flag
[[nodiscard]] model::qwen38_options options_of(model_flags const& flags,
                                               checkpoint::model_config const& config,
                                               std::int32_t valid_ids);

/// Prints the memory plan to stderr and, on a GPU, refuses what does not fit (cli/memory_plan.hpp);
/// then opens, checks and packs, with a line of progress.
/// @throws qwen38::error: unavailable where there is not enough memory; internal where the model
/// took
///         another amount than planned
loaded_model load(model_flags const& flags);

/// Sampling of requests that say nothing of it; the seed is the caller's.
engine::sampling_params default_sampling(checkpoint::generation_config const& config);

/// An engine that runs on its own thread until it is destroyed; `loaded` must outlive it. Faults go
/// to the log.
std::unique_ptr<engine::engine> start_engine(loaded_model const& loaded,
                                             engine::engine_options options = {});

/// A chat as a request with the checkpoint's stop ids; sampling, length and depth are left to the
/// caller.
engine::request chat_request(loaded_model const& loaded, std::span<text::message const> messages,
                             text::chat_options const& options);

}  // namespace qwen38::cli
