// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "api/reply.hpp"
#include "support/error.hpp"

namespace qwen38::api {

/// A request that is wrong in one field. `param` is its path, e.g. `messages[2].content[0].type`.
class field_error : public error {
 public:
  field_error(error_kind kind, std::string param, std::string const& message)
      : error(kind, message), param_(std::move(param)) {}
  [[nodiscard]] std::string const& param() const noexcept { return param_; }

 private:
  std::string param_;
};

/// The fields of the wire's error object and the status it goes with.
struct error_reply {
  int status = 500;
  std::string message;
  std::string type = "server_error";
  std::optional<std::string> param;
  std::optional<std::string> code;
  std::int64_t retry_after_s = 1;  ///< told with 429 and 503
};

/// invalid_argument, unsupported, context_length_exceeded: 400; not_found: 404; overloaded: 429;
/// unavailable: 503; the rest and foreign exceptions: 500, with a fixed sentence, because what they
/// say is for the operator and not for a client.
[[nodiscard]] error_reply describe_error(std::exception const& cause);

/// `{"error":{"message":..,"type":..,"param":..,"code":..}}`
[[nodiscard]] std::string error_body(error_reply const& what);

/// The same as a whole reply: newline at the end; 429 and 503 say when to come back.
[[nodiscard]] reply to_reply(error_reply const& what);

}  // namespace qwen38::api
