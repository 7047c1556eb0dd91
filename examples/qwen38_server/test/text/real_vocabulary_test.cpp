// SPDX-License-Identifier: Apache-2.0
// Encodings over a real Qwen vocabulary. The committed subset holds every token that its texts can
// reach; check_real_vocabulary.sh names the whole vocabulary and fresh texts in the environment.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "json_file.hpp"
#include "support.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

using ids = std::vector<std::int32_t>;

std::string from_environment(char const* name, char const* fallback) {
  char const* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? fallback : value;
}

std::string from_hex(std::string const& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

class real_vocabulary : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string const path =
        from_environment("QWEN38_REAL_TOKENIZER", "golden/real_vocabulary_subset.json");
    // Not ordered: that kind finds each of 151,643 keys by looking at all before it.
    auto const file = nlohmann::json::parse(testing::read_file(path));
    source = new tokenizer(tokenizer::from_file(path));
    if (file.contains("real_ids")) {
      real_ids = file["real_ids"].get<ids>();
    } else {
      for (std::int32_t id = 0; id < source->vocab_size(); ++id) real_ids.push_back(id);
    }
    for (auto const& token : file["added_tokens"])
      added.push_back(token["content"].get<std::string>());
    for (auto const& line : testing::read_json(
             from_environment("QWEN38_REAL_ENCODINGS", "golden/real_encodings.json"))) {
      texts.push_back(line.contains("hex") ? from_hex(line["hex"].get<std::string>())
                                           : line["text"].get<std::string>());
      expected.push_back(line["ids"].get<ids>());
    }
  }
  static void TearDownTestSuite() { delete source; }

  static ids in_real_ids(ids const& own) {
    ids out;
    for (std::int32_t const id : own) out.push_back(real_ids.at(static_cast<std::size_t>(id)));
    return out;
  }

  static tokenizer const* source;
  static ids real_ids;
  static std::vector<std::string> added;
  static std::vector<std::string> texts;
  static std::vector<ids> expected;
};

tokenizer const* real_vocabulary::source = nullptr;
ids real_vocabulary::real_ids;
std::vector<std::string> real_vocabulary::added;
std::vector<std::string> real_vocabulary::texts;
std::vector<ids> real_vocabulary::expected;

TEST_F(real_vocabulary, gives_the_ids_of_hugging_face_tokenizers) {
  ASSERT_GE(texts.size(), 2000U);
  ASSERT_EQ(real_ids.size(), static_cast<std::size_t>(source->vocab_size()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(in_real_ids(source->encode(texts[i])), expected[i])
        << "text " << i << ": " << ::testing::PrintToString(texts[i]);
  }
}

TEST_F(real_vocabulary, gives_each_text_back_from_its_ids) {
  for (std::string const& text : texts) {
    // Between added tokens each part is normalised for itself.
    EXPECT_EQ(nfc(source->decode(source->encode(text), false)), nfc(repair_utf8(text)));
    ids const as_text = source->encode(text, special_policy::as_text);
    EXPECT_EQ(source->decode(as_text, true), nfc(repair_utf8(text)));
    for (std::int32_t const id : as_text)
      EXPECT_LT(id, source->vocab_size() - static_cast<std::int32_t>(added.size()));
  }
}

TEST_F(real_vocabulary, has_each_added_token_as_one_id_only_when_parsed) {
  ASSERT_EQ(added.size(), 26U);
  for (std::string const& token : added) {
    auto const id = source->token_to_id(token);
    ASSERT_TRUE(id.has_value()) << token;
    EXPECT_EQ(source->encode(token), ids{*id}) << token;
    EXPECT_GT(source->encode(token, special_policy::as_text).size(), 1U) << token;
    ids const between = source->encode("a" + token + "b");
    ASSERT_EQ(between.size(), 3U) << token;
    EXPECT_EQ(between[1], *id) << token;
  }
}

}  // namespace
}  // namespace qwen38::text
