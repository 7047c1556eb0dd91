// SPDX-License-Identifier: Apache-2.0
#include "text/reasoning_splitter.hpp"

namespace qwen38::text {
namespace {

constexpr std::string_view open_tag = "<think>";
constexpr std::string_view close_tag = "</think>";
constexpr std::string_view call_tag = "<tool_call>";

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

bool reasoning_splitter::begins_tag(std::string_view beginning) const noexcept {
  return close_tag.starts_with(beginning) || call_tag.starts_with(beginning) ||
         (state_ == state::opening && open_tag.starts_with(beginning));
}

void reasoning_splitter::reason(std::string_view text, split_text& out) {
  out.reasoning += blanks_;
  out.reasoning += text;
  blanks_.clear();
  state_ = state::reasoning;
}

void reasoning_splitter::step(char c, split_text& out) {
  if (state_ == state::closed && !is_blank(c)) state_ = state::content;
  if (state_ == state::content) out.content.push_back(c);
  if (!in_reasoning()) return;

  tag_.push_back(c);
  if (begins_tag(tag_)) {
    end_tag(out);
    return;
  }
  tag_.pop_back();
  if (!tag_.empty()) {
    // No tag has '<' but in front, so what is held is text as a whole, and c alone may begin a tag.
    reason(tag_, out);
    tag_.clear();
    step(c, out);
  } else if (!is_blank(c)) {
    reason({&c, 1}, out);
  } else if (state_ == state::reasoning) {
    blanks_.push_back(c);
  }
}

void reasoning_splitter::end_tag(split_text& out) {
  if (tag_ == close_tag) {
    state_ = state::closed;
  } else if (tag_ == call_tag) {
    state_ = state::content;
    out.content += tag_;
  } else if (tag_ != open_tag) {
    return;
  }
  tag_.clear();
  blanks_.clear();
}

split_text reasoning_splitter::push(std::string_view text) {
  split_text out;
  for (char const c : text) step(c, out);
  return out;
}

split_text reasoning_splitter::finish() {
  split_text out;
  if (!tag_.empty()) reason(tag_, out);
  tag_.clear();
  blanks_.clear();
  return out;
}

}  // namespace qwen38::text
