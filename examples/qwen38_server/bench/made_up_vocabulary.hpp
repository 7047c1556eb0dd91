// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace qwen38::bench {

/// A tokenizer.json of `size` ids whose tokens are made by merges, for figures that depend on how
/// many tokens there are and what they begin with in common. As in a real one a token is of letters
/// of one script, with a space or a sign in front or without, or of signs: half of them Latin, a
/// quarter CJK, a quarter Cyrillic and Greek, of up to 16 bytes. The same for the same size. size:
/// at least 30,000.
[[nodiscard]] std::string made_up_vocabulary(std::int32_t size);

}  // namespace qwen38::bench
