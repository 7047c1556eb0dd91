// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/error.hpp"
#include "text/tokenizer.hpp"

// Paths are relative to this folder, where ctest runs the tests.
namespace qwen38::text::testing {

inline std::string read_file(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be opened");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline constexpr char const* tiny_path = "fixtures/tiny_tokenizer.json";

inline tokenizer const& tiny() {
  static tokenizer const loaded = tokenizer::from_file(tiny_path);
  return loaded;
}

/// The added tokens of the tiny tokenizer; they have its highest ids, in this order.
inline constexpr std::array<std::string_view, 11> tiny_added = {
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",      "<|im_start|>user",
    "<tool_call>",   "</tool_call>", "<tool_response>", "</tool_response>",
    "<think>",       "</think>",     "<|\u00e9|>"};

inline bool is_added(std::int32_t id) {
  return id >= tiny().vocab_size() - static_cast<std::int32_t>(tiny_added.size());
}

/// The message of the qwen38::error that `act` throws; "" if it throws none.
template <class Action>
std::string error_message(Action act) {
  try {
    act();
  } catch (error const& e) {
    return e.what();
  }
  return "";
}

}  // namespace qwen38::text::testing
