// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace qwen38::test {

/// A request that must be refused, and how.
struct malformed_request {
  std::string name;
  std::string bytes;  ///< as a client sends them
  int status = 400;
  std::string param;              ///< "": null
  std::string code;               ///< "": null
  std::vector<std::string> says;  ///< words that the sentence holds: what, where, what was expected
  bool closes = false;            ///< the rest of the connection cannot be understood
};

/// For a server whose limits are 16 KiB of header, 100 header fields, malformed_body_bytes of body
/// and depth 64, and whose model has test::byte_vocab_size ids and a context of 4096 tokens.
[[nodiscard]] std::vector<malformed_request> malformed_requests();

inline constexpr std::size_t malformed_body_bytes = std::size_t{1} << 20U;

/// A number's field and the values of number_values() that it takes.
struct numeric_field {
  std::string name;  ///< as the error names it
  bool chat = true;
  std::string member;  ///< with @ for the value
  std::vector<std::string> takes;
};

[[nodiscard]] std::vector<numeric_field> numeric_fields();
/// JSON texts, valid and not, that a number's place may hold.
[[nodiscard]] std::vector<std::string> number_values();
[[nodiscard]] std::string with_value(numeric_field const& field, std::string const& value);

}  // namespace qwen38::test
