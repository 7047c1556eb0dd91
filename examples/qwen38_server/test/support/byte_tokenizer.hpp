// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "text/byte_vocabulary.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::test {

inline constexpr std::int32_t endoftext_id = 256;
inline constexpr std::int32_t im_start_id = 257;
inline constexpr std::int32_t im_end_id = 258;
inline constexpr std::int32_t think_id = 259;
inline constexpr std::int32_t think_end_id = 260;
inline constexpr std::int32_t byte_vocab_size = 261;

/// A byte is its own id, Qwen's control tokens follow.
inline text::tokenizer make_byte_tokenizer() {
  return text::tokenizer::from_json(text::byte_tokenizer_json(), "byte tokenizer");
}

}  // namespace qwen38::test
