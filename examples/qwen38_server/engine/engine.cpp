// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/generation.hpp"
#include "engine/sampler.hpp"
#include "support/error.hpp"

namespace qwen38::engine {
namespace {

using clock = std::chrono::steady_clock;

double milliseconds(clock::time_point from, clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

void require(bool holds, std::string const& sentence) {
  if (!holds) throw error(error_kind::invalid_argument, sentence);
}

void check_limits(model::causal_lm::limits const& limits, text::tokenizer const& tokenizer) {
  auto const promise = [](bool holds, char const* sentence) {
    if (!holds) throw error(error_kind::internal, sentence);
  };
  promise(limits.max_lanes >= 1, "The model has no lanes: expected at least one.");
  promise(limits.prefill_chunk >= 1,
          "The model's prefill chunk is empty: expected a token or more.");
  promise(limits.valid_ids >= 1 && limits.valid_ids <= limits.vocab_size &&
              limits.valid_ids <= tokenizer.vocab_size(),
          "The model's valid ids exceed its rows or the tokenizer's tokens.");
  promise(static_cast<std::size_t>(limits.valid_ids) <= max_candidates,
          "The model has more ids than the sampler can add up.");
  promise(limits.max_rows >= 1 + (limits.has_mtp ? max_draft_tokens : 0),
          "The model's passes are too narrow for one lane at the largest draft depth.");
}

void check_ids(std::vector<std::int32_t> const& ids, std::int32_t limit, char const* field) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < limit) continue;
    throw error(error_kind::invalid_argument,
                std::string(field) + "[" + std::to_string(i) + "]: expected a token id from 0 to " +
                    std::to_string(limit - 1) + ", got " + std::to_string(ids[i]) + '.');
  }
}

}  // namespace

struct engine::job {
  job(request wanted, std::shared_ptr<observer> receiver, text::tokenizer const& tokenizer,
      std::int32_t valid_ids)
      : output(std::move(wanted), tokenizer, valid_ids), sink(std::move(receiver)) {}

  generation output;
  std::shared_ptr<observer> const sink;
  std::uint64_t ticket = 0;
  std::atomic<bool> cancelled = false;
  clock::time_point const submitted = clock::now();
  std::optional<clock::time_point> admitted;
  std::optional<clock::time_point> first_token;

  [[nodiscard]] timing_ms timing(clock::time_point end) const {
    timing_ms out;
    out.queued = milliseconds(submitted, admitted.value_or(end));
    if (admitted) out.prefill = milliseconds(*admitted, first_token.value_or(end));
    if (first_token) out.decode = milliseconds(*first_token, end);
    return out;
  }
};

engine::engine(model::causal_lm& model, text::tokenizer const& tokenizer, engine_options options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      loop_(model, options_.on_fault) {
  check_limits(model.get_limits(), tokenizer);
  slots_.resize(static_cast<std::size_t>(model.get_limits().max_lanes));
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].place.index = static_cast<int>(i);
}

engine::~engine() {
  {
    std::scoped_lock const lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    end_all(finish_reason::cancelled, {});
  }
}

void engine::start() {
  thread_ = std::thread([this] { run(); });
}

void engine::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || failed_ || !live_.empty(); });
      if (stopping_ || failed_) break;
    }
    step();
  }
  end_all(finish_reason::cancelled, {});
}

bool engine::step() {
  try {
    turn();
  } catch (std::exception const& what) {
    die(what.what());
  } catch (...) {
    die("an exception of an unknown type");
  }
  std::scoped_lock const lock(mutex_);
  return !live_.empty();
}

void engine::check(request const& wanted) const {
  auto const& limits = model_.get_limits();
  require(!wanted.prompt_ids.empty(), "prompt: expected at least one token, got none.");
  check_ids(wanted.prompt_ids, limits.valid_ids, "prompt");
  check_ids(wanted.stop_ids, limits.vocab_size, "stop_ids");
  check_sampling(wanted.sampling);
  require(wanted.max_tokens >= 1,
          "max_tokens: expected at least 1, got " + std::to_string(wanted.max_tokens) + '.');
  require(wanted.min_tokens >= 0,
          "min_tokens: expected at least 0, got " + std::to_string(wanted.min_tokens) + '.');
  require(wanted.draft_tokens >= 0 && wanted.draft_tokens <= max_draft_tokens,
          "draft_tokens: expected 0 to " + std::to_string(max_draft_tokens) + ", got " +
              std::to_string(wanted.draft_tokens) + '.');
  require(wanted.draft_tokens == 0 || limits.has_mtp,
          "draft_tokens: this model has no MTP layer, so it must be 0, got " +
              std::to_string(wanted.draft_tokens) + '.');
  auto const prompt = static_cast<std::int64_t>(wanted.prompt_ids.size());
  if (prompt > limits.max_context || wanted.max_tokens > limits.max_context - prompt) {
    throw error(error_kind::context_length_exceeded,
                "The prompt has " + std::to_string(prompt) + " tokens and max_tokens is " +
                    std::to_string(wanted.max_tokens) + ", but the context holds " +
                    std::to_string(limits.max_context) + " tokens.");
  }
}

