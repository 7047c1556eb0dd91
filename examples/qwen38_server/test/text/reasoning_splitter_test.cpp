// SPDX-License-Identifier: Apache-2.0
#include "text/reasoning_splitter.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "random_texts.hpp"
#include "stream_support.hpp"

namespace qwen38::text {
namespace {

using testing::channels;

channels split(std::vector<std::string_view> const& pieces, bool starts_in_reasoning) {
  reasoning_splitter splitter(starts_in_reasoning);
  channels out;
  for (std::string_view const piece : pieces) {
    split_text const delta = splitter.push(piece);
    out.reasoning += delta.reasoning;
    out.content += delta.content;
  }
  split_text const last = splitter.finish();
  return {out.reasoning + last.reasoning, out.content + last.content};
}

channels split(std::string_view text, bool starts_in_reasoning) {
  return split(std::vector<std::string_view>{text}, starts_in_reasoning);
}

TEST(reasoning_splitter, ends_reasoning_at_the_closing_tag_and_strips_around) {
  EXPECT_EQ(split("I think so.\n</think>\n\nYes.", true), (channels{"I think so.", "Yes."}));
  EXPECT_EQ(split("\n\n a \n b \n\n</think> \t Yes. \n", true), (channels{"a \n b", "Yes. \n"}));
  EXPECT_EQ(split("</think>\n\nYes.", true), (channels{"", "Yes."}));
  EXPECT_EQ(split("a</think>b</think>c<think>d", true), (channels{"a", "b</think>c<think>d"}));
  EXPECT_EQ(split("", true), (channels{"", ""}));
}

TEST(reasoning_splitter, gives_content_only_when_thinking_is_off) {
  EXPECT_EQ(split("Hello! ...", false), (channels{"", "Hello! ..."}));
  EXPECT_EQ(split("\n a</think>b<tool_call>", false), (channels{"", "\n a</think>b<tool_call>"}));
}

TEST(reasoning_splitter, gives_reasoning_only_when_it_never_ends) {
  EXPECT_EQ(split("First I need", true), (channels{"First I need", ""}));
  EXPECT_EQ(split("<think>\nFirst I need \n", true), (channels{"First I need", ""}));
  EXPECT_EQ(split("a </thin", true), (channels{"a </thin", ""}));
  EXPECT_EQ(split("<thi", true), (channels{"<thi", ""}));
}

TEST(reasoning_splitter, a_tool_call_ends_reasoning_and_begins_content) {
  EXPECT_EQ(
      split("I need to read the file.\n\n<tool_call>\n<function=bash>\n</function>\n</tool_call>",
            true),
      (channels{"I need to read the file.",
                "<tool_call>\n<function=bash>\n</function>\n</tool_call>"}));
  EXPECT_EQ(split("<think>\nread\n<tool_call>\nx</think>", true),
            (channels{"read", "<tool_call>\nx</think>"}));
  EXPECT_EQ(split("a\n</think>\n\n<tool_call>\nx", true), (channels{"a", "<tool_call>\nx"}));
}

TEST(reasoning_splitter, drops_an_opening_tag_repeated_at_the_start) {
  EXPECT_EQ(split("<think>\nabc\n</think>\n\nHello", true), (channels{"abc", "Hello"}));
  EXPECT_EQ(split(" \n<think> <think>abc", true), (channels{"abc", ""}));
  EXPECT_EQ(split("a<think>b", true), (channels{"a<think>b", ""}));
}

TEST(reasoning_splitter, does_not_depend_on_the_cuts) {
  std::vector<std::string> texts = {
      "",
      "a",
      "\n",
      "</think>",
      "<tool_call>",
      "<think>",
      "<<<</think>>",
      "</</think>",
      "<think</think>",
      "<thi<think>x</think>y",
      "a <b> </b> </thin </think>\n\nIt <b>is</b> </think>.",
      "\n \n</think>\n \n",
      "a\n\n\nb\n\n</think>\n\n\nc\n\n",
      "x<tool_cal</think>y",
      "x<tool_call</think>",
      "<tool_<tool_call>",
      "\u00e9 \u65e5\n</think>\n\U0001F638",
      "a\u00a0</think>\u00a0b",
      "I need to read.\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
      "1 < 2 </ 3 <t <to </t\n</think>\nok",
      "<think>\nabc\n</think>\n\nHello <think>",
      " <think><think> a",
      "</think></think>",
      "a</think>\n\n<tool_call>",
      "< /think></think >"};
  testing::random_source random(21);
  std::vector<std::string> const units = {"<",      "/",   "<think>", "</think>", "<tool_call>",
                                          "think>", "<to", "</th",    "a",        "\n",
                                          " ",      ">",   "\u00e9"};
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (std::size_t count = random.below(9); count > 0; --count) text += random.pick(units);
    texts.push_back(text);
  }
  for (std::string const& text : texts) {
    for (bool const inside : {true, false}) {
      channels const expected = testing::split_at_once(text, inside);
      testing::for_each_cut(text, [&](std::vector<std::string_view> const& pieces) {
        ASSERT_EQ(split(pieces, inside), expected)
            << "seed 21: " << ::testing::PrintToString(text) << " cut " << pieces.front().size();
      });
    }
  }
}

TEST(reasoning_splitter, holds_back_only_blanks_and_beginnings_of_tags) {
  reasoning_splitter splitter(true);
  EXPECT_EQ(splitter.push("abc").reasoning, "abc");
  EXPECT_EQ(splitter.push(" d\n").reasoning, " d");
  EXPECT_EQ(splitter.push("</t").reasoning, "");
  EXPECT_EQ(splitter.push("x").reasoning, "\n</tx");
  EXPECT_TRUE(splitter.in_reasoning());
  EXPECT_EQ(splitter.push("</think>\n").content, "");
  EXPECT_FALSE(splitter.in_reasoning());
  EXPECT_EQ(splitter.push("\nYes </thi\n").content, "Yes </thi\n");
}

TEST(reasoning_splitter, takes_a_megabyte_of_blanks_byte_by_byte) {
  reasoning_splitter splitter(true);
  std::string reasoning = splitter.push("a").reasoning;
  for (int i = 0; i < (1 << 20); ++i) reasoning += splitter.push("\n").reasoning;
  reasoning += splitter.push("b").reasoning;
  EXPECT_EQ(reasoning.size(), (std::size_t{1} << 20) + 2);
}

}  // namespace
}  // namespace qwen38::text
