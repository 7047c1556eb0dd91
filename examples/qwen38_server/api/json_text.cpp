// SPDX-License-Identifier: Apache-2.0
#include "api/json_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/utf8.hpp"

namespace qwen38::api {
namespace {

void append_escaped(std::string& out, std::string_view valid) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::size_t clean = 0;  // start of the run that needs no escape
  for (std::size_t i = 0; i < valid.size(); ++i) {
    auto const byte = static_cast<unsigned char>(valid[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(valid, clean, i - clean);
    clean = i + 1;
    switch (byte) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        out += "\\u00";
        out += hex[byte >> 4U];
        out += hex[byte & 15U];
    }
  }
  out.append(valid, clean);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  bool const ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) {
    append_escaped(out, text);
  } else {
    append_escaped(out, text::repair_utf8(text));
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

}  // namespace qwen38::api
