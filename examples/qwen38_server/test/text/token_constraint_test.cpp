// SPDX-License-Identifier: Apache-2.0
#include "text/token_constraint.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "grammar_support.hpp"
#include "support.hpp"
#include "support/error.hpp"
#include "text/answer_grammar.hpp"
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
  out.push_back(make_tool_grammar({{"int", nullptr}, {"include", nullptr}}, {true, true, true}));
  out.push_back(make_tool_grammar({{"int", nullptr}}, {false, false, false}));
  return out;
}

TEST(vocabulary, is_in_order_and_leaves_out_control_tokens) {
  std::size_t printed = 0;
  for (std::int32_t id = 0; id < testing::tiny().vocab_size(); ++id) {
    printed += testing::tiny().is_special(id) ? 0 : 1;
  }
  auto const tokens = words()->tokens();
  ASSERT_EQ(tokens.size(), printed);
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    ASSERT_LE(tokens[i - 1].bytes, tokens[i].bytes);
    auto const shared = static_cast<std::size_t>(tokens[i].shared);
    ASSERT_EQ(tokens[i - 1].bytes.substr(0, shared), tokens[i].bytes.substr(0, shared));
    ASSERT_TRUE(shared == tokens[i].bytes.size() || shared == tokens[i - 1].bytes.size() ||
                tokens[i - 1].bytes[shared] != tokens[i].bytes[shared]);
  }
}

// Every bit of every mask on random ways, against the automaton alone.
TEST(token_constraint, masks_hold_exactly_the_tokens_that_can_go_on) {
  std::size_t number = 0;
  for (byte_grammar const& grammar : grammars()) {
    testing::reader plain(grammar);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      std::mt19937_64 random(seed);
      token_constraint one({words(), testing::shared(grammar)});
      std::string text;
      for (int step = 0; step < 40; ++step) {
        auto const mask = one.mask();
        std::vector<std::int32_t> allowed;
        for (auto const& token : words()->tokens()) {
          bool const goes_on = plain.begins(text + std::string(token.bytes));
          ASSERT_EQ(holds(mask, token.id), goes_on)
              << "grammar " << number << ", seed " << seed << ", behind '" << text << "', token '"
              << token.bytes << "'";
          if (goes_on) allowed.push_back(token.id);
        }
        for (std::int32_t id = 0; id < testing::tiny().vocab_size(); ++id) {
          if (testing::tiny().is_special(id)) {
            ASSERT_FALSE(holds(mask, id)) << id;
          }
        }
        EXPECT_EQ(one.may_end(), plain.reads(text));
        EXPECT_EQ(one.must_end(), allowed.empty());
        if (allowed.empty()) break;
        auto const id = allowed[random() % allowed.size()];
        text += testing::tiny().token_bytes(id);
        one.advance(id);
      }
    }
    ++number;
  }
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
        for (auto const& token : words()->tokens()) {
          ASSERT_EQ(holds(one.mask(), token.id), plain.goes_on(*at, token.bytes))
              << token.bytes << " behind " << text.size() << " bytes";
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
