// SPDX-License-Identifier: Apache-2.0
#include "cli/load.hpp"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "checkpoint/repository.hpp"
#include "cli/memory_plan.hpp"
#include "cli/progress_line.hpp"
#include "cli/rank_devices.hpp"
#include "model/measure_rounds.hpp"
#include "model/rank_group.hpp"
#include "model/rehearsal.hpp"
#include "support/error.hpp"

namespace qwen38::cli {
namespace {

constexpr std::int64_t largest_default_kv_tokens = 131072;
constexpr std::int64_t gpu_prefill_pass = 512;

constexpr std::int64_t largest_prefill_pass = 8192;

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

void print_held(std::string const& whose, model::qwen38_model const& of) {
  auto const memory = of.get_memory_use();
  spdlog::info(
      "{}: packed weights {:.1f} MiB, KV cache {:.1f} MiB, GDN state with snapshots {:.1f} MiB",
      whose, mib(memory.weights), mib(memory.kv_cache), mib(memory.gdn_state));
}

void print_places(std::vector<numa_place> const& places) {
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].node < 0) {
      spdlog::warn("numa: rank {} runs anywhere: {}", rank, places[rank].why_not);
    } else {
      spdlog::info("numa: rank {} on node {}, {} processors", rank, places[rank].node,
                   places[rank].cpus.size());
    }
  }
}

/// What k auto goes by.
void print_costs(model::round_costs const& costs) {
  for (std::size_t i = 0; i < costs.of.size(); ++i) {
    auto const& points = costs.of[i].points;
    spdlog::info(
        "round with k = {}: {:.2f} ms of one lane, {:.2f} ms of {}, {:.3f} ms per 1000 live "
        "tokens",
        model::round_depths[i], points.front().ms, points.back().ms, points.back().lanes,
        1000 * costs.of[i].ms_per_token);
  }
}

/// The plan for the flags' GPUs, printed; ranks on one GPU take from each other.
memory_plan plan_for_gpus(model_flags const& flags, rank_devices const& ranks_on) {
  memory_plan plan = plan_memory(flags, ranks_on.cards());
  for (int rank = 0; rank < plan.tp; ++rank) {
    for (int other = 0; other < plan.tp; ++other) {
      if (other == rank || ranks_on.name(other) != ranks_on.name(rank)) continue;
      plan.cards[static_cast<std::size_t>(rank)].used +=
          plan.ranks[static_cast<std::size_t>(other)].needed();
    }
  }
  std::istringstream lines(to_table(plan));
  for (std::string line; std::getline(lines, line);) spdlog::info("memory: {}", line);
  if (std::string const shortage = plan.shortage(); !shortage.empty()) {
    throw error(error_kind::unavailable, shortage);
  }
  return plan;
}

/// After all that takes memory was done once.
void require_planned(memory_plan const& plan, rank_devices const& ranks_on) {
  for (int rank = 0; rank < plan.tp; ++rank) {
    std::size_t const taken = by_part(ranks_on.memory(rank)).parts();
    std::size_t const planned = plan.ranks[static_cast<std::size_t>(rank)].parts();
    if (taken == planned) continue;
    throw error(error_kind::internal, "memory: rank " + std::to_string(rank) + " took " +
                                          std::to_string(taken) + " bytes, expected the " +
                                          std::to_string(planned) + " of the plan");
  }
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

/// A pass no longer than the context is at least as long as every prompt.
std::int32_t prefill_pass(model_flags const& flags, std::int64_t context) {
  std::int64_t const chosen = flags.device == "cpu" ? ops::kv_page_tokens : gpu_prefill_pass;
  std::int64_t const rows = flags.prefill_pass > 0 ? flags.prefill_pass : chosen;
  if (rows % ops::kv_page_tokens != 0) {
    throw error(error_kind::invalid_argument, "--prefill-pass " + std::to_string(rows) +
                                                  ": expected a multiple of " +
                                                  std::to_string(ops::kv_page_tokens));
  }
  std::int64_t const whole = (context + ops::kv_page_tokens - 1) / ops::kv_page_tokens;
  return static_cast<std::int32_t>(std::min(rows, whole * ops::kv_page_tokens));
}

}  // namespace

void add_tp_flag(CLI::App& app, int& tp) {
  app.add_option("--tp", tp, "Tensor parallelism: ranks that share each layer")
      ->check(CLI::IsMember({1, 2, 4}))
      ->capture_default_str();
}

