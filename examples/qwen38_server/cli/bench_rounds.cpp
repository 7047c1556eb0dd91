// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_rounds.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <thread>

#include "cli/gpu_clocks.hpp"
#include "cli/rank_devices.hpp"
#include "support/error.hpp"

namespace qwen38::cli {
namespace {

using nlohmann::ordered_json;
using steady = std::chrono::steady_clock;

constexpr int warm_up_rounds = 3;  // done, recorded, replayed

double ms_since(steady::time_point start) {
  return std::chrono::duration<double, std::milli>(steady::now() - start).count();
}

/// One kind of round.
struct round_kind {
  int k = 0;
  int accepted = 0;  ///< of its drafts
  int lanes = 1;
  std::int64_t live = 0;
  std::int64_t declared = 0;  ///< tokens that the page table covers; 0: as many as are needed
};

/// Lanes whose pages lie one after the other, driven without an engine.
class driven_model {
 public:
  driven_model(loaded_model& loaded, std::int64_t lane_tokens)
      : lm_(*loaded.model), limits_(lm_.get_limits()), lane_tokens_(lane_tokens) {}

  /// Prefills lane 0 with `tokens` tokens, which it waits for, and saves the state at the first
  /// border of a pass.
  void prefill(std::int64_t tokens) {
    std::int64_t const rows = limits_.prefill_chunk;
    lm_.begin(0, pages_of(0, 0));
    for (std::int64_t first = 0; first < tokens; first += rows) {
      std::int64_t const end = std::min(first + rows, tokens);
      pass(0, first, end, end == tokens);
      if (first == 0 && end == rows) lm_.save(0, 0);
    }
  }

  /// Where the time of the prefill pass goes that ends at `tokens`; after prefill().
  ops::op_times profile_prefill(std::int64_t tokens, ops::profiled_backend& where) {
    std::int64_t const first = pass_of_last(tokens);
    return where.profile_classes([&] { go_to(0, 0, first); },
                                 [&] { pass(0, first, tokens, false); });
  }

  /// Mean milliseconds of a round.
  double time_rounds(round_kind const& kind, int rounds) {
    start(kind, rounds);
    for (int i = 0; i < warm_up_rounds; ++i) round(kind);
    auto const begun = steady::now();
    for (int i = 0; i < rounds; ++i) round(kind);
    return ms_since(begun) / rounds;
  }

  /// The times of `rounds` rounds, which are undone to where they began.
  ops::op_times profile_rounds(round_kind const& kind, int rounds, ops::profiled_backend& where) {
    start(kind, rounds);
    for (int i = 0; i < warm_up_rounds; ++i) round(kind);
    return where.profile([&] {
      for (int i = 0; i < rounds; ++i) round(kind);
    });
  }

 private:
  struct lane {
    std::int64_t position = 0;
    std::vector<std::int32_t> settled;
  };

  [[nodiscard]] std::vector<std::int32_t> pages_of(int index, std::int64_t declared) const {
    std::int64_t const own = lane_tokens_of(index) / limits_.page_tokens;
    std::vector<std::int32_t> pages(static_cast<std::size_t>(own));
    std::iota(pages.begin(), pages.end(),
              static_cast<std::int32_t>(index == 0 ? 0 : first_of_others() + (index - 1) * own));
    std::int64_t const listed = declared / limits_.page_tokens;
    // Beyond what is live nobody looks.
    if (listed > own) pages.resize(static_cast<std::size_t>(listed), pages.front());
    return pages;
  }
  [[nodiscard]] std::int64_t lane_tokens_of(int index) const {
    return index == 0 ? limits_.kv_pages * std::int64_t{limits_.page_tokens} -
                            lane_tokens_ * (limits_.max_lanes - 1)
                      : lane_tokens_;
  }
  [[nodiscard]] std::int64_t first_of_others() const {
    return lane_tokens_of(0) / limits_.page_tokens;
  }

