// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.hpp"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "random_texts.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

std::string library_nfc(std::string const& text) {
  utf8proc_uint8_t* out = nullptr;
  auto const length =
      utf8proc_map(reinterpret_cast<utf8proc_uint8_t const*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string result(reinterpret_cast<char const*>(out), static_cast<std::size_t>(length));
  std::free(out);
  return result;
}

TEST(nfc, composes_orders_and_keeps_exclusions) {
  EXPECT_EQ(nfc(""), "");
  EXPECT_EQ(nfc("plain \u00e9"), "plain \u00e9");
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("a\u0307\u0323"), "\u1ea1\u0307");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");
  EXPECT_EQ(nfc("=\u0338"), "\u2260");
  EXPECT_EQ(nfc(std::string("\0\u0301\0", 4)), std::string("\0\u0301\0", 4));
}

TEST(nfc, equals_the_librarys_on_every_scalar_and_on_random_texts) {
  for (char32_t scalar = 0; scalar < 0x110000; ++scalar) {
    if (scalar >= 0xD800 && scalar <= 0xDFFF) continue;
    std::string text = "a";
    append_utf8(scalar, text);
    text += "\u0323\u0301";
    ASSERT_EQ(nfc(text), library_nfc(text)) << std::hex << static_cast<std::uint32_t>(scalar);
  }
  testing::random_source random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string const text = testing::random_text(random, 12);
    ASSERT_EQ(nfc(text), library_nfc(text)) << "seed 7, case " << i;
  }
}

// Ordering by swapping neighbours, as the library does, would take hours here.
TEST(nfc, sorts_a_long_run_of_marks_without_quadratic_time) {
  std::string text = "x";
  std::string expected_first = "x";
  std::string expected_last;
  for (int i = 0; i < 500000; ++i) {
    text += "\u0302\u0316";  // combining classes 230 and 220
    expected_first += "\u0316";
    expected_last += "\u0302";
  }
  EXPECT_TRUE(nfc(text) == expected_first + expected_last);
}

TEST(strip, takes_what_python_takes_and_no_more) {
  // [c for c in range(0x110000) if chr(c).isspace()]
  constexpr std::array<char32_t, 29> blanks = {
      0x9,    0xA,    0xB,    0xC,    0xD,    0x1C,   0x1D,   0x1E,   0x1F,   0x20,
      0x85,   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006,
      0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  for (char32_t scalar = 0; scalar < 0x110000; ++scalar) {
    if (scalar >= 0xD800 && scalar <= 0xDFFF) continue;
    bool const blank = std::find(blanks.begin(), blanks.end(), scalar) != blanks.end();
    std::string text;
    append_utf8(scalar, text);
    ASSERT_EQ(strip(text), blank ? "" : text) << std::hex << static_cast<std::uint32_t>(scalar);
    std::string const around = text + "a" + text + "b" + text;
    ASSERT_EQ(strip(around), blank ? "a" + text + "b" : around)
        << std::hex << static_cast<std::uint32_t>(scalar);
  }
  EXPECT_EQ(strip(""), "");
  EXPECT_EQ(strip(" \n\u3000\t"), "");
  EXPECT_EQ(strip("\u2028 a \u00a0"), "a");
}

}  // namespace
}  // namespace qwen38::text
