// SPDX-License-Identifier: Apache-2.0
#include "cli/load.hpp"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/repository.hpp"
#include "model/rank_group.hpp"
#include "ops/cpu/cpu_backend.hpp"
#include "parallel/in_process.hpp"
#include "support/error.hpp"

#ifdef QWEN38_WITH_CUDA
#include "ops/cuda/cuda_backend.hpp"
#include "ops/cuda/gpu_device.hpp"
#endif

namespace qwen38::cli {
namespace {

constexpr std::int64_t default_context = 8192;
constexpr std::int64_t largest_default_kv_tokens = 131072;

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

/// Refuses what make_backend() cannot give.
void require_device(model_flags const& flags) {
#ifdef QWEN38_WITH_CUDA
  if (flags.device == "cuda" && flags.tp > 1) {
    throw error(error_kind::unsupported, "--tp " + std::to_string(flags.tp) +
                                             ": --device cuda runs on one GPU, expected --tp 1");
  }
  if (flags.device == "cpu" || flags.device == "cuda") return;
  std::string const expected = "cpu or cuda";
#else
  if (flags.device == "cpu") return;
  std::string const expected = "cpu";
#endif
  throw error(error_kind::unsupported,
              "--device " + flags.device + " is not in this build: expected " + expected);
}

std::unique_ptr<ops::backend> make_backend(model_flags const& flags, int threads) {
#ifdef QWEN38_WITH_CUDA
  if (flags.device == "cuda") return ops::cuda::make_backend(ops::cuda::open_gpu(0));
#else
  static_cast<void>(flags);  // only the CPU is left
#endif
  return ops::cpu::make_backend(threads);
}

void print_memory(std::string const& whose, model::qwen38_model const& of) {
  auto const memory = of.get_memory_use();
  spdlog::info(
      "{}: packed weights {:.1f} MiB, KV cache {:.1f} MiB, GDN state with snapshots {:.1f} MiB",
      whose, mib(memory.weights), mib(memory.kv_cache), mib(memory.gdn_state));
}

std::int32_t kv_pages(model_flags const& flags, std::int64_t context) {
  std::int64_t const all = context * flags.lanes;
  std::int64_t const chosen = std::min(all, std::max(context, largest_default_kv_tokens));
  std::int64_t const tokens = flags.kv_tokens > 0 ? flags.kv_tokens : chosen;
  return static_cast<std::int32_t>((tokens + ops::kv_page_tokens - 1) / ops::kv_page_tokens);
}

/// Places for snapshots that the budget holds, and no more than there are pages to go with them.
std::int32_t snapshot_places(model_flags const& flags, checkpoint::model_config const& config,
                             std::int32_t pages) {
  if (flags.prefix_cache_mib == 0) return 0;
  std::size_t const each = std::max<std::size_t>(model::snapshot_bytes(config), 1);
  std::size_t const places = (static_cast<std::size_t>(flags.prefix_cache_mib) << 20) / each;
  if (places == 0) {
    throw error(error_kind::invalid_argument,
                "--prefix-cache-mib " + std::to_string(flags.prefix_cache_mib) +
                    " holds no snapshot of this model: expected 0, or at least " +
                    std::to_string((each >> 20) + 1));
  }
  return static_cast<std::int32_t>(std::min(places, static_cast<std::size_t>(pages)));
}

}  // namespace

void add_tp_flag(CLI::App& app, int& tp) {
  app.add_option("--tp", tp, "Tensor parallelism: ranks that share each layer")
      ->check(CLI::IsMember({1, 2, 4}))
      ->capture_default_str();
}

void add_model_flags(CLI::App& app, model_flags& flags) {
  app.add_option("--model", flags.directory, "Checkpoint directory")->required();
  app.add_option("--device", flags.device, "Where to run: cpu, or cuda (the first GPU)")
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "CPU threads; 0: all this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_tp_flag(app, flags.tp);
  app.add_option("--lanes", flags.lanes, "Sequences that run at the same time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--context", flags.context,
                 "Tokens a sequence may hold; 0: the smaller of 8192 and the model's limit")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  app.add_option(
         "--kv-tokens", flags.kv_tokens,
         "Tokens that the KV cache holds for all sequences together; 0: lanes x context, but "
         "no more than 131072 or one whole context")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--chat-template", flags.chat_template,
                 "What a checkpoint's chat template is taken for where it is none that is known; "
                 "without the flag such a checkpoint is refused")
      ->check(CLI::IsMember({"qwen3.8", "qwen3.6"}));
}