  /// The first position of the pass that computes a prompt's last token.
  [[nodiscard]] std::int64_t pass_of_last(std::int64_t tokens) const {
    return (tokens - 1) / limits_.prefill_chunk * limits_.prefill_chunk;
  }

  /// A lane that stands at a border of passes, with the state saved at the first one.
  void go_to(int index, std::int64_t declared, std::int64_t border) {
    if (border == 0) {
      lm_.begin(index, pages_of(index, declared));
    } else {
      lm_.resume(index, pages_of(index, declared), 0, border);
    }
  }

  void pass(int index, std::int64_t first, std::int64_t end, bool waits) {
    std::int64_t const rows = end - first;
    ids_.resize(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) {
      ids_[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>((first + i) * 7919 % limits_.valid_ids);
    }
    model::sequence_rows const chunk{index, first, ids_, false, waits ? rows - 1 : rows};
    lm_.forward({&chunk, 1});
    if (!limits_.has_mtp) return;
    std::int64_t const from = std::max<std::int64_t>(first - 1, 0);
    std::vector<std::int32_t> const shifted(ids_.begin() + (from - first + 1), ids_.end());
    model::draft_rows const behind{index, from, shifted, true, false};
    std::int32_t none = -1;
    lm_.draft({&behind, 1}, {&none, 1});
  }

  void start(round_kind const& kind, int rounds) {
    std::int64_t const room =
        std::int64_t{warm_up_rounds + rounds} * (kind.accepted + 1) + kind.k + 1;
    std::int64_t const position = std::max<std::int64_t>(kind.live - room, 2);
    std::int64_t const border = pass_of_last(position);
    lanes_.assign(static_cast<std::size_t>(kind.lanes), {});
    for (int index = 0; index < kind.lanes; ++index) {
      go_to(index, kind.declared, border);
      pass(index, border, position, true);
      lanes_[static_cast<std::size_t>(index)] = {position, {1}};
    }
  }

  void round(round_kind const& kind) {
    std::vector<model::round_lane> batch;
    std::vector<model::round_result> results(lanes_.size());
    for (int index = 0; index < std::ssize(lanes_); ++index) {
      lane const& one = lanes_[static_cast<std::size_t>(index)];
      batch.push_back({index, one.position, one.settled, kind.k, &greedy_});
    }
    lm_.round(batch, results);
    for (int index = 0; index < std::ssize(lanes_); ++index) {
      lane& one = lanes_[static_cast<std::size_t>(index)];
      if (kind.k > 0) lm_.keep(index, kind.accepted + 1);
      one.position += kind.accepted + 1;
      one.settled.assign(static_cast<std::size_t>(kind.accepted) + 1, 1);
    }
  }

  model::causal_lm& lm_;
  model::causal_lm::limits const& limits_;
  std::int64_t lane_tokens_;  ///< of each lane but the first
  std::vector<std::int32_t> ids_;
  std::vector<lane> lanes_;
  ops::token_choice const greedy_ = {};
};

std::int64_t largest(std::vector<std::int64_t> const& values, std::int64_t least) {
  for (std::int64_t const one : values) least = std::max(least, one);
  return least;
}

std::int64_t whole_pages(std::int64_t tokens) {
  return (tokens + ops::kv_page_tokens - 1) / ops::kv_page_tokens * ops::kv_page_tokens;
}

/// Of the accepts that are possible with k drafts, each once.
std::set<int> accepted_of(round_bench_flags const& wanted, int k) {
  std::set<int> all;
  for (std::string const& one : wanted.accepts) {
    int const count = one == "k" ? k : std::stoi(one);
    if (count <= k) all.insert(count);
  }
  return all;
}

round_bytes bytes_of(loaded_model const& loaded, checkpoint::model_config const& config, int tp) {
  round_bytes bytes;
  for (model::linear_record const& one : loaded.ranks.front()->linears()) {
    auto const size = static_cast<std::uint64_t>(one.held.total_bytes);
    if (!one.name.starts_with("mtp.")) {
      bytes.verify_weights += size;
    } else {
      bytes.draft_weights += size;
      if (one.name.ends_with("k_proj")) bytes.settle_weights += size;
    }
    bool const is_head = one.name == "lm_head" || one.name == "embed_tokens as head";
    if (is_head) bytes.draft_weights += size;
  }
  auto const kv_dim = static_cast<std::uint64_t>(config.kv_dim() / tp);
  bytes.kv_of_layer = 2 * kv_dim * 2;
  bytes.attention_layers = static_cast<std::uint64_t>(
      std::ranges::count(config.layers, checkpoint::layer_kind::full_attention));
  bytes.state_of_lane =
      (config.layers.size() - bytes.attention_layers) *
      static_cast<std::uint64_t>(config.linear_num_value_heads / tp * config.linear_key_head_dim *
                                 config.linear_value_head_dim) *
      sizeof(float);
  return bytes;
}

/// Sizes of the model that the runs need, where no flag gives them.
void choose_sizes(model_flags& flags, round_bench_flags const& wanted,
                  checkpoint::model_config const& config, std::int64_t lane_tokens) {
  std::int64_t const live =
      std::max({largest(wanted.live, lane_tokens), largest(wanted.prefill, 0), flags.prefill_pass});
  flags.lanes = *std::ranges::max_element(wanted.lanes);
  flags.context = std::min(std::max(live, largest(wanted.declared, 0)) + ops::kv_page_tokens,
                           config.max_position_embeddings);
  flags.kv_tokens = whole_pages(live) + lane_tokens * (flags.lanes - 1) + ops::kv_page_tokens;
  flags.prefix_cache_mib =
      static_cast<std::int64_t>(model::snapshot_bytes(config) >> 20) + 1;  // one place
}

class bench_run {
 public:
  bench_run(model_flags const& flags, round_bench_flags const& wanted, loaded_model& loaded,
            std::int64_t lane_tokens, double read_rate)
      : wanted_(wanted),
        loaded_(loaded),
        driven_(loaded, lane_tokens),
        bytes_(
            bytes_of(loaded, checkpoint::load_model_config(loaded.source->directory()), flags.tp)),
        read_rate_(read_rate) {
    report_["model"] = loaded.name;
    report_["device"] = flags.device;
    report_["device_name"] = loaded.device;
    report_["tp"] = flags.tp;
    if (!loaded.reduction.empty()) report_["reduction"] = loaded.reduction;
    report_["threads"] = loaded.threads;
    report_["read_gb_s"] = read_rate;
    report_["bytes_of"] = {{"verify_weights", bytes_.verify_weights},
                           {"draft_weights", bytes_.draft_weights},
                           {"settle_weights", bytes_.settle_weights},
                           {"kv_of_token_and_layer", bytes_.kv_of_layer},
                           {"attention_layers", bytes_.attention_layers},
                           {"state_of_lane", bytes_.state_of_lane}};
    report_["clocks_before"] = gpu_clocks();
    has_mtp_ = loaded.model->get_limits().has_mtp;
  }

