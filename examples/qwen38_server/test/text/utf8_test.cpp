// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

namespace qwen38::text {
namespace {

std::string encode_reference(std::uint32_t scalar) {
  auto const tail = [](std::uint32_t value) { return static_cast<char>(128 + value % 64); };
  if (scalar < 128) return {static_cast<char>(scalar)};
  if (scalar < 2048) return {static_cast<char>(192 + scalar / 64), tail(scalar)};
  if (scalar < 65536)
    return {static_cast<char>(224 + scalar / 4096), tail(scalar / 64), tail(scalar)};
  return {static_cast<char>(240 + scalar / 262144), tail(scalar / 4096), tail(scalar / 64),
          tail(scalar)};
}

template <class Action>
void for_each_scalar(Action act) {
  for (std::uint32_t scalar = 0; scalar < 0x110000; ++scalar) {
    if (scalar < 0xD800 || scalar > 0xDFFF) act(scalar);
  }
}

/// Every beginning of every scalar's encoding, by enumeration.
class beginnings {
 public:
  beginnings() {
    for_each_scalar([&](std::uint32_t scalar) {
      std::string const bytes = encode_reference(scalar);
      for (std::size_t n = 1; n < bytes.size(); ++n) proper_.insert(key(bytes.substr(0, n)));
      whole_.insert(key(bytes));
    });
  }

  /// The definition: at each place the longest beginning of a well-formed scalar, whole or replaced
  /// by one U+FFFD.
  [[nodiscard]] std::string repair(std::string_view bytes) const {
    std::string out;
    while (!bytes.empty()) {
      std::size_t n = std::min<std::size_t>(4, bytes.size());
      while (n > 1 &&
             proper_.count(key(bytes.substr(0, n))) + whole_.count(key(bytes.substr(0, n))) == 0)
        --n;
      bool const whole = whole_.count(key(bytes.substr(0, n))) > 0;
      out += whole ? bytes.substr(0, n) : "\uFFFD";
      bytes.remove_prefix(n);
    }
    return out;
  }

 private:
  static std::uint64_t key(std::string_view bytes) {
    std::uint64_t value = bytes.size();
    for (char const c : bytes) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::unordered_set<std::uint64_t> proper_;
  std::unordered_set<std::uint64_t> whole_;
};

std::string push_bytewise(std::string_view bytes) {
  utf8_gate gate;
  std::string out;
  for (char const& c : bytes) gate.push({&c, 1}, out);
  gate.finish(out);
  return out;
}

TEST(utf8_scalars, all_of_them_are_written_and_read_back) {
  for_each_scalar([](std::uint32_t scalar) {
    std::string bytes;
    append_utf8(scalar, bytes);
    ASSERT_EQ(bytes, encode_reference(scalar)) << scalar;
    std::size_t position = 0;
    ASSERT_EQ(next_scalar(bytes, position), scalar);
    ASSERT_EQ(position, bytes.size());
  });
}

TEST(utf8_gate, gives_every_scalar_with_its_last_byte_and_nothing_before) {
  for_each_scalar([](std::uint32_t scalar) {
    std::string const bytes = encode_reference(scalar);
    utf8_gate gate;
    std::string out;
    for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
      gate.push({&bytes[i], 1}, out);
      ASSERT_TRUE(out.empty()) << scalar;
      ASSERT_EQ(gate.held(), i + 1);
    }
    gate.push({&bytes.back(), 1}, out);
    ASSERT_EQ(out, bytes);
    ASSERT_EQ(gate.held(), 0U);
  });
}

TEST(utf8_gate, replaces_maximal_subparts_as_defined) {
  beginnings const reference;
  auto const check = [&](std::string_view bytes) {
    std::string const expected = reference.repair(bytes);
    ASSERT_EQ(repair_utf8(bytes), expected) << ::testing::PrintToString(bytes);
    ASSERT_EQ(push_bytewise(bytes), expected) << ::testing::PrintToString(bytes);
  };
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      check(std::string{static_cast<char>(first), static_cast<char>(second)});
    }
  }
  // Both ends of every range of table 3-7.
  constexpr std::array<int, 22> edges = {0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                         0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEE,
                                         0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  std::string bytes(4, '\0');
  for (std::size_t i = 0; i < edges.size() * edges.size() * edges.size() * edges.size(); ++i) {
    std::size_t rest = i;
    for (char& c : bytes) {
      c = static_cast<char>(edges[rest % edges.size()]);
      rest /= edges.size();
    }
    check(bytes);
  }
}

TEST(utf8_gate, never_stops_at_overlong_forms_surrogates_and_values_out_of_range) {
  EXPECT_EQ(repair_utf8("a\xC0\x80z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(repair_utf8("a\xED\xA0\x80z"), "a\uFFFD\uFFFD\uFFFDz");
  EXPECT_EQ(repair_utf8("a\xF4\x90\x80\x80z"), "a\uFFFD\uFFFD\uFFFD\uFFFDz");
  EXPECT_EQ(repair_utf8("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(repair_utf8("a\xF0\x9F\x98"), "a\uFFFD");
  EXPECT_EQ(repair_utf8("a\xF0\x9F\x98\xF0\x9F\x98\xB8"), "a\uFFFD\U0001F638");
}

}  // namespace
}  // namespace qwen38::text
