// SPDX-License-Identifier: Apache-2.0
// Fuzz target over answers with calls: {"text": ..}, or any bytes. Links with libFuzzer, or with
// fuzz_corpus_replay.cpp.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tool_support.hpp"

namespace {

using namespace qwen38::text;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(std::string const& text, bool complete) {
  auto const& tools = testing::known_tools();
  auto const whole = testing::parse_pieces(tools, std::vector<std::string_view>{text}, complete);
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i)
    bytes.push_back(std::string_view(text).substr(i, 1));
  require(testing::parse_pieces(tools, bytes, complete) == whole);
  int calls = 0;
  std::vector<std::string> arguments;
  for (auto const& event : whole) {
    require(!event.text.empty());
    if (event.what == tool_event::kind::call) {
      require(event.index == calls++);
      arguments.emplace_back();
    } else if (event.what == tool_event::kind::arguments) {
      require(event.index == calls - 1);
      arguments.back() += event.text;
    }
  }
  if (!complete && !arguments.empty()) arguments.pop_back();
  // Bytes that are no UTF-8 never come this far in the server, and are no JSON here.
  for (auto const& one : arguments) {
    auto const value = nlohmann::json::parse(
        nlohmann::json(one).dump(-1, ' ', true, nlohmann::json::error_handler_t::ignore));
    auto const object = nlohmann::json::parse(value.get<std::string>(), nullptr, false);
    require(object.is_object());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  auto const wire = nlohmann::json::parse(data, data + size, nullptr, false);
  std::string text(reinterpret_cast<char const*>(data), size);
  if (wire.is_object() && wire.contains("text") && wire["text"].is_string()) text = wire["text"];
  check(text, true);
  check(text, false);
  return 0;
}