  ordered_json run() {
    prefill();
    for (std::int64_t const live : wanted_.live) {
      for (int const k : wanted_.depths) {
        if (k > 0 && !has_mtp_) continue;
        for (int const accepted : accepted_of(wanted_, k)) {
          time("rounds", {k, accepted, 1, live, 0});
        }
      }
    }
    report_["clocks_under_load"] = gpu_clocks();
    lanes();
    for (std::int64_t const declared : wanted_.declared) {
      int const k = has_mtp_ ? wanted_.depths.back() : 0;
      time("declared", {k, 0, 1, wanted_.side_live, declared});
    }
    slopes();
    ops::work_counts const counts = loaded_.ranks.front()->counts();
    report_["recordings"] = counts.recordings;
    report_["replays"] = counts.replays;
    auto& routes = report_["routes"] = ordered_json::object();
    for (ops::route_count const& one : routes_of(loaded_)) routes[one.route] = one.launches;
    return std::move(report_);
  }

 private:
  void prefill() {
    model::causal_lm::limits const& limits = loaded_.model->get_limits();
    report_["prefill_pass"] = limits.prefill_chunk;
    filled_ = std::min<std::int64_t>(limits.prefill_chunk, limits.max_context);
    driven_.prefill(filled_);  // takes memory, raises clocks
    for (std::int64_t const tokens : std::set(wanted_.prefill.begin(), wanted_.prefill.end())) {
      auto const begun = steady::now();
      driven_.prefill(tokens);
      double const ms = ms_since(begun);
      filled_ = std::max(filled_, tokens);
      double const rate = 1000.0 * static_cast<double>(tokens) / ms;
      report_["prefill_tok_s"][std::to_string(tokens)] = rate;
      std::fprintf(stderr, "prefill %7lld tokens %10.1f tok/s, %.3f ms\n",
                   static_cast<long long>(tokens), rate, ms);
      if (loaded_.profile == nullptr) continue;
      ordered_json& entry = report_["prefill_breakdown"][std::to_string(tokens)];
      ops::op_times const times = driven_.profile_prefill(tokens, *loaded_.profile);
      entry["pass_ms"] = times.whole;
      double sum = 0;
      for (std::size_t i = 0; i < ops::op_class_count; ++i) {
        entry[std::string(to_string(static_cast<ops::op_class>(i)))] = times.of_class[i];
        sum += times.of_class[i];
      }
      entry["gaps"] = times.whole - sum;
      std::fprintf(stderr, "  last pass: %s\n", entry.dump().c_str());
    }
  }

