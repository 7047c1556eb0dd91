// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "json_file.hpp"
#include "random_texts.hpp"
#include "support.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

using testing::tiny;

/// One id per byte: the tiny tokenizer's first 256 ids are the bytes.
std::vector<std::string> pieces_of(std::string_view bytes) {
  detokenizer stream(tiny());
  std::vector<std::string> pieces;
  for (char const c : bytes) pieces.push_back(stream.push(static_cast<unsigned char>(c)));
  pieces.push_back(stream.finish());
  return pieces;
}

using pieces = std::vector<std::string>;

TEST(detokenizer, holds_a_scalar_until_its_last_byte) {
  EXPECT_EQ(pieces_of("a\u00e9"), (pieces{"a", "", "\u00e9", ""}));
  EXPECT_EQ(pieces_of("\u65e5x"), (pieces{"", "", "\u65e5", "x", ""}));
  EXPECT_EQ(pieces_of("\U0001F638"), (pieces{"", "", "", "\U0001F638", ""}));
}

TEST(detokenizer, prints_an_emoji_once_however_tokens_cut_it) {
  // Merges of one, two and three bytes of U+1F638, as a vocabulary may hold them.
  for (std::string_view const cut : {"1111", "22", "31", "13", "211", "112", "121", "4"}) {
    auto file = testing::read_json(testing::tiny_path);
    file["added_tokens"] = nlohmann::ordered_json::array();
    auto& vocab = file["model"]["vocab"];
    vocab = nlohmann::ordered_json::object();
    auto const base = testing::read_json(testing::tiny_path)["model"]["vocab"];
    for (auto const& [key, id] : base.items()) {
      if (id < 256) vocab[key] = id;
    }
    file["model"]["merges"] = nlohmann::ordered_json::array();
    auto const spelled = [&](std::string_view bytes) {
      std::string key;
      for (char const c : bytes) {
        for (auto const& [name, id] : base.items()) {
          if (id == static_cast<unsigned char>(c)) key += name;
        }
      }
      return key;
    };
    std::string_view const emoji = "\U0001F638";
    std::vector<std::string> parts;
    for (std::size_t at = 0, i = 0; i < cut.size();
         at += static_cast<std::size_t>(cut[i++] - '0')) {
      parts.push_back(spelled(emoji.substr(at, static_cast<std::size_t>(cut[i] - '0'))));
      if (!vocab.contains(parts.back())) vocab[parts.back()] = vocab.size();
    }
    tokenizer const source = tokenizer::from_json(file.dump(), "emoji");
    detokenizer stream(source);
    std::string printed;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::string const piece = stream.push(vocab[parts[i]].get<std::int32_t>());
      EXPECT_EQ(piece, i + 1 == parts.size() ? emoji : "") << cut;
      printed += piece;
    }
    EXPECT_EQ(printed + stream.finish(), emoji) << cut;
  }
}

TEST(detokenizer, keeps_joined_and_flag_sequences_whole) {
  for (std::string const text : {"\U0001F468\u200D\U0001F469\u200D\U0001F467",
                                 "\U0001F1E9\U0001F1EA", "\u4f60\u597d", "e\u0301"}) {
    std::string joined;
    for (std::string const& piece : pieces_of(text)) {
      EXPECT_EQ(piece, repair_utf8(piece));
      joined += piece;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(detokenizer, goes_on_after_ill_formed_bytes) {
  EXPECT_EQ(pieces_of("\xC0\x80z"), (pieces{"\uFFFD", "\uFFFD", "z", ""}));
  EXPECT_EQ(pieces_of("\xED\xA0\x80"), (pieces{"", "\uFFFD\uFFFD", "\uFFFD", ""}));
  EXPECT_EQ(pieces_of("\xF4\x90\x80\x80"), (pieces{"", "\uFFFD\uFFFD", "\uFFFD", "\uFFFD", ""}));
  EXPECT_EQ(pieces_of("\x80"), (pieces{"\uFFFD", ""}));
  EXPECT_EQ(pieces_of("\xF0\x9F\x98"), (pieces{"", "", "", "\uFFFD"}));
  EXPECT_EQ(pieces_of("\xF0\x9Fz"), (pieces{"", "", "\uFFFDz", ""}));
}

TEST(detokenizer, hides_control_tokens_and_prints_think_and_tool_tags) {
  detokenizer stream(tiny());
  std::string printed;
  for (std::int32_t const id :
       tiny().encode("<|im_start|>a<think>b</think><tool_call><|endoftext|>c<|im_end|>"))
    printed += stream.push(id);
  EXPECT_EQ(printed, "a<think>b</think><tool_call>c");
  // A hidden token does not cut a scalar.
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.push(tiny().token_to_id("<|im_end|>").value()), "");
  EXPECT_EQ(stream.push(0xA9), "\u00e9");
}

TEST(detokenizer, equals_decode_on_random_ids_and_prints_whole_scalars_only) {
  for (std::uint32_t seed = 1; seed <= 3000; ++seed) {
    testing::random_source random(seed);
    std::vector<std::int32_t> ids(random.below(40));
    for (auto& id : ids)
      id = static_cast<std::int32_t>(random.below(static_cast<std::size_t>(tiny().vocab_size())));
    detokenizer stream(tiny());
    std::string printed;
    for (std::int32_t const id : ids) {
      std::string const piece = stream.push(id);
      ASSERT_EQ(piece, repair_utf8(piece)) << "seed " << seed;
      printed += piece;
    }
    ASSERT_EQ(printed + stream.finish(), tiny().decode(ids, true)) << "seed " << seed;
  }
}

TEST(detokenizer, refuses_ids_without_a_text) {
  detokenizer stream(tiny());
  EXPECT_THROW((void)stream.push(tiny().vocab_size()), error);
}

}  // namespace
}  // namespace qwen38::text
