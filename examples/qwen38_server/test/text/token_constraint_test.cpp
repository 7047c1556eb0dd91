// SPDX-License-Identifier: Apache-2.0
#include "text/token_constraint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar_support.hpp"
#include "support.hpp"
#include "support/error.hpp"
#include "text/answer_grammar.hpp"
#include "text/text_classes.hpp"
#include "text/utf8.hpp"
#include "text/vocabulary.hpp"

namespace qwen38::text {
namespace {

using json = nlohmann::ordered_json;

std::shared_ptr<vocabulary const> words() {
  static auto const made = std::make_shared<vocabulary const>(testing::tiny());
  return made;
}

bool holds(std::span<std::uint32_t const> mask, std::int32_t id) {
  auto const bit = static_cast<std::uint32_t>(id);
  return (mask[bit / 32] >> bit % 32 & 1U) != 0;
}

std::vector<byte_grammar> grammars() {
  std::vector<byte_grammar> out;
  out.push_back(make_json_grammar(nullptr, false));
  out.push_back(make_json_grammar(nullptr, true));
  json const schema =
      json::parse(R"({"type":"array","items":{"type":"string","maxLength":8},"maxItems":4})");
  out.push_back(make_json_grammar(&schema, false));
  json const letters = json::parse(R"({"type":"string","pattern":"^[a-z0-9 ]{0,12}$"})");
  out.push_back(make_json_grammar(&letters, false));
  out.push_back(make_tool_grammar({{"int", nullptr}, {"include", nullptr}}, {true, true, true}));
  out.push_back(make_tool_grammar({{"int", nullptr}}, {false, false, false}));
  return out;
}

TEST(vocabulary, is_a_tree_of_all_tokens_that_print) {
  auto const ids = words()->ids();
  std::size_t printed = 0;
  for (std::int32_t id = 0; id < testing::tiny().vocab_size(); ++id) {
    printed += testing::tiny().is_special(id) ? 0 : 1;
  }
  ASSERT_EQ(ids.size(), printed);

  auto const nodes = words()->nodes();
  ASSERT_EQ(nodes.back().first, std::ssize(ids));
  std::string path;
  std::size_t ended = 0;
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    auto const& here = nodes[i];
    ASSERT_LE(here.depth, std::ssize(path)) << "node " << i;
    path.resize(static_cast<std::size_t>(here.depth));
    path += static_cast<char>(here.byte);
    auto const behind = static_cast<std::size_t>(here.behind);
    ASSERT_GT(behind, i);
    // Those that end here, those that only begin so, and nobody else.
    std::int32_t longest = 0;
    text_classes below = 0;
    for (auto t = static_cast<std::size_t>(here.first); t < ids.size(); ++t) {
      auto const bytes = testing::tiny().token_bytes(ids[t]);
      bool const through = std::cmp_less(t, nodes[behind].first);
      ASSERT_EQ(bytes.starts_with(path), through) << "node " << i << ", token " << bytes;
      ASSERT_EQ(bytes == path, std::cmp_less(t, nodes[i + 1].first)) << "node " << i;
      if (!through) break;
      auto const rest = bytes.substr(static_cast<std::size_t>(here.depth));
      longest = std::max(longest, static_cast<std::int32_t>(rest.size()));
      below |= classes_from(rest).front();
    }
    ASSERT_EQ(here.longest, longest) << "node " << i;
    ASSERT_EQ(here.below, below) << "node " << i;
    ended += static_cast<std::size_t>(nodes[i + 1].first - here.first);
  }
  EXPECT_EQ(ended, printed);
}

TEST(text_classes, are_of_the_characters_that_begin_in_the_text) {
  auto const of = [](std::string_view text) { return classes_from(text).front(); };
  auto const bit = [](text_class one) { return static_cast<text_classes>(one); };
  using enum text_class;
  EXPECT_EQ(of("aZ 7"), bit(lower) | bit(upper) | bit(space) | bit(digit));
  EXPECT_EQ(of("\"\\<\n\t{\x7F"),
            bit(quote) | bit(backslash) | bit(less) | bit(newline) | bit(control) | bit(sign));
  EXPECT_EQ(of("\u00e9"), bit(two_bytes));
  EXPECT_EQ(of("\u4f60\u0800\uffff"), bit(three_bytes));
  EXPECT_EQ(of("\U0001f638\U0010ffff"), bit(four_bytes));
  EXPECT_EQ(of("\xE4\xBD"), bit(three_bytes)) << "broken off at the end";
  EXPECT_EQ(of("\xE4\xBD"
               "a"),
            bit(broken) | bit(lower))
      << "broken off before the end";
  for (std::string_view const bytes : {"\x80", "\xC1\x80", "\xE0\x9F\x80", "\xED\xA0\x80",
                                       "\xF0\x8F\x80\x80", "\xF4\x90\x80\x80", "\xF5", "\xFF"}) {
    EXPECT_EQ(of(bytes), bit(broken)) << ::testing::PrintToString(bytes);
  }
  EXPECT_EQ(classes_from("\u00e9"
                         "a"),
            (std::vector{bit(two_bytes) | bit(lower), bit(broken) | bit(lower), bit(lower)}));
}

/// Pieces of text of each kind, and what begins with the first bytes of a character.
std::string piece_of(text_class kind, std::mt19937_64& random) {
  std::string out;
  if (kind == text_class::broken) return {static_cast<char>(0x80 + random() % 128)};
  for (;;) {
    char32_t scalar = static_cast<char32_t>(random() % 0x80);
    if (kind == text_class::two_bytes) scalar = 0x80 + static_cast<char32_t>(random() % 0x780);
    if (kind == text_class::three_bytes) scalar = 0x800 + static_cast<char32_t>(random() % 0xF800);
    if (kind == text_class::four_bytes)
      scalar = 0x10000 + static_cast<char32_t>(random() % 0x100000);
    if (scalar >= 0xD800 && scalar <= 0xDFFF) continue;
    out.clear();
    append_utf8(scalar, out);
    if (classes_from(out).front() == static_cast<text_classes>(kind)) return out;
  }
}

// What reads_all() promises is followed byte by byte; and where all may come it is seen.
TEST(byte_automaton, reads_all_is_true_only_where_every_such_text_may_follow) {
  json const counted = json::parse(R"({"type":"string","maxLength":5})");
  auto all = grammars();
  all.push_back(make_json_grammar(&counted, false));
  int promised = 0;
  for (std::size_t number = 0; number < all.size(); ++number) {
    byte_automaton automaton(testing::shared(all[number]));
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      std::mt19937_64 random(seed);
      auto at = automaton.start();
      for (auto steps = random() % 60; steps > 0; --steps) {
        auto const byte = static_cast<unsigned char>("\"abz{}[]:, 10<\\\n"[random() % 16]);
        if (auto const next = automaton.step(at, byte); next != byte_automaton::dead) at = next;
      }
      auto const kinds = static_cast<text_classes>(random() & random() & 0x3FFF);
      auto const longest = static_cast<std::int32_t>(random() % 9);
      if (!automaton.reads_all(at, kinds, longest)) continue;
      for (int attempt = 0; attempt < 30; ++attempt) {
        std::string text;
        for (std::int32_t i = 0; i < longest && kinds != 0; ++i) {
          auto bit = random() % 14;
          while ((kinds >> bit & 1U) == 0) bit = (bit + 1) % 14;
          text += piece_of(static_cast<text_class>(1U << bit), random);
        }
        auto state = at;
        for (char const c : text) {
          state = automaton.step(state, static_cast<unsigned char>(c));
          ASSERT_NE(state, byte_automaton::dead)
              << "grammar " << number << ", seed " << seed << ", kinds " << kinds << ", "
              << ::testing::PrintToString(text);
        }
        promised += text.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(promised, 1000);

  byte_automaton automaton(testing::shared(make_json_grammar(&counted, false)));
  auto const letters = static_cast<text_classes>(text_class::lower) |
                       static_cast<text_classes>(text_class::three_bytes);
  auto inside = automaton.step(automaton.start(), '"');
  EXPECT_TRUE(automaton.reads_all(inside, letters, 5));
  EXPECT_FALSE(automaton.reads_all(inside, letters, 6)) << "the string is full after five";
  EXPECT_FALSE(automaton.reads_all(inside, ~text_classes{0}, 1)) << "a quote leads elsewhere";
  inside = automaton.step(inside, 'a');
  EXPECT_TRUE(automaton.reads_all(inside, letters, 4));
  EXPECT_FALSE(automaton.reads_all(inside, letters, 5));
}

// Every bit of every mask on random ways, against the automaton alone.
void check_masks(std::shared_ptr<vocabulary const> const& vocabulary, std::uint64_t seeds,
                 int steps) {
  auto const& source = vocabulary->source();
  std::size_t number = 0;
  for (byte_grammar const& grammar : grammars()) {
    testing::reader plain(grammar);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      std::mt19937_64 random(seed);
      token_constraint one({vocabulary, testing::shared(grammar)});
      std::string text;
      for (int step = 0; step < steps; ++step) {
        auto const mask = one.mask();
        auto const at = plain.after(text);
        ASSERT_TRUE(at.has_value()) << text;
        std::vector<std::int32_t> allowed;
        for (std::int32_t id = 0; id < source.vocab_size(); ++id) {
          auto const bytes = source.token_bytes(id);
          bool const goes_on =
              !source.is_special(id) && !bytes.empty() && plain.goes_on(*at, bytes);
          ASSERT_EQ(holds(mask, id), goes_on)
              << "grammar " << number << ", seed " << seed << ", behind '" << text << "', token '"
              << bytes << "'";
          if (goes_on) allowed.push_back(id);
        }
        EXPECT_EQ(one.may_end(), plain.reads(text));
        EXPECT_EQ(one.must_end(), allowed.empty());
        if (allowed.empty()) break;
        auto const id = allowed[random() % allowed.size()];
        text += source.token_bytes(id);
        one.advance(id);
      }
    }
    ++number;
  }
}

TEST(token_constraint, masks_hold_exactly_the_tokens_that_can_go_on) {
  check_masks(words(), 6, 40);
}

// Thousands of tokens of many scripts, so that whole branches of the tree come at once.
TEST(token_constraint, masks_are_exact_over_a_part_of_a_real_vocabulary) {
  static auto const source = tokenizer::from_file("golden/real_vocabulary_subset.json");
  check_masks(std::make_shared<vocabulary const>(source), 6, 25);
}

// More states and masks than are kept.
TEST(token_constraint, forgetting_changes_nothing) {
  json const schema =
      json::parse(R"({"type":"array","items":{"type":"string","maxLength":3000},"maxItems":3})");
  auto const grammar = testing::shared(make_json_grammar(&schema, false));
  token_constraint one({words(), grammar});
  testing::reader plain(*grammar);
  std::string text;
  auto const add = [&](std::string const& piece, bool whole_masks) {
    for (std::int32_t const id : testing::tiny().encode(piece)) {
      ASSERT_TRUE(holds(one.mask(), id)) << text.size();
      if (whole_masks) {
        auto const at = plain.after(text);
        for (std::int32_t const token : words()->ids()) {
          auto const bytes = testing::tiny().token_bytes(token);
          ASSERT_EQ(holds(one.mask(), token), plain.goes_on(*at, bytes))
              << bytes << " behind " << text.size() << " bytes";
        }
      }
      one.advance(id);
      text += testing::tiny().token_bytes(id);
    }
  };
  add("[\"ab\", \"", true);
  for (int i = 0; i < 2990; ++i) add(i % 2 == 0 ? "a" : "b", i % 300 == 0);
  add("\",\"", true);
  for (int i = 0; i < 2980; ++i) add(i % 2 == 0 ? "x" : "y", i % 300 == 0);
  for (int i = 0; i < 20; ++i) add("z", true);
  add("\"]", true);
  EXPECT_TRUE(one.may_end() && one.must_end());
}

TEST(token_constraint, a_token_that_was_not_allowed_is_an_error) {
  token_constraint one({words(), testing::shared(make_json_grammar(nullptr, false))});
  EXPECT_THROW(one.advance(testing::tiny().encode("x").front()), error);
  EXPECT_THROW(one.advance(*testing::tiny().token_to_id("<|im_end|>")), error);
  EXPECT_NO_THROW(one.advance(testing::tiny().encode("{").front()));
}

}  // namespace
}  // namespace qwen38::text
