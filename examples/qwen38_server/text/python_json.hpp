// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace qwen38::text {

/// Levels of arrays and objects that python_json() prints.
inline constexpr int max_json_depth = 256;

/// The text that Python's json.dumps(value, ensure_ascii=False) gives: ", " and ": " between parts,
/// keys in the order of `value`, floats as repr() prints them. Throws qwen38::error
/// (invalid_argument) beyond max_json_depth; `name` begins its sentence.
[[nodiscard]] std::string python_json(nlohmann::ordered_json const& value, std::string const& name);

}  // namespace qwen38::text
