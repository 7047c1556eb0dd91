// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace qwen38::api {

/// What a JSON text may hold. Depth bounds recursion in whatever walks the value; nodes bound
/// memory (about 50 bytes each); members bound the quadratic cost of ordered objects.
struct json_limits {
  std::size_t depth = 64;
  std::size_t nodes = std::size_t{1} << 20U;
  std::size_t members = 1024;  ///< per object
};

/// Parses JSON in UTF-8; objects keep the order of their members. Throws qwen38::error
/// (invalid_argument) that begins with `what` ("The request body"): not JSON, ill-formed UTF-8, a
/// number beyond double, a member given twice, or a limit exceeded. The text itself is never
/// quoted.
[[nodiscard]] nlohmann::ordered_json parse_json(std::string_view text, std::string_view what,
                                                json_limits const& limits = {});

}  // namespace qwen38::api
