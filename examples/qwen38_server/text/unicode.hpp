// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen38::text {

/// What the pre-tokenizer's pattern can tell apart. `other` also holds controls and unassigned
/// scalars.
enum class char_class : std::uint8_t {
  letter,   ///< \p{L}
  mark,     ///< \p{M}
  number,   ///< \p{N}
  newline,  ///< CR, LF
  space,    ///< White_Space, without CR and LF
  other,
};

[[nodiscard]] char_class classify(char32_t scalar) noexcept;

/// Normalisation form C of valid UTF-8, in time O(n log n) whatever the marks.
[[nodiscard]] std::string nfc(std::string_view valid);

/// Valid UTF-8 without leading and trailing blanks, as Python's str.strip() counts blanks:
/// White_Space and U+001C .. U+001F.
[[nodiscard]] std::string_view strip(std::string_view valid) noexcept;

}  // namespace qwen38::text
