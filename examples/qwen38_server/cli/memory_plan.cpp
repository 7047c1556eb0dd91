// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/rank_group.hpp"
#include "model/recordings.hpp"
#include "model/rehearsal.hpp"
#include "ops/cuda/counting_device.hpp"
#include "ops/cuda/cuda_backend.hpp"
#include "parallel/device_group.hpp"
#include "support/error.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::cli {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// What a recorded round takes on the card for each of its launches, and as many rounds as a model
/// keeps. An allowance: CUDA does not say. An H200 took 2.9 KiB.
constexpr std::size_t graph_bytes_per_launch = 3072;

// CUDA C++ Programming Guide, "Compute Capabilities"; multiprocessors, L2 and memory by NVIDIA's
// data sheets of the SXM boards; the memory is what nvidia-smi shows for such a board.
std::vector<gpu_card> const& cards() {
  static std::vector<gpu_card> const all = {
      {"v100-16gb", {70, 80, 2048, 96 * 1024, 96 * 1024, 6 << 20}, 16160 * mebibyte},
      {"v100-32gb", {70, 80, 2048, 96 * 1024, 96 * 1024, 6 << 20}, 32510 * mebibyte},
      {"a100-40gb", {80, 108, 2048, 164 * 1024, 163 * 1024, 40 << 20}, 40536 * mebibyte},
      {"h100-80gb", {90, 132, 2048, 228 * 1024, 227 * 1024, 50 << 20}, 81559 * mebibyte},
      {"h200", {90, 132, 2048, 228 * 1024, 227 * 1024, 60 << 20}, 143771 * mebibyte},
  };
  return all;
}

/// The arena is made of so much, and has one more than it needs.
constexpr std::size_t arena_unit = 2 * mebibyte;

std::string gib(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1024.0 * mebibyte));
  return text;
}

struct named_part {
  char const* name;  ///< for people
  char const* key;   ///< in JSON
  std::size_t rank_memory::*bytes;
};
constexpr std::array<named_part, 7> named_parts = {{
    {"weights", "weights", &rank_memory::weights},
    {"embedding", "embedding", &rank_memory::embedding},
    {"KV cache", "kv_cache", &rank_memory::kv_cache},
    {"GDN state and snapshots", "gdn_state", &rank_memory::gdn_state},
    {"workspaces", "workspace", &rank_memory::workspace},
    {"exchange between ranks", "exchange", &rank_memory::exchange},
    {"graphs (allowance)", "graphs", &rank_memory::graphs},
}};

/// KV bytes of a token on a rank, from the pages that it was planned with and the spare one.
double kv_bytes_per_token(memory_plan const& plan, rank_memory const& rank) {
  return static_cast<double>(rank.kv_cache) /
         static_cast<double>(plan.kv_tokens + ops::kv_page_tokens);
}

}  // namespace

gpu_card known_card(std::string const& name) {
  auto const found = std::ranges::find(cards(), name, &gpu_card::name);
  if (found != cards().end()) return *found;
  throw error(error_kind::invalid_argument,
              "there is no card \"" + name + "\": expected one that `plan --help` names");
}

std::vector<std::string> known_card_names() {
  std::vector<std::string> names;
  for (gpu_card const& one : cards()) names.push_back(one.name);
  return names;
}

rank_memory by_part(ops::cuda::memory_ledger const& ledger) {
  rank_memory parts;
  std::size_t products = 0;
  for (auto const& [use, bytes] : ledger.by_use()) {
    std::size_t rank_memory::*part = &rank_memory::workspace;
    if (use.starts_with("the weight ") || use == "constants" || use == "the RoPE frequencies") {
      part = &rank_memory::weights;
    } else if (use == "the embedding") {
      part = &rank_memory::embedding;
    } else if (use == "the KV cache") {
      part = &rank_memory::kv_cache;
    } else if (use == "the GDN state") {
      part = &rank_memory::gdn_state;
    } else if (use == "the exchange between ranks") {
      part = &rank_memory::exchange;
    }
    parts.*part += bytes;
    if (use == "the workspace of products") products += bytes;
  }
  // What a loader also does, self-checks, moves places by a little, and the workspace of products
  // while it grows.
  parts.arena = ((ledger.extent() + products) / arena_unit + 2) * arena_unit;
  return parts;
}