  void time(char const* list, round_kind const& kind) {
    double const ms = driven_.time_rounds(kind, wanted_.rounds);
    std::uint64_t const bytes = bytes_.of_round(kind.k, kind.live, kind.lanes);
    double const rate = static_cast<double>(bytes) / ms / 1e6;
    ordered_json entry = {{"k", kind.k}, {"accepted", kind.accepted}, {"live", kind.live}};
    if (kind.lanes > 1 || list == std::string_view("lanes")) entry["lanes"] = kind.lanes;
    if (kind.declared > 0) entry["declared"] = kind.declared;
    entry["filled"] = kind.live <= filled_ && kind.lanes == 1 ? "prefill" : "zeros";
    entry["round_ms"] = ms;
    entry["bytes"] = bytes;
    entry["read_gb_s"] = rate;
    entry["fraction"] = rate / read_rate_;
    times_[{kind.k, kind.lanes, kind.live}] = ms;
    std::fprintf(stderr,
                 "%s k %2d accepted %2d lanes %d live %6lld declared %6lld: %8.3f ms, %7.1f GB/s, "
                 "%.3f of %.0f\n",
                 list, kind.k, kind.accepted, kind.lanes, static_cast<long long>(kind.live),
                 static_cast<long long>(kind.declared), ms, rate, rate / read_rate_, read_rate_);
    if (loaded_.profile != nullptr && kind.accepted == 0) entry["breakdown"] = breakdown(kind, ms);
    report_[list].push_back(std::move(entry));
  }

  /// Milliseconds of a round by class, each class alone; what they do not explain are gaps.
  ordered_json breakdown(round_kind const& kind, double round_ms) {
    constexpr int rounds = 2;
    ops::op_times const times = driven_.profile_rounds(kind, rounds, *loaded_.profile);
    ordered_json out;
    double sum = times.keep / rounds;
    for (std::size_t i = 0; i < ops::op_class_count; ++i) {
      double const ms = times.of_class[i] / rounds;
      out[std::string(to_string(static_cast<ops::op_class>(i)))] = ms;
      sum += ms;
    }
    out["keep"] = times.keep / rounds;
    if (times.count > 0) out["graph"] = times.replays / rounds;
    out["gaps"] = round_ms - sum;
    std::fprintf(stderr, "  %s\n", out.dump().c_str());
    return out;
  }

