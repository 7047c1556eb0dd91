// SPDX-License-Identifier: Apache-2.0
#include "api/metrics.hpp"

#include <algorithm>
#include <charconv>
#include <qpn/version.hpp>
#include <utility>

namespace qwen38::api {
namespace {

constexpr std::array<int, 5> refusal_statuses = {400, 404, 429, 500, 503};
constexpr std::array<std::string_view, 6> finish_names = {"stop",          "length",   "cancelled",
                                                          "queue_timeout", "deadline", "failed"};
constexpr std::array<std::string_view, 2> endpoint_names = {"chat_completions", "completions"};

void append_number(std::string& out, std::uint64_t value) {
  std::array<char, 24> digits{};
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

/// The shortest text that reads back as the same double.
void append_number(std::string& out, double value) {
  std::array<char, 32> digits{};
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

void append_family(std::string& out, std::string_view name, std::string_view type,
                   std::string_view help) {
  for (auto const part : {std::string_view("# HELP qwen38_"), name, std::string_view(" "), help,
                          std::string_view("\n# TYPE qwen38_"), name, std::string_view(" "), type,
                          std::string_view("\n")}) {
    out += part;
  }
}

template <class Number>
void append_sample(std::string& out, std::string_view name, Number value) {
  out += "qwen38_";
  out += name;
  out += ' ';
  append_number(out, value);
  out += '\n';
}

/// value: without characters that a label would have to escape.
void append_sample(std::string& out, std::string_view name, std::string_view label,
                   std::string_view value, std::uint64_t count) {
  out += "qwen38_";
  out += name;
  out += '{';
  out += label;
  out += "=\"";
  out += value;
  out += "\"} ";
  append_number(out, count);
  out += '\n';
}

void append_counter(std::string& out, std::string_view name, std::string_view help,
                    std::uint64_t value) {
  append_family(out, name, "counter", help);
  append_sample(out, name, value);
}

template <class Number>
void append_gauge(std::string& out, std::string_view name, std::string_view help, Number value) {
  append_family(out, name, "gauge", help);
  append_sample(out, name, value);
}

double seconds_of(double milliseconds) {
  return milliseconds / 1000.0;
}

std::uint64_t count_of(std::int64_t value) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0));
}

}  // namespace

