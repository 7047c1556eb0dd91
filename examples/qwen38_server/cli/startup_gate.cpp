// SPDX-License-Identifier: Apache-2.0
#include "cli/startup_gate.hpp"

#include <spdlog/spdlog.h>

#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <qpn/cpu/isa.hpp>
#include <utility>
#include <vector>

#include "checkpoint/hub_revision.hpp"
#include "checkpoint/inspect.hpp"
#include "cli/collector.hpp"
#include "cli/startup_report.hpp"
#include "support/error.hpp"
#include "text/sha256.hpp"
#include "text/text_file.hpp"

namespace qwen38::cli {
namespace {

/// The JSON header of a safetensors file, whose 8-byte length the loader has checked already.
std::string header_of(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<unsigned char, 8> prefix{};
  file.read(reinterpret_cast<char*>(prefix.data()), prefix.size());
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    length |= static_cast<std::uint64_t>(prefix[i]) << (8 * i);
  }
  std::string header(file ? static_cast<std::size_t>(length) : 0, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  if (!file) throw error(error_kind::io, path.string() + ": cannot be read any more");
  return header;
}

std::string structure_of(std::filesystem::path const& directory) {
  std::filesystem::path const index = directory / "model.safetensors.index.json";
  std::string all = text::read_text(directory / "config.json");
  all += '\n';
  all += std::filesystem::exists(index) ? text::read_text(index)
                                        : header_of(directory / "model.safetensors");
  return text::sha256_hex(all);
}

/// Four rounds over a short text that no stop id ends.
warm_up_facts warm_up(loaded_model const& loaded, engine::engine& engine, int draft_tokens) {
  engine::request wanted;
  wanted.id = "warm-up";
  wanted.prompt_ids = loaded.tokenizer->encode("1 2 3 4 5 6 7 8 9 10 11 12");
  wanted.sampling.temperature = 0;
  wanted.draft_tokens = loaded.model->get_limits().has_mtp ? draft_tokens : 0;
  std::int64_t const room =
      loaded.model->get_limits().max_context - static_cast<std::int64_t>(wanted.prompt_ids.size());
  wanted.max_tokens = std::min<std::int64_t>(4 * (draft_tokens + 1), room);
  warm_up_facts facts;
  try {
    auto const output = std::make_shared<collector>();
    engine.submit(std::move(wanted), output);
    engine::result const outcome = output->wait();
    facts.failed = outcome.finish == engine::finish_reason::failed;
    facts.message = outcome.message;
    facts.tokens = outcome.usage.completion_tokens;
    facts.rounds = outcome.speculation.rounds;
    facts.drafted = outcome.speculation.drafted;
    facts.draft_tokens = outcome.speculation.draft_tokens;
    facts.ms = outcome.timing.prefill + outcome.timing.decode;
  } catch (error const& refused) {
    facts.failed = true;
    facts.message = refused.what();
  }
  return facts;
}

startup_facts gather(loaded_model const& loaded, model_flags const& flags) {
  startup_facts facts;
  facts.model = loaded.name;
  facts.device = loaded.device;
  facts.tp = flags.tp;
  if (loaded.source->is_synthetic()) {
    auto const tensors = loaded.source->open()->tensors();
    facts.tensors = tensors.size();
    for (checkpoint::tensor_view const* one : tensors) facts.tensor_bytes += one->byte_count;
    facts.known_as = "made-up weights";
  } else {
    std::filesystem::path const& directory = loaded.source->directory();
    checkpoint::inspection const stored =
        checkpoint::inspect_checkpoint(directory, checkpoint::open_mode::headers_only);
    facts.tensors = stored.tensors;
    facts.tensor_bytes = stored.bytes;
    facts.ignored_tensors = stored.weights ? stored.tensors - stored.weights->used.size() : 0;
    facts.structure = structure_of(directory);
    facts.revision = checkpoint::find_hub_revision(directory);
    recognise_checkpoint(facts);
    facts.kv_cache_directive = stored.kv_cache_algo;
  }
  facts.has_mtp = loaded.model->get_limits().has_mtp;
  facts.costs = loaded.costs;
  facts.prefill_pass = loaded.model->get_limits().prefill_chunk;
  facts.best_cpu_route = std::string("cpu/") + qpn::cpu::to_string(qpn::cpu::best_isa());
  for (model::qwen38_model const* rank : loaded.ranks) {
    auto const memory = rank->get_memory_use();
    facts.ranks.push_back({rank->linears(), rank->routes(), rank->attention_route(), memory.weights,
                           memory.kv_cache, memory.gdn_state, std::nullopt});
  }
  for (std::size_t rank = 0; rank < loaded.places.size(); ++rank) {
    facts.ranks[rank].place = loaded.places[rank];
  }
  return facts;
}

void write_report(std::filesystem::path const& path, std::string const& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw error(error_kind::io, "--report " + path.string() + ": cannot be written");
}

}  // namespace

std::string pass_startup_gate(loaded_model const& loaded, engine::engine& engine,
                              model_flags const& flags, startup_options const& options) {
  warm_up_facts const first = warm_up(loaded, engine, options.depth.most);
  startup_facts facts = gather(loaded, flags);
  facts.warm_up = first;
  facts.drafts_asked = options.depth.most;
  facts.depth_is_chosen = options.depth.is_chosen;
  facts.drafts_were_asked = options.depth_was_given;
  facts.emulated_is_allowed = options.allow_emulated;

  std::string const surprise = find_surprise(facts);
  std::string report = to_json(facts, surprise).dump(2) + '\n';
  if (!options.report.empty()) write_report(options.report, report);
  if (!surprise.empty()) throw error(error_kind::internal, "start-up: " + surprise);
  spdlog::info(
      "start-up: checkpoint {}, {} tensors, head in its own codes, k {}, KV cache f16{}, "
      "attention {}, warm-up {:.0f} ms",
      facts.known_as.empty() ? "unpinned" : "is " + facts.known_as, facts.tensors,
      facts.depth_is_chosen && facts.has_mtp ? "auto" : std::to_string(facts.warm_up.draft_tokens),
      facts.kv_cache_directive.empty() ? std::string()
                                       : " (declared " + facts.kv_cache_directive + ", overridden)",
      facts.ranks.front().attention_route, facts.warm_up.ms);
  for (std::string const& route : fallback_routes(facts)) {
    spdlog::warn("start-up: products take {}, which stands in for a faster one", route);
  }
  return report;
}

}  // namespace qwen38::cli
