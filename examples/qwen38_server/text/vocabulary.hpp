// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/text_classes.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::text {

/// The tokens of a tokenizer that print something as a tree of their bytes, so that what many begin
/// with in common is walked once. Immutable.
class vocabulary {
 public:
  /// One byte of the tokens that begin with the same bytes up to it. The nodes stand in the order
  /// of these beginnings: behind a node those that go on from it.
  struct node {
    std::int32_t behind;   ///< the first node that does not go on from this one
    std::int32_t first;    ///< of ids(): the first token that goes through this node
    std::int32_t depth;    ///< bytes before this one
    text_classes below;    ///< of all tokens through here, from this byte on
    std::int32_t longest;  ///< of them, in bytes from this one on
    unsigned char byte;
  };

  /// `source` must outlive this object. Control tokens (is_special) are left out: they print
  /// nothing.
  explicit vocabulary(tokenizer const& source);

  /// The last one is no node, but the end: its `first` is the number of tokens. So the tokens
  /// through node i are ids()[nodes()[i].first] up to that of its `behind`, and those that end with
  /// it up to that of i + 1.
  [[nodiscard]] std::span<node const> nodes() const noexcept { return nodes_; }
  /// In the order of their bytes.
  [[nodiscard]] std::span<std::int32_t const> ids() const noexcept { return ids_; }
  [[nodiscard]] std::size_t longest() const noexcept { return longest_; }
  [[nodiscard]] tokenizer const& source() const noexcept { return *source_; }
  /// Words of 32 bits that hold a bit for each id.
  [[nodiscard]] std::size_t mask_words() const noexcept {
    return (static_cast<std::size_t>(source_->vocab_size()) + 31) / 32;
  }

 private:
  tokenizer const* source_;
  std::vector<node> nodes_;
  std::vector<std::int32_t> ids_;
  std::size_t longest_ = 0;  // token, in bytes
};

}  // namespace qwen38::text
