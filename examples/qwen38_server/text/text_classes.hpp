// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qwen38::text {

/// Kinds of characters, a bit each: what a piece of text is made of, and what an automaton may read
/// without going anywhere. Characters that grammars single out have kinds of their own.
enum class text_class : std::uint32_t {
  lower = 1U << 0,
  upper = 1U << 1,
  digit = 1U << 2,
  space = 1U << 3,
  newline = 1U << 4,
  control = 1U << 5,  ///< other bytes below 0x20, and 0x7F
  quote = 1U << 6,
  backslash = 1U << 7,
  less = 1U << 8,
  sign = 1U << 9,  ///< other signs of ASCII
  two_bytes = 1U << 10,
  three_bytes = 1U << 11,
  four_bytes = 1U << 12,
  broken = 1U << 13,  ///< bytes from 0x80 on that are no part of a character that began in the text
};
using text_classes = std::uint32_t;

[[nodiscard]] text_class class_of_ascii(unsigned char byte) noexcept;

/// Bytes that may stand at one place of a character beyond ASCII (Unicode 15, table 3-7).
struct utf8_range {
  unsigned char low;
  unsigned char high;
};
/// The characters of one kind that have the same ranges, of 2 to 4 bytes.
struct utf8_form {
  text_class kind;
  std::span<utf8_range const> bytes;
};
[[nodiscard]] std::span<utf8_form const> utf8_forms() noexcept;

/// For each byte of `text` the kinds of what stands from there to the end, as a text of its own. A
/// character that only begins at the end counts as its kind.
[[nodiscard]] std::vector<text_classes> classes_from(std::string_view text);

}  // namespace qwen38::text
