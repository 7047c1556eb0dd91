// SPDX-License-Identifier: Apache-2.0
#include "cli/startup_report.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/linear.hpp"

namespace qwen38::cli {
namespace {

struct known {
  std::string_view structure;
  std::string_view name;
};
constexpr known known_checkpoints[] = {
    {"0d535b28644bf938c4cfd02d544102141addf03dc5fc023c5ed51499b635e13f",
     "the demo model of this repository"},
};

/// Published revisions that this server was written for, by the first digits of their commits.
struct published {
  std::string_view repository;
  std::string_view commit;
};
constexpr published published_checkpoints[] = {
    {"RadixArk/Qwen3.8-27B-NVFP4", "319f741"},
    {"nvidia/Qwen3.8-27B-NVFP4", "482ca0f3"},
    {"unsloth/Qwen3.8-27B-NVFP4", "9e3d73c7"},
    {"Qwen/Qwen3.8-27B", "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0"},
};

/// The format that holds a class's own codes.
qpn::format_id format_of(checkpoint::quant_class stored) {
  switch (stored) {
    case checkpoint::quant_class::nvfp4: return qpn::format_id::nvfp4;
    case checkpoint::quant_class::fp8_tensor:
    case checkpoint::quant_class::fp8_channel:
    case checkpoint::quant_class::fp8_block: return qpn::format_id::fp8;
    case checkpoint::quant_class::bf16:
    case checkpoint::quant_class::f16: break;
  }
  return qpn::format_id::dense16;
}

bool keeps_codes(model::linear_record const& linear) {
  return linear.held.format == format_of(linear.stored);
}

std::string_view name_of(qpn::format_id format) {
  switch (format) {
    case qpn::format_id::nvfp4: return "nvfp4";
    case qpn::format_id::fp8: return "fp8";
    case qpn::format_id::dense16: break;
  }
  return "dense16";
}

bool is_head(model::linear_record const& linear) {
  return linear.name == "lm_head" || linear.name == "embed_tokens as head";
}

std::string joined(std::vector<std::string> const& names) {
  std::string all;
  for (std::string const& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

std::string checkpoint_surprise(startup_facts const& facts) {
  for (rank_facts const& rank : facts.ranks) {
    if (rank.linears.empty()) return "no linear layer was packed: expected those of the model";
    for (model::linear_record const& linear : rank.linears) {
      if (keeps_codes(linear)) continue;
      return linear.name + " is " + std::string(to_string(linear.stored)) +
             " in the checkpoint but held as " + std::string(name_of(linear.held.format)) +
             ": expected its own codes";
    }
    if (std::ranges::none_of(rank.linears, is_head)) {
      return "no head was packed: expected lm_head or the embedding in its place";
    }
  }
  return {};
}

std::string route_surprise(startup_facts const& facts) {
  for (rank_facts const& rank : facts.ranks) {
    if (rank.routes.empty())
      return "the warm-up took no route: expected products on packed weights";
  }
  std::vector<std::string> const fallbacks = fallback_routes(facts);
  bool const emulated = std::ranges::all_of(
      fallbacks, [](std::string const& name) { return name.ends_with("/emulated"); });
  if (fallbacks.empty() || (emulated && facts.emulated_is_allowed)) return {};
  return "products took " + joined(fallbacks) + ": expected none that falls back" +
         (emulated ? ", or --allow-emulated" : "");
}

std::string depth_name(startup_facts const& facts) {
  return facts.depth_is_chosen ? "auto" : std::to_string(facts.drafts_asked);
}

nlohmann::ordered_json to_json(numa_place const& place) {
  if (place.node < 0) return {{"node", nullptr}, {"why_not", place.why_not}};
  return {{"node", place.node}, {"processors", place.cpus.size()}};
}

/// By depth: [[lanes, ms], ...] at a short context, and what a live token adds.
nlohmann::ordered_json to_json(model::round_costs const& costs) {
  auto all = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < costs.of.size(); ++i) {
    auto& one = all[std::to_string(model::round_depths[i])];
    for (auto const& point : costs.of[i].points) {
      one["lanes_ms"].push_back({point.lanes, point.ms});
    }
    one["ms_per_live_token"] = costs.of[i].ms_per_token;
  }
  return all;
}

std::string drafting_surprise(startup_facts const& facts) {
  warm_up_facts const& warm_up = facts.warm_up;
  if (facts.drafts_were_asked && facts.drafts_asked > 0 && !facts.has_mtp) {
    return "--k " + depth_name(facts) +
           " is asked for, but the checkpoint has no MTP layer: expected --k 0";
  }
  int const expected = facts.has_mtp ? facts.drafts_asked : 0;
  if (warm_up.draft_tokens != expected || warm_up.drafted < expected) {
    return "the warm-up drafted " + std::to_string(warm_up.drafted) + " tokens at depth " +
           std::to_string(warm_up.draft_tokens) + ": expected depth " + std::to_string(expected);
  }
  return {};
}

}  // namespace

void recognise_checkpoint(startup_facts& facts) {
  for (known const& one : known_checkpoints) {
    if (one.structure != facts.structure) continue;
    facts.known_as = one.name;
    facts.known_by = "structure";
    return;
  }
  if (!facts.revision) return;
  for (published const& one : published_checkpoints) {
    bool const is_there =
        facts.revision->repository.empty() || facts.revision->repository == one.repository;
    if (!is_there || !facts.revision->commit.starts_with(one.commit)) continue;
    facts.known_as = std::string(one.repository) + " at " + std::string(one.commit.substr(0, 8));
    facts.known_by = "revision";
    return;
  }
}

std::vector<std::string> fallback_routes(startup_facts const& facts) {
  std::vector<std::string> names;
  for (rank_facts const& rank : facts.ranks) {
    for (ops::route_count const& one : rank.routes) {
      bool const other_cpu =
          one.route.starts_with("cpu/") && !one.route.starts_with(facts.best_cpu_route + '/');
      bool const falls_back = other_cpu || one.route.ends_with("/emulated");
      if (falls_back && std::ranges::find(names, one.route) == names.end()) {
        names.push_back(one.route);
      }
    }
  }
  return names;
}

std::string find_surprise(startup_facts const& facts) {
  if (auto const what = checkpoint_surprise(facts); !what.empty()) return what;
  if (facts.warm_up.failed) return "the warm-up failed: " + facts.warm_up.message;
  if (auto const what = drafting_surprise(facts); !what.empty()) return what;
  return route_surprise(facts);
}

nlohmann::ordered_json to_json(startup_facts const& facts, std::string const& surprise) {
  using json = nlohmann::ordered_json;
  json report;
  report["verdict"] = surprise.empty() ? "serves" : "refused";
  report["surprise"] = surprise.empty() ? json() : json(surprise);
  report["model"] = facts.model;
  report["checkpoint"] = {
      {"known_as", facts.known_as.empty() ? json("unpinned") : json(facts.known_as)},
      {"known_by", facts.known_by.empty() ? json() : json(facts.known_by)},
      {"repository", facts.revision && !facts.revision->repository.empty()
                         ? json(facts.revision->repository)
                         : json()},
      {"revision", facts.revision ? json(facts.revision->commit) : json()},
      {"structure_sha256", facts.structure},
      {"tensors", facts.tensors},
      {"bytes", facts.tensor_bytes},
      {"ignored_tensors", facts.ignored_tensors}};
  report["device"] = facts.device;
  report["tp"] = facts.tp;
  report["speculation"] = {
      {"asked", facts.depth_is_chosen ? json("auto") : json(facts.drafts_asked)},
      {"served",
       facts.depth_is_chosen && facts.has_mtp ? json("auto") : json(facts.warm_up.draft_tokens)},
      {"mtp", facts.has_mtp},
      {"round_ms", facts.costs ? to_json(*facts.costs) : json()}};
  report["prefill_pass"] = facts.prefill_pass;
  bool const has_directive = !facts.kv_cache_directive.empty();
  report["kv_cache"] = {{"dtype", "f16"},
                        {"declared", has_directive ? json(facts.kv_cache_directive) : json()},
                        {"declaration_overridden", has_directive}};
  report["fallback_routes"] = fallback_routes(facts);
  report["warm_up"] = {{"tokens", facts.warm_up.tokens},
                       {"rounds", facts.warm_up.rounds},
                       {"drafted", facts.warm_up.drafted},
                       {"ms", facts.warm_up.ms}};
  json& ranks = report["ranks"] = json::array();
  for (rank_facts const& rank : facts.ranks) {
    json one;
    one["attention"] = rank.attention_route;
    one["numa"] = rank.place ? to_json(*rank.place) : json();
    one["bytes"] = {{"weights", rank.weight_bytes},
                    {"kv_cache", rank.kv_cache_bytes},
                    {"gdn_state", rank.gdn_state_bytes}};
    std::map<std::string, std::size_t> stored;
    std::map<std::string, std::size_t> packed;
    json checks = json::array();
    for (model::linear_record const& linear : rank.linears) {
      std::string const name(to_string(linear.stored));
      stored[name] += linear.modules;
      packed[name] += keeps_codes(linear) ? linear.modules : 0;
      if (is_head(linear)) {
        one["head"] = {{"module", linear.name},
                       {"stored", name},
                       {"held", name_of(linear.held.format)},
                       {"own_codes", keeps_codes(linear)}};
      }
      if (!linear.checked) continue;
      checks.push_back({{"module", linear.name},
                        {"format", name_of(linear.held.format)},
                        {"n", linear.held.n},
                        {"k", linear.held.k},
                        {"error_of_bound", *linear.checked}});
    }
    json& modules = one["modules"] = json::object();
    for (auto const& [name, count] : stored) {
      modules[name] = {{"stored", count}, {"on_packed_routes", packed[name]}};
    }
    one["self_check"] = std::move(checks);
    json& routes = one["routes"] = json::object();
    for (ops::route_count const& each : rank.routes) routes[each.route] = each.launches;
    ranks.push_back(std::move(one));
  }
  return report;
}

}  // namespace qwen38::cli