std::size_t memory_plan::room(int rank) const {
  gpu_card const& card = cards[static_cast<std::size_t>(rank)];
  auto const allowed = static_cast<std::size_t>(fraction * static_cast<double>(card.bytes));
  return allowed > card.used ? allowed - card.used : 0;
}

bool memory_plan::fits() const {
  for (int rank = 0; rank < tp; ++rank) {
    if (ranks[static_cast<std::size_t>(rank)].needed() > room(rank)) return false;
  }
  return true;
}

std::int64_t memory_plan::tokens_that_fit() const {
  std::int64_t least = std::int64_t{1} << 40;
  for (int rank = 0; rank < tp; ++rank) {
    rank_memory const& own = ranks[static_cast<std::size_t>(rank)];
    std::size_t const others = own.needed() - own.kv_cache;
    if (others >= room(rank)) return 0;
    double const tokens = static_cast<double>(room(rank) - others) / kv_bytes_per_token(*this, own);
    auto const pages = static_cast<std::int64_t>(tokens) / ops::kv_page_tokens;
    least = std::min(least, std::max<std::int64_t>(pages - 1, 0) * ops::kv_page_tokens);
  }
  return least;
}

std::string memory_plan::shortage() const {
  if (fits()) return "";
  std::size_t const rank = static_cast<std::size_t>(
      std::ranges::find_if(
          ranks, [&, i = 0](rank_memory const& one) mutable { return one.needed() > room(i++); }) -
      ranks.begin());
  rank_memory const& own = ranks[rank];
  std::string sentence = "memory: " + model + (tp > 1 ? ", rank " + std::to_string(rank) : "") +
                         " needs " + gib(own.needed()) + " on " + cards[rank].name + ", of whose " +
                         gib(cards[rank].bytes) + " it may have " +
                         gib(room(static_cast<int>(rank)));
  std::int64_t const tokens = tokens_that_fit();
  if (tokens > 0) {
    return sentence + ": with --kv-tokens " + std::to_string(tokens) +
           " it fits; fewer --lanes, a smaller --prefix-cache-mib or more ranks (--tp) make room, "
           "too";
  }
  return sentence + ", and without any KV cache " + gib(own.needed() - own.kv_cache) +
         ": expected more ranks (--tp), fewer --lanes, a smaller --prefix-cache-mib, or a larger "
         "card";
}

memory_plan plan_memory(model_flags const& flags, std::vector<gpu_card> cards) {
  model_source const source(flags.model, checkpoint::open_mode::headers_only);
  checkpoint::model_config const config = checkpoint::load_model_config(source.directory());
  auto const tokenizer = text::tokenizer::from_checkpoint(source.directory());
  model::qwen38_options const options = options_of(flags, config, tokenizer.vocab_size());

  memory_plan plan;
  plan.model = source.name();
  plan.tp = flags.tp;
  plan.lanes = options.lanes;
  plan.context = options.max_context;
  plan.kv_tokens = std::int64_t{options.kv_pages} * ops::kv_page_tokens;
  plan.snapshots = options.snapshots;
  plan.prefill_pass = options.prefill_pass;
  plan.fraction = flags.gpu_memory_fraction;
  plan.cards = std::move(cards);
  if (std::ssize(plan.cards) != plan.tp) {
    throw error(error_kind::internal, "memory plan: expected a card for each rank");
  }

  std::vector<std::shared_ptr<ops::cuda::counting_device>> devices;
  for (gpu_card const& card : plan.cards) {
    devices.push_back(std::make_shared<ops::cuda::counting_device>(
        card.info, card.name, static_cast<int>(devices.size())));
  }
  auto const make_rank = [&](std::shared_ptr<parallel::communicator> ranks) {
    model::qwen38_options own = options;
    own.self_check = false;  // nothing is computed
    own.ranks = std::move(ranks);
    auto const& device = devices[static_cast<std::size_t>(own.ranks ? own.ranks->rank() : 0)];
    std::unique_ptr<ops::backend> backend = ops::cuda::make_backend(device);
    if (flags.profiled) backend = std::make_unique<ops::profiled_backend>(std::move(backend));
    return std::make_unique<model::qwen38_model>(source.open(), config, std::move(backend), own);
  };
  std::unique_ptr<model::causal_lm> lm;
  if (plan.tp == 1) {
    lm = make_rank(nullptr);
  } else {
    lm = std::make_unique<model::rank_group>(
        parallel::make_device_group({devices.begin(), devices.end()},
                                    {.max_cols = config.hidden_size}),
        make_rank);
  }
  model::rehearse(*lm);
  plan.launches = devices.front()->longest_capture();
  for (auto const& device : devices) {
    rank_memory own = by_part(device->memory());
    own.graphs = plan.launches * model::recordings::most * graph_bytes_per_launch;
    plan.ranks.push_back(own);
  }
  return plan;
}

