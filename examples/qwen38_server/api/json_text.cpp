// SPDX-License-Identifier: Apache-2.0
#include "api/json_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/json_escape.hpp"
#include "text/utf8.hpp"

namespace qwen38::api {

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  bool const ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) {
    text::append_json_escaped(out, text);
  } else {
    text::append_json_escaped(out, text::repair_utf8(text));
  }
  out += '"';
}

void append_json_string(std::string& out, std::optional<std::string> const& text) {
  if (text) {
    append_json_string(out, std::string_view(*text));
  } else {
    out += "null";
  }
}

void append_json_integer(std::string& out, std::int64_t value) {
  std::array<char, 24> digits{};
  auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

void append_json_decimal(std::string& out, double value) {
  std::array<char, 400> digits{};  // the largest double has 309 digits before the point
  if (!std::isfinite(value)) value = 0;
  auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::fixed, 3)
                       .ptr;
  out.append(digits.data(), end);
}

void append_json_number(std::string& out, double value) {
  std::array<char, 32> digits{};
  double const finite = std::isfinite(value) ? value : -9999.0;
  auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), finite).ptr;
  out.append(digits.data(), end);
}

}  // namespace qwen38::api
