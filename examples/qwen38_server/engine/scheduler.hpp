// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/request.hpp"

namespace qwen38::engine {

/// Whose turn it is: the queue in front of the lanes, deadlines, which prompt does the next chunk,
/// and when a refused client should come back. Knows requests by their tickets and is told the
/// time. Not thread-safe.
class scheduler {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  struct options {
    std::size_t lanes = 1;
    std::size_t queue_limit = 64;
    std::chrono::milliseconds queue_timeout{0};    ///< 0: none
    std::chrono::milliseconds request_timeout{0};  ///< 0: none
  };
  explicit scheduler(options const& wanted) : options_(wanted) {}

  // The queue: first come, first served, whatever a request needs.
  [[nodiscard]] bool full() const noexcept {
    return waiting() + running() >= options_.lanes + options_.queue_limit;
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return queue_.size(); }
  [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }
  void enqueue(std::uint64_t ticket, time_point now);
  /// The ticket that is first in the queue, while a lane is free.
  [[nodiscard]] std::optional<std::uint64_t> next() const;
  /// The first in the queue begins to prefill.
  void start(time_point now);
  /// A request is gone, from the queue or from its lane. `answered`: its time counts as typical.
  void leave(std::uint64_t ticket, time_point now, bool answered);

  struct late {
    std::uint64_t ticket;
    finish_reason reason;  ///< queue_timeout or deadline
  };
  /// Requests whose time is up; all of them must leave().
  [[nodiscard]] std::vector<late> overdue(time_point now) const;

  // Prefill. While any lane decodes, a turn holds one chunk, of the request that came first; while
  // none does, each prefilling request does one, until one of them has its first token. So a
  // running answer waits for one chunk at most between two rounds.
  void begin_turn() noexcept;
  /// The request that does a chunk now; none: the turn has no chunk left.
  [[nodiscard]] std::optional<std::uint64_t> next_chunk();
  /// The prompt is done.
  void prefilled(std::uint64_t ticket);

  /// Seconds after which a refused client finds room, more or less: the typical time in a lane,
  /// for all in the queue and the one refused, over the lanes; 1 to 60.
  [[nodiscard]] std::int64_t retry_after_s() const noexcept;

 private:
  struct entry {
    std::uint64_t ticket = 0;
    time_point submitted;
    time_point started = {};
    bool prefills = true;
    std::int64_t latest_turn = 0;  // in which it did a chunk
  };

  options const options_;
  std::deque<entry> queue_;
  std::vector<entry> running_;  // in the order of admission
  std::int64_t turn_ = 0;
  std::int64_t chunks_ = 0;  // of this turn
  std::optional<double> typical_s_;
};

}  // namespace qwen38::engine
