// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/diagnostics.hpp"

namespace qwen38::checkpoint {

/// The value if it is an integer of the closed range.
[[nodiscard]] std::optional<std::int64_t> integer_in(nlohmann::json const& value, std::int64_t low,
                                                     std::int64_t high);

/// Reads the fields of one JSON object and reports each that is missing or wrong with its path,
/// e.g. "config.json: text_config.hidden_size is "x", but an integer from 1 to 65536 is expected".
/// A field that is null counts as missing. After a report the reader returns the range's lower end.
class json_fields {
 public:
  /// `path` is the object's own path with a final dot, or empty at the top.
  json_fields(nlohmann::json const& object, std::string label, std::string path,
              diagnostics& report)
      : object_(&object), label_(std::move(label)), path_(std::move(path)), report_(&report) {}

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// The value, or null if it is missing or JSON null.
  [[nodiscard]] nlohmann::json const* find(std::string_view key) const;

  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t low,
                                     std::int64_t high) const;
  [[nodiscard]] std::optional<std::int64_t> optional_integer(std::string_view key, std::int64_t low,
                                                             std::int64_t high) const;
  /// A finite number of the closed range.
  [[nodiscard]] std::optional<double> optional_number(std::string_view key, double low,
                                                      double high) const;
  [[nodiscard]] std::optional<bool> optional_boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> optional_text(std::string_view key) const;
  /// The object of that key, or nothing.
  [[nodiscard]] std::optional<json_fields> optional_object(std::string_view key) const;

  /// "config.json: text_config.hidden_size"
  [[nodiscard]] std::string where(std::string_view key) const;
  void fail(error_kind kind, std::string_view key, std::string const& what) const;
  void fail_value(std::string_view key, nlohmann::json const& value,
                  std::string const& expected) const;
  void fail_missing(std::string_view key, std::string const& expected) const;

 private:
  nlohmann::json const* object_;
  std::string label_;
  std::string path_;
  diagnostics* report_;
};

}  // namespace qwen38::checkpoint
