// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace qwen38::text {

/// A tokenizer.json without merges: ids 0 to 255 are the bytes, then come <|endoftext|>,
/// <|im_start|>, <|im_end|>, <think> and </think>. For models without a vocabulary of their own;
/// prompts can be read off their ids.
[[nodiscard]] std::string byte_tokenizer_json();

}  // namespace qwen38::text