std::uint64_t engine::submit(request wanted, std::shared_ptr<observer> sink) {
  check(wanted);
  auto const added = std::make_shared<job>(std::move(wanted), std::move(sink), tokenizer_,
                                           model_.get_limits().valid_ids);
  {
    std::scoped_lock const lock(mutex_);
    if (failed_ || stopping_) {
      throw error(error_kind::internal, "The engine has stopped and takes no requests.");
    }
    if (draining_) {
      throw error(error_kind::unavailable,
                  "The server is about to end and takes no requests; try again later.");
    }
    if (live_.size() >= slots_.size() + options_.queue_limit) {
      throw error(error_kind::overloaded, "The queue is full: " + std::to_string(live_.size()) +
                                              " requests run or wait for " +
                                              std::to_string(slots_.size()) +
                                              " lanes; try again later.");
    }
    added->ticket = ++last_ticket_;
    queue_.push_back(added);
    live_.emplace(added->ticket, added);
  }
  changed_.notify_one();
  return added->ticket;
}

void engine::cancel(std::uint64_t ticket) noexcept {
  std::scoped_lock const lock(mutex_);
  auto const found = live_.find(ticket);
  if (found != live_.end()) found->second->cancelled = true;
}

void engine::drain() noexcept {
  std::scoped_lock const lock(mutex_);
  draining_ = true;
}

service::state engine::get_state() const {
  std::scoped_lock const lock(mutex_);
  state now;
  now.running = live_.size() - queue_.size();
  now.waiting = queue_.size();
  now.lanes = slots_.size();
  now.failed = failed_;
  now.draining = draining_;
  return now;
}

std::int64_t engine::max_context() const noexcept {
  return model_.get_limits().max_context;
}

bool engine::supports_drafts() const noexcept {
  return model_.get_limits().has_mtp;
}

void engine::turn() {
  end_cancelled();
  admit();
  for (slot& one : slots_) {
    if (!one.work || !one.place.prefilling()) continue;
    loop_.prefill(one.place);
    if (one.work->output.completion_tokens() > 0) one.work->first_token = clock::now();
    report(one);
  }
  running_.clear();
  for (slot& one : slots_) {
    if (one.work && !one.place.prefilling()) running_.push_back(&one.place);
  }
  loop_.decode(running_);
  for (slot& one : slots_) {
    if (one.work) report(one);
  }
}

void engine::end_cancelled() {
  for (slot& one : slots_) {
    if (!one.work || !one.work->cancelled) continue;
    one.work->output.end(finish_reason::cancelled);
    report(one);
  }
  for (;;) {
    std::shared_ptr<job> ended;
    {
      std::scoped_lock const lock(mutex_);
      auto const found = std::ranges::find_if(
          queue_, [](std::shared_ptr<job> const& one) { return one->cancelled.load(); });
      if (found == queue_.end()) return;
      ended = std::move(*found);
      queue_.erase(found);
    }
    ended->output.end(finish_reason::cancelled);
    finish(ended, no_rounds(ended->output.wanted()));
  }
}

void engine::admit() {
  for (slot& one : slots_) {
    if (one.work) continue;
    {
      std::scoped_lock const lock(mutex_);
      if (queue_.empty()) return;
      one.work = std::move(queue_.front());
      queue_.pop_front();
    }
    one.work->admitted = clock::now();
    loop_.begin(one.place, one.work->output);
    report(one);
  }
}

/// Hands out what a lane has put out; frees it if it has ended.
void engine::report(slot& from) {
  output_delta const delta = from.work->output.take_delta();
  if (!delta.ids.empty() || !delta.reasoning.empty() || !delta.content.empty()) {
    from.work->sink->on_output(delta);
  }
  if (!from.work->output.ended()) return;
  auto const ended = std::exchange(from.work, nullptr);
  from.place.work = nullptr;
  finish(ended, std::move(from.place.speculation));
}

void engine::finish(std::shared_ptr<job> const& ended, speculation_counts counts) {
  result outcome = ended->output.outcome();
  outcome.speculation = std::move(counts);
  outcome.timing = ended->timing(clock::now());
  {
    // Before the observer hears of it: who sees an end may count on the room it leaves.
    std::scoped_lock const lock(mutex_);
    live_.erase(ended->ticket);
  }
  ended->sink->on_finish(outcome);
}

void engine::die(std::string const& cause) noexcept {
  {
    std::scoped_lock const lock(mutex_);
    failed_ = true;
  }
  if (options_.on_fault) options_.on_fault("The engine has stopped: " + cause);
  end_all(finish_reason::failed, "The engine has stopped after an internal error.");
}

void engine::end_all(finish_reason reason, std::string const& message) noexcept {
  std::vector<std::pair<std::shared_ptr<job>, speculation_counts>> left;
  for (slot& one : slots_) {
    if (!one.work) continue;
    one.place.work = nullptr;
    left.emplace_back(std::exchange(one.work, nullptr), std::move(one.place.speculation));
  }
  {
    std::scoped_lock const lock(mutex_);
    for (auto const& one : queue_) left.emplace_back(one, no_rounds(one->output.wanted()));
    queue_.clear();
  }
  for (auto& [one, counts] : left) {
    one->output.end(reason, message);
    try {
      finish(one, std::move(counts));
    } catch (...) {
      // An observer that throws is what may have ended the engine; the others still hear of it.
    }
  }
}

}  // namespace qwen38::engine
