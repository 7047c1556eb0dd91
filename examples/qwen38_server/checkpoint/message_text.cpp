// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/message_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace qwen38::checkpoint {

std::string in_quotes(std::string_view name) {
  constexpr std::size_t max_bytes = 160;
  std::string text(name.substr(0, max_bytes));
  if (name.size() > max_bytes) text += "...";
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string first_few(std::span<std::string const> names, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < (std::min)(count, names.size()); ++i) {
    if (i != 0) text += ", ";
    text += in_quotes(names[i]);
  }
  if (names.size() > count) text += " and " + std::to_string(names.size() - count) + " more";
  return text;
}

}  // namespace qwen38::checkpoint
