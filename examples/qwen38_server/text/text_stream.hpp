// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/detokenizer.hpp"
#include "text/reasoning_splitter.hpp"
#include "text/stop_matcher.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::text {

struct text_delta {
  std::string reasoning;
  std::string content;
  bool stopped = false;  ///< a stop string has ended the text, now or before: generate no more
};

/// From one request's ids to what its client reads: detokenizer, then stop strings, then the
/// reasoning split. Stop ids are the caller's: they are not pushed.
class text_stream {
 public:
  /// `source` must outlive this object. Throws like stop_matcher's constructor.
  text_stream(tokenizer const& source, std::vector<std::string> stops, bool starts_in_reasoning)
      : detokenizer_(source), stops_(std::move(stops)), splitter_(starts_in_reasoning) {}

  /// After a stop string ids are ignored. Throws like tokenizer::token_bytes().
  [[nodiscard]] text_delta push(std::int32_t id) {
    return delta(splitter_.push(stops_.push(detokenizer_.push(id))));
  }

  /// Ends the text, for whatever reason, and gives out what was held back, unless a stop string has
  /// ended it before.
  [[nodiscard]] text_delta finish() {
    std::string rest = stops_.push(detokenizer_.finish());
    rest += stops_.finish();
    split_text out = splitter_.push(rest);
    split_text const last = splitter_.finish();
    out.reasoning += last.reasoning;
    out.content += last.content;
    return delta(std::move(out));
  }

  /// The stop string that ended the text.
  [[nodiscard]] std::optional<std::string> const& matched_stop() const noexcept {
    return stops_.matched();
  }

  /// What comes next belongs to the reasoning, as far as can be known.
  [[nodiscard]] bool in_reasoning() const noexcept { return splitter_.in_reasoning(); }

 private:
  [[nodiscard]] text_delta delta(split_text&& split) const {
    return {std::move(split.reasoning), std::move(split.content), stops_.matched().has_value()};
  }

  detokenizer detokenizer_;
  stop_matcher stops_;
  reasoning_splitter splitter_;
};

}  // namespace qwen38::text
