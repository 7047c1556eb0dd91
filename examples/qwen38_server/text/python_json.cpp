// SPDX-License-Identifier: Apache-2.0
#include "text/python_json.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "support/error.hpp"
#include "text/json_escape.hpp"

namespace qwen38::text {
namespace {

void append_string(std::string_view text, std::string& out) {
  out.push_back('"');
  append_json_escaped(out, text);
  out.push_back('"');
}

/// repr(): the shortest digits that read back as `value`; with an exponent below 1e-4 and from 1e16
/// on.
void append_float(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "NaN";
    return;
  }
  if (std::signbit(value)) out.push_back('-');
  if (std::isinf(value)) {
    out += "Infinity";
    return;
  }
  // "d[.ddd]e+-xx", two exponent digits at least, as Python writes it too.
  std::array<char, 32> buffer{};
  auto const end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(value),
                                 std::chars_format::scientific)
                       .ptr;
  std::string_view const scientific(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  auto const mark = scientific.find('e');
  int exponent = 0;
  char const* const digits_begin = scientific.data() + mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(digits_begin, end, exponent);
  if (exponent < -4 || exponent >= 16) {
    out += scientific;
    return;
  }
  std::string digits(scientific.substr(0, 1));
  if (mark > 1) digits += scientific.substr(2, mark - 2);
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    out += digits;
    return;
  }
  auto const whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  out += digits.substr(0, whole);
  out.push_back('.');
  out += digits.size() > whole ? digits.substr(whole) : "0";
}

void append(nlohmann::ordered_json const& value, std::string const& name, int depth,
            std::string& out) {
  if (depth > max_json_depth) {
    throw error(error_kind::invalid_argument,
                name + " is nested more than " + std::to_string(max_json_depth) + " levels deep");
  }
  switch (value.type()) {
    case nlohmann::ordered_json::value_t::object: {
      out.push_back('{');
      bool first = true;
      for (auto const& [key, member] : value.items()) {
        if (!first) out += ", ";
        first = false;
        append_string(key, out);
        out += ": ";
        append(member, name, depth + 1, out);
      }
      out.push_back('}');
      break;
    }
    case nlohmann::ordered_json::value_t::array: {
      out.push_back('[');
      bool first = true;
      for (auto const& element : value) {
        if (!first) out += ", ";
        first = false;
        append(element, name, depth + 1, out);
      }
      out.push_back(']');
      break;
    }
    case nlohmann::ordered_json::value_t::string:
      append_string(value.get_ref<std::string const&>(), out);
      break;
    case nlohmann::ordered_json::value_t::number_float:
      append_float(value.get<double>(), out);
      break;
    default: out += value.dump();  // null, true, false and integers are the same in both
  }
}

}  // namespace

std::string python_json(nlohmann::ordered_json const& value, std::string const& name) {
  std::string out;
  append(value, name, 0, out);
  return out;
}

}  // namespace qwen38::text
