// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/service.hpp"
#include "support/error.hpp"

namespace qwen38::test {

/// What the scripted engine answers.
struct script {
  std::vector<engine::output_delta> steps;
  engine::result outcome;
  bool endless = false;  ///< repeats the steps until cancelled
  bool silent = false;   ///< never emits anything until cancelled: a long prefill
  std::shared_ptr<std::atomic<bool>> released = nullptr;  ///< once true, `endless` ends
};

inline engine::output_delta content_delta(std::string text) {
  return {.reasoning = {}, .content = std::move(text), .ids = {1}};
}
inline engine::output_delta reasoning_delta(std::string text) {
  return {.reasoning = std::move(text), .content = {}, .ids = {1}};
}

/// An engine without a model: one thread that gives every running request one scripted step at a
/// time, FIFO admission into `lanes`, a bounded queue, and cancellation in queue, "prefill" and
/// "decode".
class scripted_service final : public engine::service {
 public:
  struct options {
    std::size_t lanes = 4;
    std::size_t queue = 512;
    std::int64_t context = 4096;
    bool drafts = true;
    std::chrono::microseconds step{200};
    std::int64_t retry_after_s = 1;
  };
  using author = std::function<script(engine::request const&)>;

  explicit scripted_service(author write) : scripted_service(std::move(write), options{}) {}
  scripted_service(author write, options wanted)
      : write_(std::move(write)), options_(wanted), thread_([this] { run(); }) {}
  ~scripted_service() override {
    {
      std::lock_guard const lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  scripted_service(scripted_service const&) = delete;
  scripted_service& operator=(scripted_service const&) = delete;

  std::uint64_t submit(engine::request wanted, std::shared_ptr<engine::observer> sink) override {
    auto const needed = static_cast<std::int64_t>(wanted.prompt_ids.size()) + wanted.max_tokens;
    if (needed > options_.context) {
      throw error(error_kind::context_length_exceeded,
                  "Prompt and max_tokens need " + std::to_string(needed) +
                      " tokens, the context has " + std::to_string(options_.context) + '.');
    }
    auto written = write_(wanted);
    std::lock_guard const lock(mutex_);
    if (draining_) {
      throw error(error_kind::unavailable,
                  "The server is about to end and takes no requests; try again later.");
    }
    if (jobs_.size() >= options_.lanes + options_.queue) {
      throw error(error_kind::overloaded, "The queue is full; try again later.");
    }
    requests_.push_back(wanted);
    jobs_.push_back({++last_ticket_, std::move(written), std::move(sink)});
    changed_.notify_all();
    return last_ticket_;
  }

  void cancel(std::uint64_t ticket) noexcept override {
    std::lock_guard const lock(mutex_);
    for (auto& work : jobs_) {
      if (work.ticket == ticket) work.cancelled = true;
    }
    changed_.notify_all();
  }

  void drain() noexcept override {
    std::lock_guard const lock(mutex_);
    draining_ = true;
  }

  [[nodiscard]] state get_state() const override {
    std::lock_guard const lock(mutex_);
    auto const running = std::min(jobs_.size(), options_.lanes);
    state now;
    now.running = running;
    now.waiting = jobs_.size() - running;
    now.lanes = options_.lanes;
    now.failed = failed_;
    now.draining = draining_;
    now.retry_after_s = options_.retry_after_s;
    now.turns = turns_;
    return now;
  }
  [[nodiscard]] std::int64_t max_context() const noexcept override { return options_.context; }
  [[nodiscard]] bool supports_drafts() const noexcept override { return options_.drafts; }

  void set_failed() {
    std::lock_guard const lock(mutex_);
    failed_ = true;
  }
  /// Requests submitted so far, in order.
  [[nodiscard]] std::vector<engine::request> requests() const {
    std::lock_guard const lock(mutex_);
    return requests_;
  }
  [[nodiscard]] std::size_t cancelled() const {
    std::lock_guard const lock(mutex_);
    return cancelled_;
  }
  /// Whether running + waiting came to `count` within the time.
  bool wait_until_jobs(std::size_t count, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return jobs_.size() == count; });
  }

 private:
  struct job {
    std::uint64_t ticket;
    script written;
    std::shared_ptr<engine::observer> sink;
    std::size_t next = 0;
    bool cancelled = false;
  };

  // What to report once the lock is released.
  struct event {
    std::shared_ptr<engine::observer> sink;
    engine::output_delta delta;
    bool has_delta = false;
    engine::result outcome;
    bool ends = false;
  };

  /// Moves one job on; true if it is at its end.
  static bool advance(job& work, bool admitted, event& what) {
    what.sink = work.sink;
    if (work.cancelled) {
      what.ends = true;
      what.outcome = work.written.outcome;
      what.outcome.finish = engine::finish_reason::cancelled;
      return true;
    }
    if (!admitted || work.written.silent) return false;
    if (work.next == work.written.steps.size()) {
      bool const released = work.written.released && *work.written.released;
      if (!work.written.endless || released) {
        what.ends = true;
        what.outcome = work.written.outcome;
        return true;
      }
      work.next = 0;
    }
    what.delta = work.written.steps[work.next++];
    what.has_delta = true;
    return false;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      if (jobs_.empty()) {
        changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
        continue;
      }
      std::vector<event> events;
      std::size_t admitted = 0;
      for (auto work = jobs_.begin(); work != jobs_.end();) {
        event what;
        bool const ended = advance(*work, admitted++ < options_.lanes, what);
        if (ended && what.outcome.finish == engine::finish_reason::cancelled) ++cancelled_;
        if (what.has_delta || what.ends) events.push_back(std::move(what));
        work = ended ? jobs_.erase(work) : work + 1;
      }
      ++turns_;
      changed_.notify_all();
      lock.unlock();
      for (auto const& what : events) {
        if (what.has_delta) what.sink->on_output(what.delta);
        if (what.ends) what.sink->on_finish(what.outcome);
      }
      events.clear();
      std::this_thread::sleep_for(options_.step);
      lock.lock();
    }
  }

  author const write_;
  options const options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> jobs_;
  std::vector<engine::request> requests_;
  std::uint64_t last_ticket_ = 0;
  std::size_t cancelled_ = 0;
  std::uint64_t turns_ = 0;
  bool failed_ = false;
  bool draining_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace qwen38::test