std::string to_table(memory_plan const& plan) {
  char line[240];
  std::string text;
  auto const put = [&](char const* format, auto... values) {
    std::snprintf(line, sizeof line, format, values...);
    text += line;
    text += '\n';
  };
  put("%s, tp %d, %d lanes of %lld tokens, %lld tokens in all lanes, %d snapshots, prefill by %d "
      "rows",
      plan.model.c_str(), plan.tp, plan.lanes, static_cast<long long>(plan.context),
      static_cast<long long>(plan.kv_tokens), plan.snapshots, plan.prefill_pass);
  rank_memory const& first = plan.ranks.front();  // which has the most: it gathers the logits
  for (named_part const& part : named_parts) {
    put("  %-26s %10.1f MiB", part.name, static_cast<double>(first.*part.bytes) / mebibyte);
  }
  put("  %-26s %10.1f MiB", "gaps", static_cast<double>(first.arena - first.parts()) / mebibyte);
  put("  %-26s %10.1f MiB on each card", plan.tp > 1 ? "in all, of rank 0" : "in all",
      static_cast<double>(first.needed()) / mebibyte);
  put("  %-26s %10.1f MiB: %.2f of %s's %.1f MiB, %.1f MiB of them in use", "room",
      static_cast<double>(plan.room(0)) / mebibyte, plan.fraction, plan.cards.front().name.c_str(),
      static_cast<double>(plan.cards.front().bytes) / mebibyte,
      static_cast<double>(plan.cards.front().used) / mebibyte);
  put("  %s; the KV cache could hold %lld tokens", plan.fits() ? "fits" : "does not fit",
      static_cast<long long>(plan.tokens_that_fit()));
  return text;
}

nlohmann::ordered_json to_json(memory_plan const& plan) {
  nlohmann::ordered_json out;
  out["model"] = plan.model;
  out["tp"] = plan.tp;
  out["lanes"] = plan.lanes;
  out["context"] = plan.context;
  out["kv_tokens"] = plan.kv_tokens;
  out["snapshots"] = plan.snapshots;
  out["prefill_pass"] = plan.prefill_pass;
  out["gpu_memory_fraction"] = plan.fraction;
  for (int rank = 0; rank < plan.tp; ++rank) {
    auto const index = static_cast<std::size_t>(rank);
    rank_memory const& own = plan.ranks[index];
    nlohmann::ordered_json entry;
    entry["card"] = plan.cards[index].name;
    entry["card_bytes"] = plan.cards[index].bytes;
    entry["room_bytes"] = plan.room(rank);
    for (named_part const& part : named_parts) entry["bytes"][part.key] = own.*part.bytes;
    entry["arena_bytes"] = own.arena;
    entry["needed_bytes"] = own.needed();
    out["ranks"].push_back(std::move(entry));
  }
  out["fits"] = plan.fits();
  out["kv_tokens_that_fit"] = plan.tokens_that_fit();
  return out;
}

}  // namespace qwen38::cli
