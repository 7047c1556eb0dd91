// SPDX-License-Identifier: Apache-2.0
#include "text/stop_matcher.hpp"

#include <algorithm>
#include <utility>

#include "support/error.hpp"

namespace qwen38::text {
namespace {

/// Bytes of `text` that match after one more byte, from `state` < text.size() matched before.
std::size_t advance(std::string const& text, std::vector<std::size_t> const& border,
                    std::size_t state, char c) {
  while (state > 0 && text[state] != c) state = border[state - 1];
  return text[state] == c ? state + 1 : 0;
}

}  // namespace

stop_matcher::stop_matcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) throw error(error_kind::invalid_argument, "a stop string must not be empty");
    std::vector<std::size_t> border{0};
    for (std::size_t i = 1; i < stop.size(); ++i) {
      border.push_back(advance(stop, border, border.back(), stop[i]));
    }
    patterns_.push_back({std::move(stop), std::move(border)});
  }
}

std::string stop_matcher::push(std::string_view text) {
  if (matched_) return {};
  for (char const c : text) {
    held_.push_back(c);
    for (pattern& p : patterns_) {
      p.state = advance(p.text, p.border, p.state, c);
      bool const complete = p.state == p.text.size();
      if (complete && (!matched_ || p.text.size() > matched_->size())) matched_ = p.text;
    }
    if (matched_) {
      held_.resize(held_.size() - matched_->size());
      return std::exchange(held_, {});
    }
  }
  std::size_t longest = 0;
  for (pattern const& p : patterns_) longest = std::max(longest, p.state);
  std::string out = held_.substr(0, held_.size() - longest);
  held_.erase(0, out.size());
  return out;
}

std::string stop_matcher::finish() {
  return std::exchange(held_, {});
}

}  // namespace qwen38::text
