// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace qwen38::text {

/// The tokens of a tokenizer that print something, in the order of their bytes, so that what they
/// begin with in common is walked once. Immutable.
class vocabulary {
 public:
  struct token {
    std::string_view bytes;
    std::int32_t id;
    std::int32_t shared;  ///< bytes in common with the token before
  };

  /// `source` must outlive this object. Control tokens (is_special) are left out: they print
  /// nothing.
  explicit vocabulary(tokenizer const& source);

  [[nodiscard]] std::span<token const> tokens() const noexcept { return tokens_; }
  [[nodiscard]] tokenizer const& source() const noexcept { return *source_; }
  /// Words of 32 bits that hold a bit for each id.
  [[nodiscard]] std::size_t mask_words() const noexcept {
    return (static_cast<std::size_t>(source_->vocab_size()) + 31) / 32;
  }

 private:
  tokenizer const* source_;
  std::vector<token> tokens_;
};

}  // namespace qwen38::text
