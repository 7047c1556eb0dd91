// SPDX-License-Identifier: Apache-2.0
#include "text/text_stream.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "random_texts.hpp"
#include "stream_support.hpp"
#include "support.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

using testing::channels;
using testing::tiny;

struct outcome {
  channels text;
  std::string stop;
  std::size_t ids_used = 0;
};

outcome run(std::vector<std::int32_t> const& ids, std::vector<std::string> const& stops,
            bool starts_in_reasoning) {
  text_stream stream(tiny(), stops, starts_in_reasoning);
  outcome out;
  auto const add = [&](text_delta const& delta) {
    out.text.reasoning += delta.reasoning;
    out.text.content += delta.content;
    EXPECT_EQ(delta.reasoning, repair_utf8(delta.reasoning));
    EXPECT_EQ(delta.content, repair_utf8(delta.content));
    EXPECT_EQ(delta.stopped, stream.matched_stop().has_value());
    return delta.stopped;
  };
  for (std::int32_t const id : ids) {
    ++out.ids_used;
    if (add(stream.push(id))) break;
  }
  add(stream.finish());
  out.stop = stream.matched_stop().value_or("");
  return out;
}

outcome run(std::string_view text, std::vector<std::string> const& stops,
            bool starts_in_reasoning) {
  return run(tiny().encode(text), stops, starts_in_reasoning);
}

TEST(text_stream, separates_reasoning_from_content) {
  EXPECT_EQ(run("think\n</think>\n\nthe invoice", {}, true).text,
            (channels{"think", "the invoice"}));
  EXPECT_EQ(run("Hello! ...", {}, false).text, (channels{"", "Hello! ..."}));
  EXPECT_EQ(run("cut off in think", {}, true).text, (channels{"cut off in think", ""}));
}

TEST(text_stream, stops_in_either_channel_and_drops_the_rest) {
  outcome const in_content = run("a</think>b STOP c", {"STOP"}, true);
  EXPECT_EQ(in_content.text, (channels{"a", "b "}));
  EXPECT_EQ(in_content.stop, "STOP");
  EXPECT_EQ(run("a STOP</think>b", {"STOP"}, true).text, (channels{"a", ""}));
  EXPECT_EQ(run("a\n</think>b", {"</think>"}, true).text, (channels{"a", ""}));
}

TEST(text_stream, flushes_what_was_held_through_the_splitter) {
  // Held by the stop matcher as the beginning of a stop string, then by the splitter as that of a
  // tag.
  EXPECT_EQ(run("a</think>", {"</think>!"}, true).text, (channels{"a", ""}));
  EXPECT_EQ(run("a </thi", {"</thing>"}, true).text, (channels{"a </thi", ""}));
  EXPECT_EQ(run("a ST", {"STOP"}, false).text, (channels{"", "a ST"}));
  // A stop set and a tool call at the end: nothing leaks, nothing is lost.
  EXPECT_EQ(run("a\n\n<tool_call>\nx\n</tool_call>", {"</tool_call>\n"}, true).text,
            (channels{"a", "<tool_call>\nx\n</tool_call>"}));
}

TEST(text_stream, hides_control_tokens_and_never_prints_broken_text) {
  EXPECT_EQ(run("a<|im_end|>b<|endoftext|>", {}, false).text, (channels{"", "ab"}));
  EXPECT_EQ(run({'a', 0xF0, 0x9F}, {}, false).text, (channels{"", "a\uFFFD"}));
  // The flushed replacement character still passes the stop strings.
  EXPECT_EQ(run({'a', 0xF0, 0x9F}, {"\uFFFD"}, false).stop, "\uFFFD");
}

TEST(text_stream, prints_unambiguous_text_with_its_token) {
  text_stream stream(tiny(), {"STOP"}, false);
  for (std::int32_t const id : tiny().encode("the invoice date")) {
    EXPECT_EQ(stream.push(id).content, tiny().token_bytes(id));
  }
}

TEST(text_stream, ignores_ids_after_a_stop_string) {
  text_stream stream(tiny(), {"b"}, false);
  EXPECT_EQ(stream.push('a').content, "a");
  EXPECT_TRUE(stream.push('b').stopped);
  text_delta const later = stream.push('c');
  EXPECT_EQ(later.content, "");
  EXPECT_TRUE(later.stopped);
  EXPECT_EQ(stream.finish().content, "");
}

TEST(text_stream, equals_its_parts_on_whole_texts) {
  std::vector<std::string> const units = {"<think>", "</think>", "<tool_call>", "<|im_end|>",
                                          "</thi",   "a",        "\n",          " the",
                                          "STOP",    "ST",       "\u00e9",      "\U0001F638"};
  std::vector<std::vector<std::string>> const stop_sets = {
      {}, {"STOP"}, {"\n\n", "ST"}, {"</think>"}, {"\u00e9", "a the"}, {"k>"}};
  for (std::uint32_t seed = 1; seed <= 4000; ++seed) {
    testing::random_source random(seed);
    std::vector<std::int32_t> ids;
    for (std::size_t count = random.below(14); count > 0; --count) {
      if (random.below(8) == 0) {
        ids.push_back(static_cast<std::int32_t>(random.below(256)));
        continue;
      }
      auto const policy = random.below(2) == 0 ? special_policy::parse : special_policy::as_text;
      for (std::int32_t const id : tiny().encode(random.pick(units), policy)) ids.push_back(id);
    }
    auto const& stops = random.pick(stop_sets);
    bool const inside = random.below(3) > 0;
    testing::cut_text const cut = testing::stop_at_once(tiny().decode(ids, true), stops);
    outcome const out = run(ids, stops, inside);
    ASSERT_EQ(out.text, testing::split_at_once(cut.text, inside)) << "seed " << seed;
    ASSERT_EQ(out.stop, cut.stop) << "seed " << seed;
  }
}

}  // namespace
}  // namespace qwen38::text
