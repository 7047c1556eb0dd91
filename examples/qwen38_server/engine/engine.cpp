// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/generation.hpp"
#include "engine/sampler.hpp"
#include "support/error.hpp"

namespace qwen38::engine {
namespace {

using time_point = scheduler::time_point;

double milliseconds(time_point from, time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

std::string in_words(std::chrono::milliseconds time) {
  auto const count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

void require(bool holds, std::string const& sentence) {
  if (!holds) throw error(error_kind::invalid_argument, sentence);
}

model::causal_lm::limits const& checked(model::causal_lm::limits const& limits,
                                        text::tokenizer const& tokenizer) {
  auto const promise = [](bool holds, char const* sentence) {
    if (!holds) throw error(error_kind::internal, sentence);
  };
  promise(limits.max_lanes >= 1, "The model has no lanes: expected at least one.");
  promise(limits.prefill_chunk >= 1,
          "The model's prefill chunk is empty: expected a token or more.");
  promise(limits.page_tokens >= 1 && limits.prefill_chunk % limits.page_tokens == 0,
          "The model's prefill chunk is no whole number of its pages.");
  promise(limits.kv_pages >= 1 && limits.snapshots >= 0,
          "The model's KV cache has no pages: expected at least one.");
  promise(limits.valid_ids >= 1 && limits.valid_ids <= limits.vocab_size &&
              limits.valid_ids <= tokenizer.vocab_size(),
          "The model's valid ids exceed its rows or the tokenizer's tokens.");
  promise(limits.valid_ids <= ops::max_candidates,
          "The model has more ids than the sampler can add up.");
  promise(limits.max_rows >= 1 + (limits.has_mtp ? max_draft_tokens : 0),
          "The model's passes are too narrow for one lane at the largest draft depth.");
  return limits;
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
      std::int32_t valid_ids, time_point now)
      : output(std::move(wanted), tokenizer, valid_ids),
        sink(std::move(receiver)),
        submitted(now) {}

  generation output;
  std::shared_ptr<observer> const sink;
  std::uint64_t ticket = 0;
  std::atomic<bool> cancelled = false;
  time_point const submitted;
  std::optional<time_point> admitted;
  std::optional<time_point> first_token;
  std::int64_t cached_tokens = 0;

  [[nodiscard]] timing_ms timing(time_point end) const {
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
      loop_(model, options_.costs ? &*options_.costs : nullptr, options_.on_fault),
      memory_(checked(model.get_limits(), tokenizer)),
      scheduler_({static_cast<std::size_t>(model.get_limits().max_lanes), options_.queue_limit,
                  options_.queue_timeout, options_.request_timeout}) {
  slots_.resize(static_cast<std::size_t>(model.get_limits().max_lanes));
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].place.index = static_cast<int>(i);
  publish_memory();
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
  ++turns_;
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
  require(
      !wanted.chooses_depth || wanted.draft_tokens == 0 || options_.costs,
      "draft_tokens: its choice by the round needs the costs of rounds, which were not measured; "
      "expected a depth.");
  require(
      !wanted.thinking_budget || (*wanted.thinking_budget >= 0 && wanted.end_reasoning_id >= 0 &&
                                  wanted.end_reasoning_id < limits.valid_ids),
      "thinking_budget: expected at least 0, and a model with a token that ends reasoning.");
  require(!wanted.top_logprobs ||
              (*wanted.top_logprobs >= 0 && *wanted.top_logprobs <= limits.valid_ids),
          "top_logprobs: expected 0 to the number of the model's ids.");
  auto const prompt = static_cast<std::int64_t>(wanted.prompt_ids.size());
  if (prompt > limits.max_context || wanted.max_tokens > limits.max_context - prompt) {
    throw error(error_kind::context_length_exceeded,
                "The prompt has " + std::to_string(prompt) + " tokens and max_tokens is " +
                    std::to_string(wanted.max_tokens) + ", but the context holds " +
                    std::to_string(limits.max_context) + " tokens.");
  }
  std::int64_t const pages = memory_.pages_for(prompt + wanted.max_tokens);
  if (pages > limits.kv_pages) {
    throw error(error_kind::context_length_exceeded,
                "The prompt has " + std::to_string(prompt) + " tokens and max_tokens is " +
                    std::to_string(wanted.max_tokens) + ", which takes " + std::to_string(pages) +
                    " pages of " + std::to_string(limits.page_tokens) +
                    " tokens, but the KV cache has " + std::to_string(limits.kv_pages) + ".");
  }
}

std::uint64_t engine::submit(request wanted, std::shared_ptr<observer> sink) {
  check(wanted);
  auto const added = std::make_shared<job>(std::move(wanted), std::move(sink), tokenizer_,
                                           model_.get_limits().valid_ids, options_.now());
  {
    std::scoped_lock const lock(mutex_);
    if (failed_ || stopping_) {
      throw error(error_kind::internal, "The engine has stopped and takes no requests.");
    }
    if (draining_) {
      throw error(error_kind::unavailable,
                  "The server is about to end and takes no requests; try again later.");
    }
    if (scheduler_.full()) {
      throw error(error_kind::overloaded, "The queue is full: " + std::to_string(live_.size()) +
                                              " requests run or wait for " +
                                              std::to_string(slots_.size()) +
                                              " lanes; try again later.");
    }
    added->ticket = ++last_ticket_;
    scheduler_.enqueue(added->ticket, added->submitted);
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

bool engine::wait_idle(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, longest, [&] { return live_.empty() && finishing_ == 0; });
}

service::state engine::get_state() const {
  std::scoped_lock const lock(mutex_);
  state now;
  now.running = scheduler_.running();
  now.waiting = scheduler_.waiting();
  now.lanes = slots_.size();
  now.failed = failed_;
  now.draining = draining_;
  now.retry_after_s = scheduler_.retry_after_s();
  now.kv_pages = static_cast<std::size_t>(memory_counts_.pages);
  now.kv_pages_reserved = static_cast<std::size_t>(memory_counts_.pages_reserved);
  now.kv_pages_cached = static_cast<std::size_t>(memory_counts_.pages_cached);
  now.snapshots = static_cast<std::size_t>(memory_counts_.places);
  now.snapshots_used = static_cast<std::size_t>(memory_counts_.places_used);
  now.snapshots_reserved = static_cast<std::size_t>(memory_counts_.places_lent);
  now.turns = turns_;
  return now;
}

std::int64_t engine::max_context() const noexcept {
  auto const& limits = model_.get_limits();
  return std::min(limits.max_context, std::int64_t{limits.kv_pages} * limits.page_tokens);
}

bool engine::supports_drafts() const noexcept {
  return model_.get_limits().has_mtp;
}

void engine::turn() {
  end_early();
  admit();
  {
    std::scoped_lock const lock(mutex_);
    scheduler_.begin_turn();
  }
  while (slot* const one = next_chunk()) prefill(*one);
  running_.clear();
  for (slot& one : slots_) {
    if (one.work && !one.place.prefilling()) running_.push_back(&one.place);
  }
  loop_.decode(running_);
  for (slot& one : slots_) {
    if (one.work) report(one);
  }
}

/// Ends what was cancelled or is out of time, in the order in which it came.
void engine::end_early() {
  std::vector<std::pair<std::uint64_t, finish_reason>> ending;
  {
    std::scoped_lock const lock(mutex_);
    for (auto const& [ticket, one] : live_) {
      if (one->cancelled) ending.emplace_back(ticket, finish_reason::cancelled);
    }
    for (scheduler::late const& one : scheduler_.overdue(options_.now())) {
      if (!live_.at(one.ticket)->cancelled) ending.emplace_back(one.ticket, one.reason);
    }
  }
  std::ranges::sort(ending);
  for (auto const& [ticket, reason] : ending) end_one(ticket, reason);
}

void engine::end_one(std::uint64_t ticket, finish_reason reason) {
  std::string message;
  if (reason == finish_reason::queue_timeout) {
    message = "No lane came free within " + in_words(options_.queue_timeout) + "; try again later.";
  } else if (reason == finish_reason::deadline) {
    message = "The answer was not complete within " + in_words(options_.request_timeout) + ".";
  }
  if (slot* const at = slot_of(ticket)) {
    if (at->place.prefilling()) {
      keep_state(*at, memory_.place_at_end(at->held, at->work->output.wanted().prompt_ids,
                                           at->place.position));
    }
    at->work->output.end(reason, message);
    report(*at);
    return;
  }
  std::shared_ptr<job> waiting;
  {
    std::scoped_lock const lock(mutex_);
    waiting = live_.at(ticket);
  }
  waiting->output.end(reason, message);
  finish(waiting, no_rounds(waiting->output.wanted()));
}

void engine::admit() {
  for (;;) {
    std::shared_ptr<job> first;
    {
      std::scoped_lock const lock(mutex_);
      auto const ticket = scheduler_.next();
      if (!ticket || *ticket == blocked_) return;
      first = live_.at(*ticket);
    }
    request const& wanted = first->output.wanted();
    auto held = memory_.reserve(wanted.prompt_ids, wanted.max_tokens);
    if (!held) {
      blocked_ = first->ticket;
      return;
    }
    slot& to = *std::ranges::find_if(slots_, [](slot const& one) { return !one.work; });
    first->admitted = options_.now();
    first->cached_tokens = held->cached;
    {
      std::scoped_lock const lock(mutex_);
      scheduler_.start(*first->admitted);
    }
    to.held = std::move(*held);
    to.work = std::move(first);
    publish_memory();
    loop_.begin(to.place, to.work->output, to.held);
    report(to);
  }
}

engine::slot* engine::slot_of(std::uint64_t ticket) {
  auto const found = std::ranges::find_if(
      slots_, [&](slot const& one) { return one.work && one.work->ticket == ticket; });
  return found == slots_.end() ? nullptr : &*found;
}

engine::slot* engine::next_chunk() {
  std::scoped_lock const lock(mutex_);
  auto const ticket = scheduler_.next_chunk();
  return ticket ? slot_of(*ticket) : nullptr;
}

void engine::prefill(slot& one) {
  loop_.prefill(one.place);
  generation const& output = one.work->output;
  if (output.completion_tokens() > 0) one.work->first_token = options_.now();
  if (!one.place.prefilling()) {
    std::scoped_lock const lock(mutex_);
    scheduler_.prefilled(one.work->ticket);
  } else if (!output.ended()) {
    keep_state(one, memory_.place_at(one.held, output.wanted().prompt_ids, one.place.position));
  }
  report(one);
}

/// For later prompts that begin like this lane's; no place: it is not worth it.
void engine::keep_state(slot& one, std::optional<std::int32_t> place) {
  if (!place) return;
  if (loop_.save(one.place, *place)) {
    memory_.remember(one.held, one.work->output.wanted().prompt_ids, one.place.position, *place);
  } else {
    memory_.forget(*place);
  }
  publish_memory();
}

void engine::publish_memory() {
  auto const counts = memory_.get_counts();
  std::scoped_lock const lock(mutex_);
  memory_counts_ = counts;
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
  memory_.release(from.held);
  blocked_ = 0;
  publish_memory();
  finish(ended, std::move(from.place.speculation));
}

void engine::finish(std::shared_ptr<job> const& ended, speculation_counts counts) {
  time_point const now = options_.now();
  result outcome = ended->output.outcome();
  outcome.usage.cached_tokens = ended->cached_tokens;
  outcome.speculation = std::move(counts);
  outcome.timing = ended->timing(now);
  bool const answered =
      outcome.finish == finish_reason::stop || outcome.finish == finish_reason::length;
  {
    // Before the observer hears of it: who sees an end may count on the room it leaves.
    std::scoped_lock const lock(mutex_);
    live_.erase(ended->ticket);
    scheduler_.leave(ended->ticket, now, answered);
    ++finishing_;
  }
  struct told {
    engine& self;
    ~told() {
      {
        std::scoped_lock const lock(self.mutex_);
        --self.finishing_;
      }
      self.idle_.notify_all();
    }
  } const at_last{*this};
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
    memory_.release(one.held);
    left.emplace_back(std::exchange(one.work, nullptr), std::move(one.place.speculation));
  }
  publish_memory();
  {
    std::scoped_lock const lock(mutex_);
    std::size_t const ran = left.size();
    for (auto const& [ticket, one] : live_) {
      bool const runs = std::ranges::any_of(std::span(left).first(ran),
                                            [&](auto const& entry) { return entry.first == one; });
      if (!runs) left.emplace_back(one, no_rounds(one->output.wanted()));
    }
  }
  std::ranges::sort(left, {}, [](auto const& entry) { return entry.first->ticket; });
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
