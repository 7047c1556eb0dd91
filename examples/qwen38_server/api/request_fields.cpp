// SPDX-License-Identifier: Apache-2.0
#include "api/request_fields.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/errors.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

std::string print(double value) {
  std::array<char, 32> digits{};  // shortest round-trip form: at most 24 characters
  auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

/// A number as it stands, else the name of the type: what a client wrote is never echoed at length.
std::string describe(json const& value) {
  if (value.is_number_float()) return print(value.get<double>());
  if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return std::string(value.is_null()                         ? ""
                     : value.is_object() || value.is_array() ? "an "
                                                             : "a ") +
         value.type_name();
}

/// A float that stands for an integer exactly, e.g. 3.0.
std::optional<std::int64_t> exact_integer(double value) {
  constexpr double exact =
      9007199254740992.0;  // 2^53: beyond, neighbours are no longer integers apart
  if (!(std::fabs(value) <= exact) || value != std::trunc(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

bool is_word(std::string_view text) {
  constexpr std::size_t most = 40;
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

std::string quoted_word(std::string_view word) {
  return is_word(word) ? '`' + std::string(word) + '`' : "something else";
}

std::optional<std::int64_t> as_integer(json const& value, std::int64_t low, std::int64_t high) {
  std::optional<std::int64_t> integer;
  if (value.is_number_unsigned()) {
    auto const wide = value.get<std::uint64_t>();
    if (wide <= static_cast<std::uint64_t>(INT64_MAX)) integer = static_cast<std::int64_t>(wide);
  } else if (value.is_number_integer()) {
    integer = value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    integer = exact_integer(value.get<double>());
  }
  if (!integer || *integer < low || *integer > high) return std::nullopt;
  return integer;
}

void fail_field(std::string const& path, std::string_view expected, json const& value) {
  throw field_error(
      error_kind::invalid_argument, path,
      path + ": expected " + std::string(expected) + ", got " + describe(value) + '.');
}

request_fields::request_fields(json const& object, std::string path)
    : object_(&object), path_(std::move(path)) {
  if (object.is_object()) return;
  if (path_.empty()) {
    throw error(error_kind::invalid_argument,
                "The request body must be a JSON object, got " + describe(object) + '.');
  }
  fail_field(path_, "an object", object);
}

json const* request_fields::find(std::string_view name) const {
  auto const member = object_->find(name);
  return member == object_->end() || member->is_null() ? nullptr : &*member;
}

std::optional<bool> request_fields::boolean(std::string_view name) const {
  auto const* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail_field(path_of(name), "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> request_fields::string(std::string_view name) const {
  auto const* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail_field(path_of(name), "a string", *value);
  return value->get<std::string>();
}

std::optional<std::int64_t> request_fields::integer(std::string_view name, std::int64_t low,
                                                    std::int64_t high) const {
  auto const* const value = find(name);
  if (value == nullptr) return std::nullopt;
  auto const integer = as_integer(*value, low, high);
  if (!integer) {
    fail_field(path_of(name),
               "an integer from " + std::to_string(low) + " to " + std::to_string(high), *value);
  }
  return integer;
}

std::optional<double> request_fields::number(std::string_view name, double low, double high) const {
  auto const* const value = find(name);
  if (value == nullptr) return std::nullopt;
  auto const number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    fail_field(path_of(name), "a number from " + print(low) + " to " + print(high), *value);
  }
  return number;
}

std::optional<std::uint64_t> request_fields::integer_bits(std::string_view name) const {
  auto const* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  auto const integer = as_integer(*value, INT64_MIN, INT64_MAX);
  if (!integer) fail_field(path_of(name), "a 64-bit integer", *value);
  return static_cast<std::uint64_t>(*integer);
}

json const* request_fields::array(std::string_view name, std::size_t most) const {
  auto const* const value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) fail_field(path_of(name), "an array", *value);
  if (value->size() > most) {
    throw field_error(error_kind::invalid_argument, path_of(name),
                      path_of(name) + ": expected at most " + std::to_string(most) +
                          " elements, got " + std::to_string(value->size()) + '.');
  }
  return value;
}

json const* request_fields::object(std::string_view name) const {
  auto const* const value = find(name);
  if (value != nullptr && !value->is_object()) fail_field(path_of(name), "an object", *value);
  return value;
}

std::string request_fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + '.' + std::string(name);
}

void request_fields::refuse(std::string_view name, std::string const& sentence) const {
  throw field_error(error_kind::unsupported, path_of(name), sentence);
}

void request_fields::refuse_others(std::initializer_list<std::string_view> served) const {
  for (auto const& [name, value] : object_->items()) {
    if (value.is_null() || value == json(false)) continue;
    if (std::find(served.begin(), served.end(), name) != served.end()) continue;
    std::string names;
    for (auto const one : served) names += (names.empty() ? "" : ", ") + std::string(one);
    auto const where = is_word(name) ? path_of(name) : path_;
    throw field_error(error_kind::unsupported, where,
                      where + ": expected no members of " + path_ + " but " + names + '.');
  }
}

}  // namespace qwen38::api
