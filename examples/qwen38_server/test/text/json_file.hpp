// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "support.hpp"

namespace qwen38::text::testing {

inline nlohmann::ordered_json read_json(std::string const& path) {
  return nlohmann::ordered_json::parse(read_file(path));
}

}  // namespace qwen38::text::testing
