// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

// What the streaming parts must give, written for whole texts.
namespace qwen38::text::testing {

struct channels {
  std::string reasoning;
  std::string content;
  bool operator==(channels const&) const = default;
};

inline std::string trim_blanks(std::string const& text) {
  auto const begin = text.find_first_not_of(" \t\n\v\f\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\n\v\f\r") - begin + 1);
}

inline channels split_at_once(std::string text, bool starts_in_reasoning) {
  if (!starts_in_reasoning) return {"", text};
  for (;;) {
    text.erase(0, std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
    if (text.rfind("<think>", 0) != 0) break;
    text.erase(0, 7);
  }
  auto const close = text.find("</think>");
  auto const call = text.find("<tool_call>");
  if (close == std::string::npos && call == std::string::npos) return {trim_blanks(text), ""};
  if (call < close) return {trim_blanks(text.substr(0, call)), text.substr(call)};
  std::string content = text.substr(close + 8);
  content.erase(0, std::min(content.find_first_not_of(" \t\n\v\f\r"), content.size()));
  return {trim_blanks(text.substr(0, close)), content};
}

struct cut_text {
  std::string text;
  std::string stop;  // "" if none matched
};

inline cut_text stop_at_once(std::string const& text, std::vector<std::string> const& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::string const so_far = text.substr(0, end);
    std::string best;
    for (std::string const& stop : stops) {
      if (so_far.ends_with(stop) && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return {so_far.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

/// Calls act(pieces) for the text whole, cut at every byte, and cut at every pair of bytes.
template <class Action>
void for_each_cut(std::string const& text, Action act) {
  std::string_view const whole = text;
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      act(std::vector<std::string_view>{whole.substr(0, first), whole.substr(first, second - first),
                                        whole.substr(second)});
    }
  }
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(whole.substr(i, 1));
  act(bytes);
}

}  // namespace qwen38::text::testing
