// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

bool is_white_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_python_space(char32_t c) noexcept {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

}  // namespace

char_class classify(char32_t scalar) noexcept {
  if (scalar == U'\r' || scalar == U'\n') return char_class::newline;
  if (is_white_space(scalar)) return char_class::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(scalar))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return char_class::letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return char_class::mark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return char_class::number;
    default: return char_class::other;
  }
}

std::string nfc(std::string_view valid) {
  // Bytes below CC make scalars below U+0300: each is its own NFC and none composes with its
  // neighbour.
  bool const plain = std::all_of(valid.begin(), valid.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
  if (plain) return std::string(valid);

  std::vector<utf8proc_int32_t> scalars;
  scalars.reserve(valid.size());
  // No canonical decomposition is longer than four scalars.
  std::array<utf8proc_int32_t, 4> parts{};
  for (std::size_t position = 0; position < valid.size();) {
    auto const scalar = static_cast<utf8proc_int32_t>(next_scalar(valid, position));
    int boundary = 0;
    auto const count = utf8proc_decompose_char(
        scalar, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
    scalars.insert(scalars.end(), parts.begin(), parts.begin() + count);
  }
  // Canonical order. utf8proc's own ordering swaps neighbours, which is quadratic in a run of
  // marks.
  auto const combining_class = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  for (auto run = scalars.begin(); run != scalars.end();) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    auto const end = std::find_if(run, scalars.end(),
                                  [&](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    run = end;
  }
  auto const length =
      utf8proc_normalize_utf32(scalars.data(), static_cast<utf8proc_ssize_t>(scalars.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  std::string out;
  out.reserve(valid.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_utf8(static_cast<char32_t>(scalars[static_cast<std::size_t>(i)]), out);
  }
  return out;
}

std::string_view strip(std::string_view valid) noexcept {
  std::size_t begin = 0;
  while (begin < valid.size()) {
    std::size_t next = begin;
    if (!is_python_space(next_scalar(valid, next))) break;
    begin = next;
  }
  std::size_t end = valid.size();
  while (end > begin) {
    std::size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(valid[last]) & 0xC0) == 0x80) --last;
    std::size_t position = last;
    if (!is_python_space(next_scalar(valid, position))) break;
    end = last;
  }
  return valid.substr(begin, end - begin);
}

}  // namespace qwen38::text
