// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/request.hpp"

namespace qwen38::engine {

/// What a front end sees of the engine. Thread-safe.
class service {
 public:
  struct state {
    std::size_t running = 0;
    std::size_t waiting = 0;
    std::size_t lanes = 0;
    bool failed = false;    ///< the engine's thread has ended by an error
    bool draining = false;  ///< drain() was called: what runs or waits goes on, nothing is added
    /// When to come back after a refusal: an estimate from the work in hand, at least 1.
    std::int64_t retry_after_s = 1;
    std::size_t kv_pages = 0;            ///< of 64 tokens, over all layers
    std::size_t kv_pages_reserved = 0;   ///< by requests that run
    std::size_t kv_pages_cached = 0;     ///< held by the prefix cache alone
    std::size_t snapshots = 0;           ///< places for recurrent state on chunk borders
    std::size_t snapshots_used = 0;      ///< that hold a state
    std::size_t snapshots_reserved = 0;  ///< about to: none between turns
    /// Turns of the loop that have ended: grows as long as requests run or wait, unless the engine
    /// is stuck. Never shrinks.
    std::uint64_t turns = 0;
  };

  virtual ~service() = default;
  /// Queues a request, first come first served, and returns a ticket for cancel(). Throws
  /// qwen38::error: context_length_exceeded, invalid_argument (a field out of range, by name),
  /// overloaded (queue full) or unavailable (draining). After a throw the observer is never called.
  virtual std::uint64_t submit(request wanted, std::shared_ptr<observer> sink) = 0;
  /// Ends a request wherever it is: in the queue, in prefill or in decode. Its observer gets
  /// finish_reason::cancelled unless it had finished. Unknown tickets are ignored.
  virtual void cancel(std::uint64_t ticket) noexcept = 0;
  /// Takes no further requests; those that run or wait go on. May be called more than once.
  virtual void drain() noexcept = 0;
  [[nodiscard]] virtual state get_state() const = 0;
  [[nodiscard]] virtual std::int64_t max_context() const noexcept = 0;
  [[nodiscard]] virtual bool supports_drafts() const noexcept = 0;
};

}  // namespace qwen38::engine
