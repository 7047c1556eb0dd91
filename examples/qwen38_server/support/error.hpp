// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace qwen38 {

/// What kind of failure an error is; the front ends map it to an HTTP status or an exit code.
enum class error_kind {
  invalid_argument,         ///< the caller's request or flag is wrong (400, exit 2)
  context_length_exceeded,  ///< prompt plus answer do not fit (400)
  not_found,                ///< a file, model or route does not exist (404, exit 2)
  unsupported,              ///< understood, but not served by this build (400, exit 2)
  corrupt_data,             ///< a file's contents contradict its format or each other (exit 2)
  io,                       ///< the operating system refused (exit 2)
  overloaded,               ///< no room in the queue now (429)
  unavailable,              ///< takes no requests: it is about to end (503)
  internal,                 ///< a broken promise of our own (500, exit 1)
};

/// The server's only exception type. The message is one sentence for a user: what, where, and what
/// was expected.
class error : public std::runtime_error {
 public:
  error(error_kind kind, std::string const& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] error_kind kind() const noexcept { return kind_; }

 private:
  error_kind kind_;
};

}  // namespace qwen38
