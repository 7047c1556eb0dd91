// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace qwen38::text {

/// Turns a byte stream, cut anywhere, into valid UTF-8. A scalar is emitted with its last byte; an
/// ill-formed sequence becomes one U+FFFD per maximal subpart (Unicode 15, section 3.9, table 3-7),
/// which is also what Python's errors="replace" does. The result does not depend on where the
/// stream was cut.
class utf8_gate {
 public:
  /// Appends to `out` what `bytes` completes.
  void push(std::string_view bytes, std::string& out);

  /// Ends the stream: an unfinished scalar becomes one U+FFFD. The gate is then as new.
  void finish(std::string& out);

  /// Bytes of an unfinished scalar held now, 0 .. 3.
  [[nodiscard]] std::size_t held() const noexcept { return held_; }

 private:
  void begin(unsigned char byte, std::string& out);

  std::array<char, 3> bytes_{};
  std::size_t held_ = 0;
  std::size_t length_ = 0;  // of the scalar whose first bytes are held
  // Range of the next byte; narrower than 80..BF only after E0, ED, F0 and F4.
  unsigned char lowest_ = 0x80;
  unsigned char highest_ = 0xBF;
};

/// `bytes` with every maximal ill-formed subpart replaced by U+FFFD.
[[nodiscard]] std::string repair_utf8(std::string_view bytes);

/// The scalar at `position` of valid UTF-8; moves `position` behind it.
[[nodiscard]] char32_t next_scalar(std::string_view valid, std::size_t& position) noexcept;

void append_utf8(char32_t scalar, std::string& out);

}  // namespace qwen38::text
