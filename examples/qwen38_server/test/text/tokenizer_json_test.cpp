// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_json.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "json_file.hpp"
#include "random_texts.hpp"
#include "support.hpp"

namespace qwen38::text {
namespace {

using nlohmann::ordered_json;

/// The message for the tiny tokenizer with the value at a JSON pointer replaced by the JSON text
/// `value`, or erased where that is empty.
std::string refusal(std::string const& pointer, std::string const& value) {
  ordered_json file = testing::read_json(testing::tiny_path);
  ordered_json::json_pointer const where(pointer);
  if (value.empty()) {
    file[where.parent_pointer()].erase(where.back());
  } else {
    file[where] = ordered_json::parse(value);
  }
  return testing::error_message([&] { (void)tokenizer::from_json(file.dump(), "T"); });
}

TEST(tokenizer_json, takes_merges_as_pairs_too) {
  ordered_json file = testing::read_json(testing::tiny_path);
  for (ordered_json& merge : file["model"]["merges"]) {
    auto const both = merge.get<std::string>();
    auto const blank = both.find(' ');
    merge = ordered_json::array({both.substr(0, blank), both.substr(blank + 1)});
  }
  tokenizer const pairs = tokenizer::from_json(file.dump(), "pairs");
  testing::random_source random(3);
  for (int i = 0; i < 500; ++i) {
    std::string const text = testing::random_text(random, 20);
    ASSERT_EQ(pairs.encode(text), testing::tiny().encode(text)) << "seed 3, case " << i;
  }
}

TEST(tokenizer_json, takes_added_tokens_that_the_vocabulary_also_lists) {
  ordered_json file = testing::read_json(testing::tiny_path);
  for (auto const& token : file["added_tokens"]) {
    file["model"]["vocab"][token["content"].get<std::string>()] = token["id"];
  }
  tokenizer const both = tokenizer::from_json(file.dump(), "both");
  EXPECT_EQ(both.vocab_size(), testing::tiny().vocab_size());
  EXPECT_EQ(both.encode("a<think>b"), testing::tiny().encode("a<think>b"));
}

std::string with_config(ordered_json const& file, std::string const& config) {
  return testing::error_message([&] { (void)parse_tokenizer_json(file.dump(), "T", config, "C"); });
}

TEST(tokenizer_json, takes_added_tokens_that_only_the_configuration_lists) {
  ordered_json file = testing::read_json(testing::tiny_path);
  auto const last = file["added_tokens"].back();
  auto const first = file["added_tokens"].front();
  auto decoder = ordered_json::object();
  for (ordered_json token : {first, last}) {
    auto const id = std::to_string(token["id"].get<int>());
    token.erase("id");
    decoder[id] = token;
  }
  ordered_json const config = {{"added_tokens_decoder", decoder}};
  auto& added = file["added_tokens"];
  added.erase(added.size() - 1);
  tokenizer_data const whole = parse_tokenizer_json(testing::read_file(testing::tiny_path), "T");
  tokenizer_data const both = parse_tokenizer_json(file.dump(), "T", config.dump(), "C");
  ASSERT_EQ(both.tokens.size(), whole.tokens.size());
  EXPECT_EQ(both.tokens.back().bytes, last["content"].get<std::string>());
  EXPECT_TRUE(both.tokens.back().added);
  EXPECT_EQ(both.tokens.back().special, last["special"].get<bool>());
  EXPECT_EQ(parse_tokenizer_json(file.dump(), "T").tokens.size(), whole.tokens.size() - 1);
  EXPECT_EQ(with_config(file, "{}"), "");
}

TEST(tokenizer_json, says_what_is_wrong_with_the_configuration) {
  ordered_json const file = testing::read_json(testing::tiny_path);
  auto const decoder = [&](std::string const& inner) {
    return with_config(file, R"({"added_tokens_decoder":)" + inner + "}");
  };
  EXPECT_EQ(with_config(file, "{"), "C: is not valid JSON");
  EXPECT_EQ(with_config(file, "[]"), "C: must hold a JSON object");
  EXPECT_EQ(decoder("[]"), "C: added_tokens_decoder must be an object of id to token");
  EXPECT_EQ(decoder(R"({"1":2})"), "C: added token \"1\" must be an object");
  EXPECT_EQ(decoder(R"({"x":{"content":"a"}})"), "C: added token \"x\" has no number");
  EXPECT_EQ(decoder(R"({"1":{}})"), "C: content is missing");
  EXPECT_EQ(decoder(R"({"-1":{"content":"<new>"}})"),
            "C: token \"<new>\" has id -1, expected 0 to 4194303");
  EXPECT_EQ(decoder(R"({"1":{"content":"<think>"}})"),
            "C: added token \"<think>\" has another id in tokenizer.json");
  EXPECT_EQ(decoder(R"({"999999":{"content":"<new>","lstrip":true}})"),
            "C: added token \"<new>\" must have lstrip false");
}

TEST(tokenizer_json, takes_absent_optional_fields) {
  for (char const* pointer :
       {"/post_processor", "/truncation", "/model/type", "/model/dropout", "/model/unk_token",
        "/model/byte_fallback", "/model/ignore_merges", "/added_tokens"}) {
    EXPECT_EQ(refusal(pointer, ""), "") << pointer;
  }
}

TEST(tokenizer_json, refuses_every_other_kind_of_tokenizer_in_one_sentence) {
  struct edit {
    char const* sentence;
    char const* pointer;
    char const* value;
  };
  constexpr std::array edits = {
      edit{"T: normalizer must be NFC", "/normalizer/type", R"("NFKC")"},
      edit{"T: normalizer must be NFC", "/normalizer", "null"},
      edit{"T: normalizer is missing", "/normalizer", ""},
      edit{"T: pre_tokenizer must be a Sequence", "/pre_tokenizer", R"({"type":"ByteLevel"})"},
      edit{"T: pre_tokenizer must be a Sequence", "/pre_tokenizer/pretokenizers",
           R"({"a":1,"b":2})"},
      edit{"T: pre_tokenizer splits by another pattern",
           "/pre_tokenizer/pretokenizers/0/pattern/Regex", R"("\\d")"},
      edit{"T: pre_tokenizer splits by another pattern", "/pre_tokenizer/pretokenizers/0/pattern",
           R"({"String":" "})"},
      edit{"T: pre_tokenizer's Split must be", "/pre_tokenizer/pretokenizers/0/behavior",
           R"("Removed")"},
      edit{"T: pre_tokenizer's Split must be", "/pre_tokenizer/pretokenizers/0/invert", "true"},
      edit{"T: pre_tokenizer's ByteLevel must", "/pre_tokenizer/pretokenizers/1/add_prefix_space",
           "true"},
      edit{"T: pre_tokenizer's ByteLevel must", "/pre_tokenizer/pretokenizers/1/use_regex", "true"},
      edit{"T: pre_tokenizer's ByteLevel must", "/pre_tokenizer/pretokenizers/1/use_regex", ""},
      edit{"T: use_regex must be true or false", "/pre_tokenizer/pretokenizers/1/use_regex", "1"},
      edit{"T: post_processor must be", "/post_processor", R"({"type":"TemplateProcessing"})"},
      edit{"T: decoder must be", "/decoder/type", R"("Metaspace")"},
      edit{"T: model must be BPE", "/model/type", R"("Unigram")"},
      edit{"T: model must be BPE", "/model", "[]"},
      edit{"T: model.byte_fallback must be false", "/model/byte_fallback", "true"},
      edit{"T: model.ignore_merges must be false", "/model/ignore_merges", "true"},
      edit{"T: model.unk_token must be null", "/model/unk_token", R"("<unk>")"},
      edit{"T: model.dropout must be null", "/model/dropout", "0.1"},
      edit{"T: vocab is missing", "/model/vocab", ""},
      edit{"T: model.vocab must be an object", "/model/vocab", "1"},
      edit{"T: merges is missing", "/model/merges", ""},
      edit{"T: model.merges must be an array", "/model/merges", "1"},
      edit{"T: merge 3 must be", "/model/merges/3", R"("ab")"},
      edit{"T: merge 3 must be", "/model/merges/3", R"(["a","b","c"])"},
      edit{"T: merge 3 uses or makes a token", "/model/merges/3", R"("Q Z")"},
      edit{"stands twice", "/model/merges/3", R"("z z")"},
      edit{"T: vocabulary entry \"a b\" has a character", "/model/vocab/a b", "5000"},
      edit{"T: model.vocab has an empty token", "/model/vocab/", "5000"},
      edit{"T: id 65 has no token", "/model/vocab/A", ""},
      edit{"T: id 65 is given to two tokens", "/model/vocab/AA", "65"},
      edit{"T: token \"A\" has id -1", "/model/vocab/A", "-1"},
      edit{"T: token \"A\" has id 1.5", "/model/vocab/A", "1.5"},
      edit{"T: token \"A\" has id 18446744073709551615", "/model/vocab/A", "18446744073709551615"},
      edit{"T: added_tokens must be an array", "/added_tokens", "1"},
      edit{"T: id is missing", "/added_tokens/0/id", ""},
      edit{"T: an added token's content must be", "/added_tokens/0/content", R"("")"},
      edit{"T: added token \"<|im_start|>\" stands twice", "/added_tokens/2/content",
           R"("<|im_start|>")"},
      edit{"T: added token \"<|im_start|>\" must have lstrip false", "/added_tokens/1/lstrip",
           "true"},
      edit{"T: added token \"<|im_start|>\" must have normalized false",
           "/added_tokens/1/normalized", "true"},
      edit{"T: added token \"<think>\" has another id", "/model/vocab/<think>", "0"},
  };
  for (edit const& one : edits) {
    std::string const message = refusal(one.pointer, one.value);
    EXPECT_NE(message.find(one.sentence), std::string::npos)
        << one.pointer << " " << one.value << "\n  got: " << message;
  }
}

TEST(tokenizer_json, refuses_a_byte_without_a_token) {
  ordered_json file = testing::read_json(testing::tiny_path);
  file["model"]["vocab"].erase("A");
  file["model"]["vocab"]["AA"] = 65;
  EXPECT_EQ(testing::error_message([&] { (void)tokenizer::from_json(file.dump(), "T"); }),
            "T: byte 65 has no token");
}

// Else text, merged, could become a control token.
TEST(tokenizer_json, refuses_an_added_token_that_a_merge_makes) {
  ordered_json file = testing::read_json(testing::tiny_path);
  ordered_json token = file["added_tokens"][0];
  token["content"] = "zz";
  token["id"] = file["model"]["vocab"]["zz"];
  file["added_tokens"].push_back(token);
  std::string const message =
      testing::error_message([&] { (void)tokenizer::from_json(file.dump(), "T"); });
  EXPECT_NE(message.find("uses or makes a token that model.vocab lacks"), std::string::npos)
      << message;
}

TEST(tokenizer_json, refuses_what_is_not_json) {
  for (char const* text : {"", "{", "[]", "null", "\xFF", "{}"}) {
    EXPECT_NE(testing::error_message([&] { (void)tokenizer::from_json(text, "T"); }), "") << text;
  }
}

}  // namespace
}  // namespace qwen38::text
