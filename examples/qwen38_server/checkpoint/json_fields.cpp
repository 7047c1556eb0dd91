// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_fields.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/message_text.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;

std::string integer_range(std::int64_t low, std::int64_t high) {
  return "an integer from " + std::to_string(low) + " to " + std::to_string(high);
}

// A value for a message, short even if it is a whole document.
std::string shown(json const& value) {
  if (value.is_string()) return in_quotes(value.get_ref<std::string const&>());
  std::string text = value.dump();
  return value.is_structured() && text.size() > 60 ? std::string("an ") + value.type_name() : text;
}

std::string shown(double value) {
  return json(value).dump();
}

}  // namespace

std::optional<std::int64_t> integer_in(json const& value, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  // Unsigned values above the signed range would turn negative.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  auto const integer = value.get<std::int64_t>();
  if (integer < low || integer > high) return std::nullopt;
  return integer;
}

json const* json_fields::find(std::string_view key) const {
  auto const found = object_->find(std::string(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> json_fields::optional_integer(std::string_view key, std::int64_t low,
                                                          std::int64_t high) const {
  json const* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (std::optional<std::int64_t> const integer = integer_in(*value, low, high)) return integer;
  fail_value(key, *value, integer_range(low, high));
  return low;
}

std::int64_t json_fields::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  std::optional<std::int64_t> const value = optional_integer(key, low, high);
  if (!value) fail_missing(key, integer_range(low, high));
  return value.value_or(low);
}

std::optional<double> json_fields::optional_number(std::string_view key, double low,
                                                   double high) const {
  json const* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    double const number = value->get<double>();
    if (number >= low && number <= high) return number;
  }
  fail_value(key, *value, "a number from " + shown(low) + " to " + shown(high));
  return low;
}

std::optional<bool> json_fields::optional_boolean(std::string_view key) const {
  json const* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail_value(key, *value, "true or false");
  return std::nullopt;
}

std::optional<std::string> json_fields::optional_text(std::string_view key) const {
  json const* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail_value(key, *value, "a string");
  return std::nullopt;
}

std::optional<json_fields> json_fields::optional_object(std::string_view key) const {
  json const* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) {
    return json_fields(*value, label_, path_ + std::string(key) + ".", *report_);
  }
  fail_value(key, *value, "an object");
  return std::nullopt;
}

std::string json_fields::where(std::string_view key) const {
  return label_ + ": " + path_ + std::string(key);
}

void json_fields::fail(error_kind kind, std::string_view key, std::string const& what) const {
  report_->fail(kind, where(key) + " " + what);
}

void json_fields::fail_missing(std::string_view key, std::string const& expected) const {
  fail(error_kind::corrupt_data, key, "is missing, but " + expected + " is expected");
}

void json_fields::fail_value(std::string_view key, json const& value,
                             std::string const& expected) const {
  fail(error_kind::corrupt_data, key, "is " + shown(value) + ", but " + expected + " is expected");
}

}  // namespace qwen38::checkpoint
