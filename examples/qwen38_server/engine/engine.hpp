// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/lane.hpp"
#include "engine/request.hpp"
#include "engine/scheduler.hpp"
#include "engine/sequence_memory.hpp"
#include "engine/service.hpp"
#include "engine/speculation.hpp"
#include "model/causal_lm.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::engine {

struct engine_options {
  std::size_t queue_limit = 64;  ///< requests that may wait while all lanes are taken
  /// Longest wait for a lane; 0: none. Beyond: finish_reason::queue_timeout.
  std::chrono::milliseconds queue_timeout{0};
  /// Longest time from submit() to the end; 0: none. Beyond: finish_reason::deadline.
  std::chrono::milliseconds request_timeout{0};
  /// The time, for deadlines and measurements; may be called from any thread.
  std::function<scheduler::time_point()> now = std::chrono::steady_clock::now;
  /// Of the model's rounds, which requests that choose their depth need; none: they are refused.
  std::optional<model::round_costs> costs = {};
  /// Told, on the engine's thread, what each failure of the model or of the engine says: for the
  /// log. Must not throw.
  std::function<void(std::string const&)> on_fault = {};
};

/// Runs requests on a model's lanes, first come first served. A request enters a lane when the
/// pages for its prompt and max_tokens can be reserved, so nothing is ever preempted. Each turn of
/// its loop: prefill as the scheduler allots it, then all others do one round together; so a long
/// prompt holds up running answers by a chunk at a time. Where the model has places for snapshots,
/// prompts go on from the longest beginning whose state is still there; that changes no token of an
/// answer.
class engine final : public service {
 public:
  /// Model and tokenizer must outlive the engine. Throws qwen38::error (internal) for limits that
  /// contradict each other or the tokenizer.
  engine(model::causal_lm& model, text::tokenizer const& tokenizer, engine_options options = {});
  /// Cancels what still runs or waits.
  ~engine() override;
  engine(engine const&) = delete;
  engine& operator=(engine const&) = delete;

  /// Runs the loop on a thread of its own, which sleeps while there is nothing to do. At most once.
  void start();

  /// One turn of the loop on the caller's thread, for an engine that was not started. false: there
  /// is nothing left to do.
  bool step();

  std::uint64_t submit(request wanted, std::shared_ptr<observer> sink) override;
  void cancel(std::uint64_t ticket) noexcept override;
  void drain() noexcept override;
  /// Waits until nothing runs or waits and every observer has been told; false if that takes
  /// longer. After drain() it stays so.
  bool wait_idle(std::chrono::milliseconds longest);
  [[nodiscard]] state get_state() const override;
  [[nodiscard]] std::int64_t max_context() const noexcept override;
  [[nodiscard]] bool supports_drafts() const noexcept override;

 private:
  struct job;
  struct slot {
    lane place;
    std::shared_ptr<job> work;  // null: free
    reservation held;
  };

  void check(request const& wanted) const;
  void run();
  void turn();
  void end_early();
  void end_one(std::uint64_t ticket, finish_reason reason);
  void admit();
  [[nodiscard]] slot* slot_of(std::uint64_t ticket);
  [[nodiscard]] slot* next_chunk();
  void prefill(slot& one);
  void keep_state(slot& one, std::optional<std::int32_t> place);
  void publish_memory();
  void report(slot& from);
  void finish(std::shared_ptr<job> const& ended, speculation_counts counts);
  void die(std::string const& cause) noexcept;
  void end_all(finish_reason reason, std::string const& message) noexcept;

  model::causal_lm& model_;
  text::tokenizer const& tokenizer_;
  engine_options const options_;

  // The loop's own.
  speculative_loop loop_;
  sequence_memory memory_;
  std::vector<slot> slots_;
  std::vector<lane*> running_;
  std::uint64_t blocked_ = 0;  // first in the queue, for whom there is no room yet; 0: not known

  mutable std::mutex mutex_;         // never held while calling the model or an observer
  std::condition_variable changed_;  // something to do
  std::condition_variable idle_;     // maybe nothing left to do
  std::unordered_map<std::uint64_t, std::shared_ptr<job>> live_;  // waiting or running
  scheduler scheduler_;
  sequence_memory::counts memory_counts_;
  std::uint64_t turns_ = 0;  // that have ended
  std::uint64_t last_ticket_ = 0;
  std::size_t finishing_ = 0;  // gone from live_, but the observer is not told yet
  bool stopping_ = false;
  bool draining_ = false;
  bool failed_ = false;

  std::thread thread_;
};

}  // namespace qwen38::engine
