// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {

/// tokenizer::decode() with skip_special, one id at a time: the pieces joined are what decode()
/// returns. Each piece is whole UTF-8 scalars, given out as early as their last byte allows.
class detokenizer {
 public:
  /// `source` must outlive this object.
  explicit detokenizer(tokenizer const& source) : tokenizer_(&source) {}

  /// Throws like tokenizer::token_bytes().
  [[nodiscard]] std::string push(std::int32_t id) {
    std::string out;
    std::string_view const bytes = tokenizer_->token_bytes(id);
    if (!tokenizer_->is_special(id)) gate_.push(bytes, out);
    return out;
  }

  /// Ends the text: an unfinished scalar becomes U+FFFD.
  [[nodiscard]] std::string finish() {
    std::string out;
    gate_.finish(out);
    return out;
  }

 private:
  tokenizer const* tokenizer_;
  utf8_gate gate_;
};

}  // namespace qwen38::text
