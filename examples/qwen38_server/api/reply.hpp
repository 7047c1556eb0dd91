// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen38::api {

/// A whole reply.
struct reply {
  int status = 200;
  std::string body;
  std::int64_t retry_after_s = 0;                      ///< 0: no such header
  std::string_view content_type = "application/json";  ///< a literal
};

/// Where one reply goes: either send(), or begin_stream(), write() any number of times,
/// end_stream(). Called by one thread at a time, but by any thread; never blocks, never throws. A
/// client that has left makes the calls no-ops.
class reply_sink {
 public:
  virtual ~reply_sink() = default;
  virtual void send(reply whole) noexcept = 0;
  virtual void begin_stream() noexcept = 0;
  /// Whole server-sent event frames, each with its blank line.
  virtual void write(std::string_view frames) noexcept = 0;
  virtual void end_stream() noexcept = 0;
};

}  // namespace qwen38::api
