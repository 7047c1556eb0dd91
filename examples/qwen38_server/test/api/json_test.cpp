// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "api/json_body.hpp"
#include "api/json_text.hpp"
#include "support/error.hpp"

namespace qwen38::api {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string refusal(std::string const& text, json_limits const& limits = {}) {
  try {
    (void)parse_json(text, "The body", limits);
  } catch (error const& cause) {
    EXPECT_EQ(cause.kind(), error_kind::invalid_argument);
    return cause.what();
  }
  return "accepted";
}

TEST(json_text, every_pair_of_bytes_prints_as_nlohmann_prints_it) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      std::string const text{static_cast<char>(first), static_cast<char>(second)};
      auto const replace = nlohmann::json::error_handler_t::replace;
      // Both are valid JSON; spelling of controls differs (\b and \f are free to be \u0008 and
      // \u000c).
      auto const ours = nlohmann::json::parse(escaped(text));
      auto const theirs = nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, replace));
      ASSERT_EQ(ours, theirs) << first << ' ' << second;
    }
  }
}

TEST(json_text, whole_scalars_pass_unescaped) {
  EXPECT_EQ(escaped("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\xB8\"\\\n\x01"),
            "\"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\xB8\\\"\\\\\\n\\u0001\"");
  EXPECT_EQ(escaped("\xF0\x9F"), "\"\xEF\xBF\xBD\"");
}

TEST(json_text, decimals_are_always_json_numbers) {
  for (double const value : {0.0, 1.5, -2.25, 1e308, -1e308, 1e-9, std::nan(""),
                             std::numeric_limits<double>::infinity()}) {
    std::string out;
    append_json_decimal(out, value);
    auto const parsed = nlohmann::json::parse(out);
    ASSERT_TRUE(parsed.is_number()) << out;
    EXPECT_NEAR(parsed.get<double>(), std::isfinite(value) ? value : 0.0,
                std::fabs(value) < 1e300 ? 0.0005 : 1e293);
  }
}

TEST(json_body, values_equal_those_of_nlohmanns_own_parser) {
  for (std::string const text : {"null", "[]", "{}", "[1,-2,3.5,1e3,true,false,null,\"x\"]",
                                 R"({"b":{"c":[{}]},"a":[[],{"k":1}]})", "18446744073709551615",
                                 "-9223372036854775808", R"("\ud83d\ude00 \u0000")", " [ 1 ] \n"}) {
    EXPECT_EQ(parse_json(text, "The body"), nlohmann::ordered_json::parse(text)) << text;
  }
}

TEST(json_body, members_keep_their_order) {
  EXPECT_EQ(parse_json(R"({"z":1,"a":2,"m":3})", "The body").dump(), R"({"z":1,"a":2,"m":3})");
}

TEST(json_body, broken_texts_are_refused_with_their_place) {
  for (std::string const text :
       {"", "{", "[1", "{\"a\":}", "nul", "[1,]", "{'a':1}", "[NaN]", "[Infinity]", "[1] x",
        "\"\\ud800\"", "\"\x01\"", "[01]", "\xEF\xBB"}) {
    EXPECT_NE(refusal(text).find("at byte"), std::string::npos) << text << ": " << refusal(text);
  }
  EXPECT_EQ(refusal("{\"prompt\":\"\xff\"}"), "The body is not valid UTF-8 at byte 12.");
  EXPECT_EQ(refusal("[1e999]"), "The body holds a number out of range at byte 6.");
}

TEST(json_body, depth_is_bounded_exactly) {
  auto const nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(refusal(nested(64)), "accepted");
  EXPECT_EQ(refusal(nested(65)), "The body is nested more than 64 levels deep.");
  EXPECT_EQ(refusal(std::string(1U << 20U, '[')), "The body is nested more than 64 levels deep.");
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_EQ(refusal(objects), "The body is nested more than 64 levels deep.");
}

TEST(json_body, number_of_values_is_bounded_exactly) {
  json_limits limits;
  limits.nodes = 4;  // the array and three elements
  EXPECT_EQ(refusal("[1,2,3]", limits), "accepted");
  EXPECT_EQ(refusal("[1,2,3,4]", limits), "The body holds more than 4 values.");
  EXPECT_EQ(refusal("[{\"a\":1},2]", limits), "accepted");
  EXPECT_EQ(refusal("[{\"a\":1},2,[]]", limits), "The body holds more than 4 values.");
}

TEST(json_body, members_of_an_object_are_bounded_and_unique) {
  json_limits limits;
  limits.members = 2;
  EXPECT_EQ(refusal(R"({"a":1,"b":2})", limits), "accepted");
  EXPECT_EQ(refusal(R"({"a":1,"b":2,"c":3})", limits),
            "The body holds an object of more than 2 members.");
  EXPECT_EQ(refusal(R"({"a":1,"a":2})"), "The body holds an object with the same member twice.");
}

TEST(json_body, half_a_million_objects_in_one_array_are_read_in_linear_time) {
  std::string text = "[";
  for (int i = 0; i < 500'000; ++i) text += "{},";
  text += "{}]";
  EXPECT_EQ(parse_json(text, "The body").size(), 500'001U);
}

}  // namespace
}  // namespace qwen38::api