loaded_model load(model_flags const& flags) {
  require_device(flags);
  int const threads =
      flags.threads > 0 ? flags.threads : static_cast<int>(std::thread::hardware_concurrency());
  int const threads_of_rank = std::max(1, threads / flags.tp);

  checkpoint::model_config const config = checkpoint::load_model_config(flags.directory);
  loaded_model loaded;
  loaded.generation = checkpoint::load_generation_config(flags.directory, config.vocab_size);
  loaded.tokenizer =
      std::make_unique<text::tokenizer>(text::tokenizer::from_checkpoint(flags.directory));
  loaded.chat_format =
      text::checkpoint_chat_format(flags.directory, text::parse_chat_format(flags.chat_template));

  model::qwen38_options options;
  options.valid_ids = loaded.tokenizer->vocab_size();
  options.lanes = flags.lanes;
  options.max_context =
      flags.context > 0 ? flags.context : std::min(default_context, config.max_position_embeddings);
  options.kv_pages = kv_pages(flags, options.max_context);
  options.snapshots = snapshot_places(flags, config, options.kv_pages);
  loaded.threads = threads_of_rank * flags.tp;
  loaded.name = std::filesystem::weakly_canonical(flags.directory).filename().string();

  auto const make_rank = [&](std::shared_ptr<parallel::communicator> ranks) {
    model::qwen38_options own = options;
    own.ranks = std::move(ranks);
    // Each rank opens the files itself: a repository is one thread's.
    auto const files = std::make_shared<checkpoint::repository>(flags.directory);
    auto backend = make_backend(flags, threads_of_rank);
    if (!own.ranks) loaded.device = backend->name();
    return std::make_unique<model::qwen38_model>(files, config, std::move(backend), own);
  };
  spdlog::info(
      "{}: {} layers, {} ids, device {}, tp {}, {} threads each, {} lanes of {} tokens, {} "
      "tokens in all lanes",
      loaded.name, config.num_hidden_layers, options.valid_ids, flags.device, flags.tp,
      threads_of_rank, flags.lanes, options.max_context, options.kv_pages * ops::kv_page_tokens);
  if (flags.tp == 1) {
    auto whole = make_rank(nullptr);
    spdlog::info("{}: on {}", loaded.name, loaded.device);
    print_memory(loaded.name, *whole);
    loaded.routes = [of = whole.get()] { return of->routes(); };
    loaded.counts = [of = whole.get()] { return of->counts(); };
    loaded.model = std::move(whole);
  } else {
    auto group =
        std::make_unique<model::rank_group>(parallel::make_in_process_group(flags.tp), make_rank);
    for (int rank = 0; rank < flags.tp; ++rank) {
      print_memory(loaded.name + ", rank " + std::to_string(rank), group->rank(rank));
    }
    loaded.model = std::move(group);
  }
  if (options.snapshots > 0) {
    spdlog::info("prefix cache: {} snapshots of {:.1f} MiB", options.snapshots,
                 mib(model::snapshot_bytes(config)));
  } else {
    spdlog::info("prefix cache: off");
  }
  return loaded;
}

std::unique_ptr<engine::engine> start_engine(loaded_model const& loaded,
                                             engine::engine_options options) {
  options.on_fault = [](std::string const& what) { spdlog::error("{}", what); };
  auto engine = std::make_unique<engine::engine>(*loaded.model, *loaded.tokenizer, options);
  engine->start();
  return engine;
}

engine::request chat_request(loaded_model const& loaded, std::span<text::message const> messages,
                             text::chat_options const& options) {
  engine::request wanted;
  wanted.prompt_ids =
      text::encode_chat(*loaded.tokenizer, messages, nlohmann::ordered_json(), options);
  for (std::int64_t id : loaded.generation.eos_token_ids)
    wanted.stop_ids.push_back(static_cast<std::int32_t>(id));
  wanted.split_reasoning = true;
  wanted.starts_in_reasoning = options.enable_thinking;
  return wanted;
}

}  // namespace qwen38::cli