std::string_view name_of(endpoint kind) {
  return endpoint_names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(engine::finish_reason finish) {
  return finish_names[static_cast<std::size_t>(finish)];
}

void histogram::observe(double value) noexcept {
  auto const* const end = bounds_ + size_;
  auto const bucket = static_cast<std::size_t>(std::lower_bound(bounds_, end, value) - bounds_);
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void histogram::append(std::string& out, std::string_view name, std::string_view help) const {
  append_family(out, name, "histogram", help);
  std::string const bucket = std::string(name) + "_bucket";
  std::uint64_t total = 0;
  for (std::size_t i = 0; i <= size_; ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    std::string bound = "+Inf";
    if (i < size_) {
      bound.clear();
      append_number(bound, bounds_[i]);
    }
    append_sample(out, bucket, "le", bound, total);
  }
  append_sample(out, std::string(name) + "_sum", sum_.load(std::memory_order_relaxed));
  append_sample(out, std::string(name) + "_count", total);
}

void metrics::count_request(endpoint kind) noexcept {
  requests_[static_cast<std::size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
}

void metrics::count_refusal(int status) noexcept {
  auto const* const known = std::ranges::find(refusal_statuses, status);
  refusals_[static_cast<std::size_t>(known - refusal_statuses.begin())].fetch_add(
      1, std::memory_order_relaxed);
}

void metrics::count_output(std::size_t tokens) noexcept {
  output_tokens_.fetch_add(tokens, std::memory_order_relaxed);
}

void metrics::count_end(engine::result const& outcome, double seconds) noexcept {
  auto const add = [](counter& to, std::int64_t value) {
    to.fetch_add(count_of(value), std::memory_order_relaxed);
  };
  add(ends_[static_cast<std::size_t>(outcome.finish)], 1);
  whole_.observe(seconds);
  queued_.observe(seconds_of(outcome.timing.queued));
  auto const& usage = outcome.usage;
  if (usage.completion_tokens < 1) return;  // it may never have had a lane
  add(prompt_tokens_, usage.prompt_tokens);
  add(cached_tokens_, usage.cached_tokens);
  add(reasoning_tokens_, usage.reasoning_tokens);
  prefill_.observe(seconds_of(outcome.timing.prefill));
  decode_.observe(seconds_of(outcome.timing.decode));
  if (usage.completion_tokens > 1) {
    per_token_.observe(seconds_of(outcome.timing.decode) /
                       static_cast<double>(usage.completion_tokens - 1));
  }
  prompt_length_.observe(static_cast<double>(usage.prompt_tokens));
  output_length_.observe(static_cast<double>(usage.completion_tokens));
  auto const& speculation = outcome.speculation;
  if (speculation.draft_tokens < 1) return;
  add(rounds_, speculation.rounds);
  add(drafted_, speculation.drafted);
  add(accepted_, speculation.accepted);
  for (std::size_t i = 0; i < std::min(speculation.accepted_at.size(), accepted_at_.size()); ++i) {
    add(accepted_at_[i], speculation.accepted_at[i]);
  }
  for (std::size_t i = 0; i < rounds_at_.size(); ++i) add(rounds_at_[i], speculation.rounds_at[i]);
}

void metrics::publish_launches(std::vector<launch_count> launches) {
  std::lock_guard const lock(launches_mutex_);
  launches_ = std::move(launches);
}

reply metrics::exposition(engine::service::state const& now, log_counts const& log) const {
  auto const read = [](counter const& from) { return from.load(std::memory_order_relaxed); };
  reply page;
  page.content_type = "text/plain; version=0.0.4; charset=utf-8";
  std::string& out = page.body;

  append_family(out, "build_info", "gauge", "Always 1; the label says what runs.");
  append_sample(out, "build_info", "version", QPN_VERSION_STRING, 1);
  append_gauge(out, "num_requests_running", "Requests in a lane.", std::uint64_t{now.running});
  append_gauge(out, "num_requests_waiting", "Requests in the queue.", std::uint64_t{now.waiting});
  append_gauge(out, "num_lanes", "Requests that can run at the same time.",
               std::uint64_t{now.lanes});
  double const pages = now.kv_pages > 0 ? static_cast<double>(now.kv_pages) : 1.0;
  append_gauge(out, "kv_cache_usage_perc", "Share of the KV cache that running requests hold, 0-1.",
               static_cast<double>(now.kv_pages_reserved) / pages);
  append_gauge(out, "prefix_cache_usage_perc", "Share that the prefix cache holds alone, 0-1.",
               static_cast<double>(now.kv_pages_cached) / pages);
  append_gauge(out, "prefix_cache_snapshots", "Recurrent states kept for later prompts.",
               std::uint64_t{now.snapshots_used});
  append_gauge(out, "engine_up", "1 while the engine's thread runs.",
               std::uint64_t{now.failed ? 0U : 1U});
  append_counter(out, "engine_turns_total", "Turns of the engine's loop.", now.turns);

  append_family(out, "requests_total", "counter", "Requests by endpoint, refused ones too.");
  for (std::size_t i = 0; i < endpoint_names.size(); ++i) {
    append_sample(out, "requests_total", "endpoint", endpoint_names[i], read(requests_[i]));
  }
  append_family(out, "requests_finished_total", "counter",
                "Requests that the engine had taken, by how they ended.");
  for (std::size_t i = 0; i < finish_names.size(); ++i) {
    append_sample(out, "requests_finished_total", "finished_reason", finish_names[i],
                  read(ends_[i]));
  }
  append_family(out, "requests_refused_total", "counter",
                "Requests that were not taken, by the reply's status.");
  for (std::size_t i = 0; i < refusals_.size(); ++i) {
    auto const status =
        i < refusal_statuses.size() ? std::to_string(refusal_statuses[i]) : std::string("other");
    append_sample(out, "requests_refused_total", "status", status, read(refusals_[i]));
  }

  append_counter(out, "prompt_tokens_total", "Prompt tokens of requests that got an answer.",
                 read(prompt_tokens_));
  append_counter(out, "generation_tokens_total", "Tokens of answers.", read(output_tokens_));
  append_counter(out, "reasoning_tokens_total", "Those of them before </think>.",
                 read(reasoning_tokens_));
  append_counter(out, "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
                 read(prompt_tokens_));
  append_counter(out, "prefix_cache_hits_total", "Prompt tokens found there.",
                 read(cached_tokens_));

  append_counter(out, "spec_decode_num_drafts_total", "Rounds of draft and verify.", read(rounds_));
  append_counter(out, "spec_decode_num_draft_tokens_total", "Tokens drafted.", read(drafted_));
  append_counter(out, "spec_decode_num_accepted_tokens_total", "Drafts accepted.", read(accepted_));
  append_family(out, "spec_decode_num_accepted_tokens_per_pos_total", "counter",
                "Drafts accepted, by their place in the round from 0.");
  for (std::size_t i = 0; i < accepted_at_.size(); ++i) {
    append_sample(out, "spec_decode_num_accepted_tokens_per_pos_total", "position",
                  std::to_string(i), read(accepted_at_[i]));
  }

  append_family(out, "spec_decode_chosen_depth_total", "counter",
                "Rounds of requests with k auto, by the depth chosen.");
  for (std::size_t i = 0; i < rounds_at_.size(); ++i) {
    append_sample(out, "spec_decode_chosen_depth_total", "k",
                  std::to_string(model::round_depths[i]), read(rounds_at_[i]));
  }

  first_token_.append(out, "time_to_first_token_seconds",
                      "From the whole request to its first token.");
  step_gap_.append(out, "inter_token_latency_seconds",
                   "Between two steps of an answer; a step holds one token or more.");
  per_token_.append(out, "request_time_per_output_token_seconds",
                    "Decode time of a request over its tokens after the first.");
  whole_.append(out, "e2e_request_latency_seconds", "From the whole request to its end.");
  queued_.append(out, "request_queue_time_seconds", "Waiting for a lane.");
  prefill_.append(out, "request_prefill_time_seconds", "From the lane to the first token.");
  decode_.append(out, "request_decode_time_seconds", "From the first token to the end.");
  prompt_length_.append(out, "request_prompt_tokens", "Prompt tokens of a request.");
  output_length_.append(out, "request_generation_tokens", "Tokens of an answer.");

  append_counter(out, "request_log_lines_total", "Lines written to the request log.", log.lines);
  append_counter(out, "request_log_lost_total", "Lines that could not be written to it.", log.lost);

  std::lock_guard const lock(launches_mutex_);
  if (launches_.empty()) return page;
  append_family(out, "gemm_launches_total", "counter",
                "Products by kernel route, as of the last request that ended.");
  for (auto const& one : launches_) {
    append_sample(out, "gemm_launches_total", "route", one.route, one.launches);
  }
  return page;
}

}  // namespace qwen38::api