void add_size_flags(CLI::App& app, model_flags& flags) {
  app.add_option(
         "--model", flags.model,
         "Checkpoint directory; or synth:27b, made-up weights of full size, to measure with")
      ->required();
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
  app.add_option("--prefill-pass", flags.prefill_pass,
                 "Rows of a prefill pass, a multiple of 64: more are faster, but what else runs "
                 "waits for one, and cached prompts go on at its multiples; 0: 512 on GPUs, 64 on "
                 "the CPU")
      ->check(CLI::Range(std::int64_t{0}, largest_prefill_pass))
      ->capture_default_str();
  app.add_option("--gpu-memory-fraction", flags.gpu_memory_fraction,
                 "Part of each GPU's memory that may be in use once the model is loaded; the rest "
                 "is for what CUDA takes beside the plan")
      ->check(CLI::Range(0.05, 1.0))
      ->capture_default_str();
}

void add_model_flags(CLI::App& app, model_flags& flags) {
  add_size_flags(app, flags);
  app.add_option("--device", flags.device,
                 "Where to run: cpu, or cuda (the first GPUs, one for each rank)")
      ->capture_default_str();
  app.add_option("--devices", flags.devices,
                 "With --device cuda, each rank's GPU, e.g. 0,1,2,3; or one for all, as 0,0")
      ->delimiter(',')
      ->check(CLI::Range(0, 1023));
  app.add_option("--reduction", flags.reduction,
                 "With --device cuda, how ranks add up: one-shot (a kernel over peer memory), nccl "
                 "(gathered, then added in rank order), or nccl-all-reduce (in no fixed order: "
                 "speculation and batching may then change a text)")
      ->check(CLI::IsMember({"one-shot", "nccl", "nccl-all-reduce"}))
      ->capture_default_str();
  app.add_option(
         "--numa", flags.numa,
         "With --device cuda: auto keeps each rank's thread, and the pinned memory that its "
         "copies go through, on the NUMA node of its GPU; off")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app.add_flag("--allow-busy-gpu", flags.allow_busy_gpu,
               "Load although other programs hold memory of the GPU");
  app.add_flag("--force-fallback", flags.force_fallback)->group("");  // a fault for tests
  app.add_option("--threads", flags.threads, "CPU threads; 0: all this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--chat-template", flags.chat_template,
                 "What a checkpoint's chat template is taken for where it is none that is known; "
                 "without the flag such a checkpoint is refused")
      ->check(CLI::IsMember({"qwen3.8", "qwen3.6"}));
}

void add_prefix_cache_flag(CLI::App& app, model_flags& flags, std::int64_t default_mib) {
  flags.prefix_cache_mib = default_mib;
  app.add_option("--prefix-cache-mib", flags.prefix_cache_mib,
                 "Memory for snapshots of prompts, from which later prompts that begin alike go "
                 "on; their keys and values stay in the KV cache; 0: off")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->capture_default_str();
}

std::vector<ops::route_count> routes_of(loaded_model const& loaded) {
  std::map<std::string, std::uint64_t> launches;
  for (model::qwen38_model const* rank : loaded.ranks) {
    for (ops::route_count const& one : rank->routes()) launches[one.route] += one.launches;
  }
  std::vector<ops::route_count> all;
  for (auto const& [route, count] : launches) all.push_back({route, count});
  return all;
}

model::qwen38_options options_of(model_flags const& flags, checkpoint::model_config const& config,
                                 std::int32_t valid_ids) {
  model::qwen38_options options;
  options.valid_ids = valid_ids;
  options.lanes = flags.lanes;
  options.max_context = flags.context > 0
                            ? flags.context
                            : std::min(flags.default_context, config.max_position_embeddings);
  options.kv_pages = kv_pages(flags, options.max_context);
  options.snapshots = snapshot_places(flags, config, options.kv_pages);
  options.prefill_pass = prefill_pass(flags, options.max_context);
  options.self_check = true;
  return options;
}

