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
    bool failed = false;  ///< the engine's thread has ended by an error
  };

  virtual ~service() = default;
  /// Queues a request, first come first served, and returns a ticket for cancel(). Throws
  /// qwen38::error: context_length_exceeded, invalid_argument (a field out of range, by name) or
  /// overloaded (queue full). After a throw the observer is never called.
  virtual std::uint64_t submit(request wanted, std::shared_ptr<observer> sink) = 0;
  /// Ends a request wherever it is: in the queue, in prefill or in decode. Its observer gets
  /// finish_reason::cancelled unless it had finished. Unknown tickets are ignored.
  virtual void cancel(std::uint64_t ticket) noexcept = 0;
  [[nodiscard]] virtual state get_state() const = 0;
  [[nodiscard]] virtual std::int64_t max_context() const noexcept = 0;
  [[nodiscard]] virtual bool supports_drafts() const noexcept = 0;
};

}  // namespace qwen38::engine
