// SPDX-License-Identifier: Apache-2.0
#include "api/call_record.hpp"

#include <array>
#include <charconv>
#include <ctime>
#include <string_view>
#include <utility>

#include "api/json_text.hpp"
#include "api/speculation_text.hpp"

namespace qwen38::api {
namespace {

void append_name(std::string& line, std::string_view name) {
  line += line.empty() ? "{\"" : ",\"";
  line += name;
  line += "\":";
}

void append_member(std::string& line, std::string_view name, std::int64_t value) {
  append_name(line, name);
  append_json_integer(line, value);
}

void append_member(std::string& line, std::string_view name, double value) {
  append_name(line, name);
  append_json_decimal(line, value);
}

void append_member(std::string& line, std::string_view name, std::string_view value) {
  append_name(line, name);
  append_json_string(line, value);
}

/// "2026-01-31T23:59:59.123Z"
std::string utc(std::chrono::system_clock::time_point date) {
  auto const since = std::chrono::floor<std::chrono::milliseconds>(date.time_since_epoch());
  std::time_t const seconds = std::chrono::floor<std::chrono::seconds>(since).count();
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  auto size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S.", &parts);
  auto const milliseconds = static_cast<int>(since.count() % 1000);
  for (int unit = 100; unit > 0; unit /= 10) {
    text[size++] = static_cast<char>('0' + milliseconds / unit % 10);
  }
  text[size++] = 'Z';
  return {text.data(), size};
}

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

call_record::call_record(std::shared_ptr<telemetry> to, endpoint kind, std::string id)
    : to_(std::move(to)),
      kind_(kind),
      id_(std::move(id)),
      date_(std::chrono::system_clock::now()),
      came_(to_->now()),
      last_step_(came_) {
  to_->numbers.count_request(kind_);
}

void call_record::submitted(engine::request const& wanted, bool stream) {
  wanted_ = {wanted.sampling, static_cast<std::int64_t>(wanted.prompt_ids.size()),
             wanted.max_tokens, stream, milliseconds_to(to_->now())};
}

void call_record::output(engine::output_delta const& delta) noexcept {
  if (delta.ids.empty()) return;
  auto const now = to_->now();
  to_->numbers.count_output(delta.ids.size());
  if (!first_token_) {
    first_token_ = now;
    to_->numbers.observe_first_token(seconds(now - came_));
  } else {
    to_->numbers.observe_step_gap(seconds(now - last_step_));
  }
  last_step_ = now;
}

void call_record::finished(engine::result const& outcome, int status) noexcept {
  auto const end = to_->now();
  to_->numbers.count_end(outcome, seconds(end - came_));
  if (to_->launches) to_->numbers.publish_launches(to_->launches());
  if (!to_->log) return;
  std::string line;
  append_head(line, status);
  append_member(line, "finish_reason", name_of(outcome.finish));
  append_member(line, "prompt_tokens", outcome.usage.prompt_tokens);
  append_member(line, "cached_tokens", outcome.usage.cached_tokens);
  append_member(line, "completion_tokens", outcome.usage.completion_tokens);
  append_member(line, "reasoning_tokens", outcome.usage.reasoning_tokens);
  append_name(line, "ttft_ms");
  if (first_token_) {
    append_json_decimal(line, milliseconds_to(*first_token_));
  } else {
    line += "null";
  }
  append_member(line, "latency_ms", milliseconds_to(end));
  append_member(line, "prepare_ms", wanted_ ? wanted_->prepare_ms : 0.0);
  append_member(line, "queued_ms", outcome.timing.queued);
  append_member(line, "prefill_ms", outcome.timing.prefill);
  append_member(line, "decode_ms", outcome.timing.decode);
  line += ',';
  append_speculation(line, outcome.speculation);
  append_parameters(line);
  line += '}';
  to_->log->write(std::move(line));
}

void call_record::refused(error_reply const& what) noexcept {
  to_->numbers.count_refusal(what.status);
  if (!to_->log) return;
  std::string line;
  append_head(line, what.status);
  append_member(line, "finish_reason", std::string_view("refused"));
  append_name(line, "error_code");
  append_json_string(line, what.code);
  append_member(line, "latency_ms", milliseconds_to(to_->now()));
  append_parameters(line);
  line += '}';
  to_->log->write(std::move(line));
}

double call_record::milliseconds_to(time_point end) const {
  return std::chrono::duration<double, std::milli>(end - came_).count();
}

void call_record::append_head(std::string& line, int status) const {
  append_member(line, "id", std::string_view(id_));
  append_member(line, "time", utc(date_));
  append_member(line, "endpoint", name_of(kind_));
  append_member(line, "status", std::int64_t{status});
}

void call_record::append_parameters(std::string& line) const {
  if (!wanted_) return;
  auto const& sampling = wanted_->sampling;
  append_name(line, "stream");
  line += wanted_->stream ? "true" : "false";
  append_member(line, "max_tokens", wanted_->max_tokens);
  append_member(line, "temperature", double{sampling.temperature});
  append_member(line, "top_p", double{sampling.top_p});
  append_member(line, "top_k", std::int64_t{sampling.top_k});
  append_member(line, "min_p", double{sampling.min_p});
  append_member(line, "repetition_penalty", double{sampling.repetition_penalty});
  append_member(line, "frequency_penalty", double{sampling.frequency_penalty});
  append_member(line, "presence_penalty", double{sampling.presence_penalty});
  append_name(line, "seed");
  line += std::to_string(sampling.seed);
}

}  // namespace qwen38::api
