// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qwen38::api {

/// Appends `text` as a JSON string with its quotes. The result is always valid UTF-8: ill-formed
/// bytes become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

/// Appends a JSON string, or null.
void append_json_string(std::string& out, std::optional<std::string> const& text);

void append_json_integer(std::string& out, std::int64_t value);

/// Appends `value` with three decimals; JSON has no NaN and no infinity: they become 0.
void append_json_decimal(std::string& out, double value);

/// Appends the shortest decimal that reads back as `value`; what is not finite becomes -9999, which
/// is how other servers write the logarithm of nothing.
void append_json_number(std::string& out, double value);

}  // namespace qwen38::api
