// SPDX-License-Identifier: Apache-2.0
#include "text/python_json.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "random_texts.hpp"
#include "support.hpp"

namespace qwen38::text {
namespace {

using nlohmann::ordered_json;

std::string dump(ordered_json const& value) {
  return python_json(value, "value");
}

TEST(python_json, separates_with_blanks_and_keeps_the_order_of_keys) {
  EXPECT_EQ(dump(ordered_json::parse(R"({"z":[1,{"a":null,"0":[]}],"b":{},"c":[true,false]})")),
            R"({"z": [1, {"a": null, "0": []}], "b": {}, "c": [true, false]})");
  EXPECT_EQ(dump(nullptr), "null");
}

TEST(python_json, escapes_what_python_escapes) {
  EXPECT_EQ(dump(std::string("\"\\/\b\f\n\r\t\0\x01\x1f\x7f<&>'", 16)),
            "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u0001\\u001f\x7f<&>'\"");
  EXPECT_EQ(dump("\u00e9\u2028\U0001F638"), "\"\u00e9\u2028\U0001F638\"");
}

TEST(python_json, prints_numbers_as_repr) {
  // Right-hand sides are what CPython prints.
  std::vector<std::pair<double, char const*>> const floats = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {-2.5, "-2.5"},
      {0.1, "0.1"},
      {100.0, "100.0"},
      {123456789.125, "123456789.125"},
      {0.0001, "0.0001"},
      {0.00012345, "0.00012345"},
      {0.00001, "1e-05"},
      {1.5e-7, "1.5e-07"},
      {1e15, "1000000000000000.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e16, "1e+16"},
      {1.25e16, "1.25e+16"},
      {1e22, "1e+22"},
      {1e100, "1e+100"},
      {5e-324, "5e-324"},
      {std::numeric_limits<double>::max(), "1.7976931348623157e+308"},
      {123456789012345.6, "123456789012345.6"},
      {1.0 / 3.0, "0.3333333333333333"},
      {HUGE_VAL, "Infinity"},
      {-HUGE_VAL, "-Infinity"}};
  for (auto const& [value, expected] : floats) EXPECT_EQ(dump(value), expected);
  EXPECT_EQ(dump(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(dump(ordered_json::parse("[-0, 18446744073709551615, -9223372036854775808, 1E5]")),
            "[0, 18446744073709551615, -9223372036854775808, 100000.0]");
}

TEST(python_json, prints_the_shortest_digits_that_read_back) {
  testing::random_source random(9);
  for (int i = 0; i < 20000; ++i) {
    auto const bits = static_cast<std::uint64_t>(random.below(std::size_t{1} << 32)) << 32 |
                      random.below(std::size_t{1} << 32);
    auto const value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) continue;
    std::string const text = dump(value);
    ASSERT_EQ(std::strtod(text.c_str(), nullptr), value) << "seed 9, case " << i;
    int digits = 1;
    char shortest[64];
    for (;; ++digits) {
      (void)std::snprintf(shortest, sizeof shortest, "%.*e", digits - 1, value);
      if (std::strtod(shortest, nullptr) == value) break;
    }
    std::string const mantissa = text.substr(0, text.find('e'));
    int printed = 0;
    for (char const c : mantissa) printed += c >= '0' && c <= '9' ? 1 : 0;
    // Random bits are hardly ever between 1e-4 and 1e16; there zeros pad the digits.
    if (std::fabs(value) < 1e-4 || std::fabs(value) >= 1e16) {
      ASSERT_EQ(printed, digits) << text;
    }
  }
}

TEST(python_json, refuses_what_is_nested_too_deep) {
  auto const nested = [](int levels) {
    auto const count = static_cast<std::size_t>(levels);
    return ordered_json::parse(std::string(count, '[') + std::string(count, ']'));
  };
  EXPECT_EQ(dump(nested(max_json_depth)).size(), 2U * max_json_depth);
  EXPECT_EQ(testing::error_message([&] { (void)dump(nested(max_json_depth + 2)); }),
            "value is nested more than 256 levels deep");
  EXPECT_NE(testing::error_message([&] { (void)dump(nested(200000)); }), "");
}

}  // namespace
}  // namespace qwen38::text