loaded_model load(model_flags const& flags) {
  rank_devices ranks_on(flags);
  std::optional<memory_plan> plan;
  if (ranks_on.on_gpus()) {
    plan = plan_for_gpus(flags, ranks_on);
    for (int rank = 0; rank < flags.tp; ++rank) {
      ranks_on.reserve(rank, plan->ranks[static_cast<std::size_t>(rank)].arena);
    }
  }
  int const threads =
      flags.threads > 0 ? flags.threads : static_cast<int>(std::thread::hardware_concurrency());
  int const threads_of_rank = std::max(1, threads / flags.tp);

  loaded_model loaded;
  loaded.source = std::make_shared<model_source const>(flags.model);
  std::filesystem::path const& directory = loaded.source->directory();
  checkpoint::model_config const config = checkpoint::load_model_config(directory);
  loaded.generation = checkpoint::load_generation_config(directory, config.vocab_size);
  loaded.tokenizer = std::make_unique<text::tokenizer>(text::tokenizer::from_checkpoint(directory));
  bool const has_template = !loaded.source->is_synthetic();
  if (has_template) {
    loaded.chat_format =
        text::checkpoint_chat_format(directory, text::parse_chat_format(flags.chat_template));
  }

  model::qwen38_options options = options_of(flags, config, loaded.tokenizer->vocab_size());
  loaded.threads = threads_of_rank * flags.tp;
  loaded.name = loaded.source->name();

  loaded.places = ranks_on.places();
  print_places(loaded.places);

  auto const make_rank = [&](std::shared_ptr<parallel::communicator> ranks) {
    model::qwen38_options own = options;
    own.ranks = std::move(ranks);
    // A rank keeps its thread; without ranks the engine's is started by this one.
    if (!loaded.places.empty()) {
      run_at(loaded.places[static_cast<std::size_t>(own.ranks ? own.ranks->rank() : 0)]);
    }
    std::optional<progress_line> line;
    if (!own.ranks || own.ranks->rank() == 0) {  // ranks load in step, more or less
      own.on_progress = [&line](std::uint64_t done, std::uint64_t total, std::string_view item) {
        if (!line) line.emplace("loading");
        line->show(done, total, item);
      };
    }
    // Each rank opens the files itself: a repository is one thread's.
    auto const files = loaded.source->open();
    auto backend = ranks_on.make_backend(own.ranks ? own.ranks->rank() : 0, threads_of_rank);
    if (!own.ranks) loaded.device = backend->name();
    if (flags.profiled) {
      auto watched = std::make_unique<ops::profiled_backend>(std::move(backend));
      if (!own.ranks || own.ranks->rank() == 0) loaded.profile = watched.get();
      backend = std::move(watched);
    }
    return std::make_unique<model::qwen38_model>(files, config, std::move(backend), own);
  };
  spdlog::info(
      "{}: {} layers, {} ids, device {}, tp {}, {} threads each, {} lanes of {} tokens, {} "
      "tokens in all lanes, prefill by {} rows",
      loaded.name, config.num_hidden_layers, options.valid_ids, flags.device, flags.tp,
      threads_of_rank, flags.lanes, options.max_context, options.kv_pages * ops::kv_page_tokens,
      options.prefill_pass);
  if (flags.tp == 1) {
    auto whole = make_rank(nullptr);
    spdlog::info("{}: on {}", loaded.name, loaded.device);
    print_held(loaded.name, *whole);
    loaded.ranks.push_back(whole.get());
    loaded.model = std::move(whole);
  } else {
    auto const ends = ranks_on.make_group(config.hidden_size);
    spdlog::info("{}: {} ranks, {}", loaded.name, flags.tp, ends.front()->name());
    loaded.reduction = ends.front()->name();
    loaded.device = ranks_on.names();
    if (flags.reduction == "nccl-all-reduce") {
      spdlog::warn("--reduction {}: texts may depend on speculation and batching", flags.reduction);
    }
    auto group = std::make_unique<model::rank_group>(ends, make_rank);
    for (int rank = 0; rank < flags.tp; ++rank) {
      print_held(loaded.name + ", rank " + std::to_string(rank) + " on " + ranks_on.name(rank),
                 group->rank(rank));
      loaded.ranks.push_back(&group->rank(rank));
    }
    loaded.model = std::move(group);
  }
  if (plan) {
    model::rehearse(*loaded.model);
    // NCCL's own memory is not in the plan, and the exchange then has another size.
    if (flags.reduction == model_flags().reduction) {
      require_planned(*plan, ranks_on);
    } else {
      spdlog::warn("memory: --reduction {} takes an exchange that is not in the plan",
                   flags.reduction);
    }
  }
  if (flags.measures_rounds) {
    model::measure_options how;
    if (ranks_on.on_gpus()) {  // quick, and not on a line over the lanes
      how.untimed_rounds = 2;
      how.lanes = flags.lanes;
    }
    loaded.costs = model::measure_rounds(*loaded.model, how);
    if (loaded.costs) print_costs(*loaded.costs);
  }
  if (options.snapshots > 0) {
    spdlog::info("prefix cache: {} snapshots of {:.1f} MiB", options.snapshots,
                 mib(model::snapshot_bytes(config)));
  } else {
    spdlog::info("prefix cache: off");
  }
  return loaded;
}

engine::sampling_params default_sampling(checkpoint::generation_config const& config) {
  engine::sampling_params out;
  out.temperature = config.do_sample ? static_cast<float>(config.temperature) : 0.0F;
  out.top_k = static_cast<std::int32_t>(config.top_k);
  out.top_p = static_cast<float>(config.top_p);
  out.min_p = static_cast<float>(config.min_p);
  out.repetition_penalty = static_cast<float>(config.repetition_penalty);
  out.presence_penalty = static_cast<float>(config.presence_penalty);
  return out;
}

std::unique_ptr<engine::engine> start_engine(loaded_model const& loaded,
                                             engine::engine_options options) {
  options.costs = loaded.costs;
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
