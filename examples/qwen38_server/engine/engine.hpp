// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/lane.hpp"
#include "engine/request.hpp"
#include "engine/service.hpp"
#include "engine/speculation.hpp"
#include "model/causal_lm.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::engine {

struct engine_options {
  std::size_t queue_limit = 64;  ///< requests that may wait while all lanes are taken
  /// Told, on the engine's thread, what each failure of the model or of the engine says: for the
  /// log. Must not throw.
  std::function<void(std::string const&)> on_fault;
};

/// Runs requests on a model's lanes, first come first served. Each turn of its loop: every
/// prefilling lane does one chunk, then all others do one round together; so a long prompt holds up
/// running answers by a chunk at a time.
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
  [[nodiscard]] state get_state() const override;
  [[nodiscard]] std::int64_t max_context() const noexcept override;
  [[nodiscard]] bool supports_drafts() const noexcept override;

 private:
  struct job;
  struct slot {
    lane place;
    std::shared_ptr<job> work;  // null: free
  };

  void check(request const& wanted) const;
  void run();
  void turn();
  void end_cancelled();
  void admit();
  void report(slot& from);
  void finish(std::shared_ptr<job> const& ended, speculation_counts counts);
  void die(std::string const& cause) noexcept;
  void end_all(finish_reason reason, std::string const& message) noexcept;

  model::causal_lm& model_;
  text::tokenizer const& tokenizer_;
  engine_options const options_;

  // The loop's own.
  speculative_loop loop_;
  std::vector<slot> slots_;
  std::vector<lane*> running_;

  mutable std::mutex mutex_;  // never held while calling the model or an observer
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, std::shared_ptr<job>> live_;  // waiting or running
  std::deque<std::shared_ptr<job>> queue_;
  std::uint64_t last_ticket_ = 0;
  bool stopping_ = false;
  bool draining_ = false;
  bool failed_ = false;

  std::thread thread_;
};

}  // namespace qwen38::engine