  void lanes() {
    for (int const k : {0, 3, 7}) {
      if (k > 0 && !has_mtp_) continue;
      for (int const count : wanted_.lanes) {
        if (count * (k + 1) > loaded_.model->get_limits().max_rows) continue;
        time("lanes", {k, 0, count, wanted_.side_live, 0});
      }
    }
  }

  /// A verify row: what a lane more costs a round without drafts. A draft step: what a draft more
  /// costs a round beyond its row.
  void slopes() {
    int const most = *std::ranges::max_element(wanted_.lanes);
    auto const at = [&](int k, int lanes) { return times_.find({k, lanes, wanted_.side_live}); };
    auto const one = at(0, 1);
    auto const many = at(0, most);
    if (most < 2 || one == times_.end() || many == times_.end()) return;
    double const row = (many->second - one->second) / (most - 1);
    report_["ms_per_verify_row"] = row;
    if (auto const seven = at(7, 1); seven != times_.end()) {
      report_["ms_per_draft_step"] = (seven->second - one->second - 7 * row) / 7;
    }
  }

  round_bench_flags const& wanted_;
  loaded_model& loaded_;
  driven_model driven_;
  round_bytes bytes_;
  double read_rate_;
  bool has_mtp_ = false;
  std::int64_t filled_ = 0;  ///< tokens of lane 0 that were prefilled
  std::map<std::tuple<int, int, std::int64_t>, double> times_;  ///< by k, lanes, live
  ordered_json report_;
};

void check(round_bench_flags const& wanted) {
  auto const refuse = [](std::string const& what) {
    throw error(error_kind::invalid_argument, what);
  };
  if (wanted.lanes.empty() || wanted.depths.empty()) refuse("--k, --lanes-list: expected a number");
  for (std::int64_t const live : wanted.live) {
    if (live < 3 * ops::kv_page_tokens) {
      refuse("--live " + std::to_string(live) + ": expected at least 192 tokens");
    }
  }
  for (std::string const& one : wanted.accepts) {
    bool const is_number = !one.empty() && one.size() < 3 &&
                           std::ranges::all_of(one, [](char c) { return c >= '0' && c <= '9'; });
    if (one != "k" && !is_number) refuse("--accept " + one + ": expected a number of drafts or k");
  }
}

}  // namespace

std::uint64_t round_bytes::of_round(int k, std::int64_t live, int lanes) const noexcept {
  auto const drafts = static_cast<std::uint64_t>(k);
  std::uint64_t const weights =
      verify_weights + drafts * draft_weights + (k > 0 ? settle_weights : 0);
  std::uint64_t const kv =
      static_cast<std::uint64_t>(live) * kv_of_layer * (attention_layers + drafts);
  return weights + static_cast<std::uint64_t>(lanes) * (kv + state_of_lane * (k > 0 ? 3 : 2));
}

int bench_rounds(model_flags flags, round_bench_flags const& wanted) {
  check(wanted);
  model_source const headers(flags.model, checkpoint::open_mode::headers_only);
  checkpoint::model_config const config = checkpoint::load_model_config(headers.directory());
  std::int64_t const lane_tokens = whole_pages(wanted.side_live) + ops::kv_page_tokens;
  choose_sizes(flags, wanted, config, lane_tokens);
  int const threads =
      flags.threads > 0 ? flags.threads : static_cast<int>(std::thread::hardware_concurrency());
  double const read_rate = rank_devices(flags).read_rate(threads);
  loaded_model loaded = load(flags);
  ordered_json const report = bench_run(flags, wanted, loaded, lane_tokens, read_rate).run();
  if (wanted.json) std::cout << report.dump(2) << '\n';
  return 0;
}

}  // namespace qwen38::cli
