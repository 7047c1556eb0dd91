// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace qwen38::text {

/// Text that became final, in its two channels.
struct split_text {
  std::string reasoning;
  std::string content;
};

/// Separates a model's reasoning from its answer in a text that may be cut anywhere; the joined
/// deltas do not depend on the cuts.
///
/// Starting inside reasoning (the prompt ended with an open <think>): everything is reasoning up to
/// the first
/// </think>, which is dropped, or <tool_call>, which begins the content; without either all of it
/// is. <think> repeated at the very start is dropped. ASCII blanks around reasoning and those after
/// </think> are dropped. Starting outside, all text is content, untouched.
class reasoning_splitter {
 public:
  explicit reasoning_splitter(bool starts_in_reasoning)
      : state_(starts_in_reasoning ? state::opening : state::content) {}

  [[nodiscard]] split_text push(std::string_view text);

  /// Ends the text: a held beginning of a tag is reasoning after all.
  [[nodiscard]] split_text finish();

  /// What comes next belongs to the reasoning, as far as can be known.
  [[nodiscard]] bool in_reasoning() const noexcept {
    return state_ == state::opening || state_ == state::reasoning;
  }

 private:
  enum class state {
    opening,    // nothing but blanks so far: <think> may still be repeated
    reasoning,  // inside, after the first visible character
    closed,     // </think> was seen: blanks are dropped
    content,
  };

  void step(char c, split_text& out);
  void end_tag(split_text& out);
  [[nodiscard]] bool begins_tag(std::string_view beginning) const noexcept;
  void reason(std::string_view text, split_text& out);

  state state_;
  std::string blanks_;  // seen, but to be dropped if reasoning ends here
  std::string tag_;     // a proper beginning of a tag
};

}  // namespace qwen38::text
