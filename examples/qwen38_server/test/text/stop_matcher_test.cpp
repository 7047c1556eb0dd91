// SPDX-License-Identifier: Apache-2.0
#include "text/stop_matcher.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "random_texts.hpp"
#include "stream_support.hpp"
#include "support.hpp"

namespace qwen38::text {
namespace {

using strings = std::vector<std::string>;

testing::cut_text match(std::vector<std::string_view> const& pieces, strings const& stops) {
  stop_matcher matcher(stops);
  std::string out;
  for (std::string_view const piece : pieces) out += matcher.push(piece);
  out += matcher.finish();
  return {out, matcher.matched().value_or("")};
}

TEST(stop_matcher, finds_a_stop_string_split_over_pieces) {
  auto const expect = [](std::vector<std::string_view> const& pieces, strings const& stops,
                         std::string const& text) {
    auto const [out, stop] = match(pieces, stops);
    EXPECT_EQ(out, text);
    EXPECT_EQ(stop, stops[0]);
  };
  expect({"AB", "CDE", "FG", "H", "IJK", "L"}, {"DEFGHIJ"}, "ABC");
  expect({"The quick br", "own", " fox jumps"}, {"own fox"}, "The quick br");
  expect({"Hello\n", "User", ": hi"}, {"\nUser:"}, "Hello");
  expect({"aab"}, {"ab", "aabc"}, "a");
}

TEST(stop_matcher, takes_the_match_that_is_complete_first_and_then_the_longest) {
  EXPECT_EQ(match({"xabcdef"}, {"abcdef", "cd"}).text, "xab");
  EXPECT_EQ(match({"xabcd"}, {"cd", "bcd", "abcd"}).text, "x");
  EXPECT_EQ(match({"xabcd"}, {"cd", "bcd", "abcd"}).stop, "abcd");
}

TEST(stop_matcher, prints_unambiguous_text_at_once) {
  stop_matcher matcher({"STOP", "\n\n"});
  EXPECT_EQ(matcher.push("any text"), "any text");
  EXPECT_EQ(matcher.push(" S"), " ");
  EXPECT_EQ(matcher.push("TO"), "");
  EXPECT_EQ(matcher.push("RE S"), "STORE ");
  EXPECT_EQ(matcher.push("\n"), "S");
  EXPECT_EQ(matcher.finish(), "\n");
  EXPECT_EQ(matcher.matched(), std::nullopt);
}

TEST(stop_matcher, prints_nothing_after_a_match) {
  stop_matcher matcher({"b"});
  EXPECT_EQ(matcher.push("abc"), "a");
  EXPECT_EQ(matcher.push("d"), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(matcher.matched(), "b");
}

TEST(stop_matcher, passes_everything_without_stop_strings) {
  EXPECT_EQ(match({"a", "", "b"}, {}).text, "ab");
}

TEST(stop_matcher, refuses_an_empty_stop_string) {
  EXPECT_EQ(testing::error_message([] {
              stop_matcher const matcher({"a", ""});
            }),
            "a stop string must not be empty");
}

TEST(stop_matcher, does_not_depend_on_the_cuts) {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    testing::random_source random(seed);
    auto const word = [&](std::size_t longest) {
      std::string out;
      for (std::size_t count = 1 + random.below(longest); count > 0; --count)
        out += "ab\u00e9"[random.below(random.below(2) + 2)];
      return out;
    };
    strings stops;
    for (std::size_t count = random.below(4); count > 0; --count) stops.push_back(word(6));
    std::string const text = word(24);
    auto const expected = testing::stop_at_once(text, stops);
    testing::for_each_cut(text, [&](std::vector<std::string_view> const& pieces) {
      auto const [out, stop] = match(pieces, stops);
      ASSERT_EQ(out, expected.text) << "seed " << seed;
      ASSERT_EQ(stop, expected.stop) << "seed " << seed;
    });
  }
}

TEST(stop_matcher, holds_back_the_longest_possible_beginning_and_no_more) {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    testing::random_source random(seed);
    auto const word = [&](std::size_t longest) {
      std::string out;
      for (std::size_t count = 1 + random.below(longest); count > 0; --count)
        out += "ab"[random.below(2)];
      return out;
    };
    strings const stops = {word(8), word(8) + "b"};
    std::string const text = word(40);
    stop_matcher matcher(stops);
    std::string printed;
    for (std::size_t i = 0; i < text.size(); ++i) {
      printed += matcher.push({&text[i], 1});
      if (matcher.matched()) break;
      std::string const so_far = text.substr(0, i + 1);
      std::size_t held = 0;
      for (std::string const& stop : stops) {
        for (std::size_t n = 1; n < stop.size(); ++n) {
          if (so_far.ends_with(stop.substr(0, n))) held = std::max(held, n);
        }
      }
      ASSERT_EQ(printed, so_far.substr(0, so_far.size() - held)) << "seed " << seed;
    }
  }
}

TEST(stop_matcher, keeps_requests_apart) {
  stop_matcher first({"A"});
  stop_matcher second({"B"});
  EXPECT_EQ(first.push("xB"), "xB");
  EXPECT_EQ(second.push("xA"), "xA");
  EXPECT_FALSE(first.matched() || second.matched());
}

}  // namespace
}  // namespace qwen38::text
