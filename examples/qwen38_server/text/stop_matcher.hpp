// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen38::text {

/// Ends a text, which may be cut anywhere, at the first stop string. "First" is the match that is
/// complete first, and of several complete at the same byte the longest; so the outcome does not
/// depend on the cuts. The match and all behind it are dropped. Between pushes only the longest
/// suffix that still may become a match is held back.
class stop_matcher {
 public:
  /// Throws qwen38::error (invalid_argument) for an empty stop string.
  explicit stop_matcher(std::vector<std::string> stops);

  /// What of the text so far is now known to be printed; nothing after a match.
  [[nodiscard]] std::string push(std::string_view text);

  /// Ends the text: the held beginning of a stop string was text after all. Nothing after a match.
  [[nodiscard]] std::string finish();

  /// The stop string that ended the text.
  [[nodiscard]] std::optional<std::string> const& matched() const noexcept { return matched_; }

 private:
  // Knuth-Morris-Pratt, one automaton per stop string.
  struct pattern {
    std::string text;
    std::vector<std::size_t> border;  // border[i]: longest proper border of the first i + 1 bytes
    std::size_t state = 0;            // bytes matched by the end of the text so far
  };

  std::vector<pattern> patterns_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace qwen38::text
