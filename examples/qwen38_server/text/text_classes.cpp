// SPDX-License-Identifier: Apache-2.0
#include "text/text_classes.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace qwen38::text {
namespace {

constexpr utf8_range any{0x80, 0xBF};
constexpr std::array<utf8_range, 2> two = {{{0xC2, 0xDF}, any}};
constexpr std::array<utf8_range, 3> after_e0 = {{{0xE0, 0xE0}, {0xA0, 0xBF}, any}};
constexpr std::array<utf8_range, 3> three = {{{0xE1, 0xEC}, any, any}};
constexpr std::array<utf8_range, 3> after_ed = {{{0xED, 0xED}, {0x80, 0x9F}, any}};
constexpr std::array<utf8_range, 3> high_three = {{{0xEE, 0xEF}, any, any}};
constexpr std::array<utf8_range, 4> after_f0 = {{{0xF0, 0xF0}, {0x90, 0xBF}, any, any}};
constexpr std::array<utf8_range, 4> four = {{{0xF1, 0xF3}, any, any, any}};
constexpr std::array<utf8_range, 4> after_f4 = {{{0xF4, 0xF4}, {0x80, 0x8F}, any, any}};
constexpr std::array<utf8_form, 8> forms = {{{text_class::two_bytes, two},
                                             {text_class::three_bytes, after_e0},
                                             {text_class::three_bytes, three},
                                             {text_class::three_bytes, after_ed},
                                             {text_class::three_bytes, high_three},
                                             {text_class::four_bytes, after_f0},
                                             {text_class::four_bytes, four},
                                             {text_class::four_bytes, after_f4}}};

/// The text begins with a character of this form, or is the beginning of one.
bool fits(utf8_form const& form, std::string_view text) {
  auto const length = std::min(form.bytes.size(), text.size());
  for (std::size_t i = 0; i < length; ++i) {
    auto const byte = static_cast<unsigned char>(text[i]);
    if (byte < form.bytes[i].low || byte > form.bytes[i].high) return false;
  }
  return true;
}

}  // namespace

text_class class_of_ascii(unsigned char byte) noexcept {
  if (byte >= 'a' && byte <= 'z') return text_class::lower;
  if (byte >= 'A' && byte <= 'Z') return text_class::upper;
  if (byte >= '0' && byte <= '9') return text_class::digit;
  switch (byte) {
    case ' ': return text_class::space;
    case '\n': return text_class::newline;
    case '"': return text_class::quote;
    case '\\': return text_class::backslash;
    case '<': return text_class::less;
    default: return byte < 0x20 || byte == 0x7F ? text_class::control : text_class::sign;
  }
}

std::span<utf8_form const> utf8_forms() noexcept {
  return forms;
}

std::vector<text_classes> classes_from(std::string_view text) {
  std::vector<text_classes> out(text.size() + 1, 0);
  for (std::size_t i = text.size(); i-- > 0;) {
    auto const byte = static_cast<unsigned char>(text[i]);
    auto kind = byte < 0x80 ? class_of_ascii(byte) : text_class::broken;
    std::size_t length = 1;
    if (byte >= 0x80) {
      auto const form = std::ranges::find_if(
          forms, [&](utf8_form const& one) { return fits(one, text.substr(i)); });
      if (form != forms.end()) {
        kind = form->kind;
        length = std::min(form->bytes.size(), text.size() - i);
      }
    }
    out[i] = static_cast<text_classes>(kind) | out[i + length];
  }
  out.pop_back();
  return out;
}

}  // namespace qwen38::text
