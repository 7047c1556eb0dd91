// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "encoding_golden.hpp"
#include "json_file.hpp"
#include "random_texts.hpp"
#include "support.hpp"
#include "text/pretokenizer.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

using ids = std::vector<std::int32_t>;
using testing::tiny;

/// BPE by its definition, on the file's own strings: again and again the leftmost pair of lowest
/// rank.
class naive_bpe {
 public:
  naive_bpe() : vocabulary_(testing::read_json(testing::tiny_path)["model"]["vocab"]) {
    auto const file = testing::read_json(testing::tiny_path);
    int rank = 0;
    for (auto const& merge : file["model"]["merges"]) {
      auto const both = merge.get<std::string>();
      auto const blank = both.find(' ');
      ranks_[{both.substr(0, blank), both.substr(blank + 1)}] = rank++;
    }
    char32_t other = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      bool const itself = (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte != 173);
      append_utf8(itself ? byte : other++, alphabet_[byte]);
    }
  }

  [[nodiscard]] ids encode(std::string_view word) const {
    std::vector<std::string> parts;
    for (char const c : word) parts.push_back(alphabet_[static_cast<unsigned char>(c)]);
    for (;;) {
      int best = INT32_MAX;
      std::size_t where = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        auto const found = ranks_.find({parts[i], parts[i + 1]});
        if (found == ranks_.end() || found->second >= best) continue;
        best = found->second;
        where = i;
      }
      if (best == INT32_MAX) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
    ids out;
    for (std::string const& part : parts) out.push_back(vocabulary_.at(part).get<std::int32_t>());
    return out;
  }

 private:
  nlohmann::ordered_json vocabulary_;
  std::map<std::pair<std::string, std::string>, int> ranks_;
  std::array<std::string, 256> alphabet_;
};

std::int32_t id_of(std::string_view text) {
  return tiny().token_to_id(text).value();
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

TEST(tokenizer, gives_the_ids_of_hugging_face_tokenizers) {
  testing::expect_hf_encodings(testing::tiny_path, "golden/tiny_hf_encodings.json");
}

TEST(tokenizer, merges_like_the_quadratic_definition) {
  naive_bpe const reference;
  std::vector<std::string> const units = {
      "z", "zz", "q",  "r",      "s",      "a",      "e",          "i",    "n",    "o",
      "t", "th", "in", "\u00e9", "\u65e5", "\u672c", "\U0001f638", "\xF0", "\x80", "\u041f\u0440"};
  testing::random_source random(11);
  auto const added_free = [](std::string_view word) {
    return word.find('<') == std::string_view::npos;
  };
  for (int i = 0; i < 20000; ++i) {
    std::string word;
    for (std::size_t count = random.below(30); count > 0; --count) word += random.pick(units);
    word = repair_utf8(word);
    ASSERT_TRUE(added_free(word));
    ids expected;
    std::string const normal = nfc(word);
    for (std::string_view const part : pretokenize(normal)) {
      for (std::int32_t const id : reference.encode(part)) expected.push_back(id);
    }
    ASSERT_EQ(tiny().encode(word), expected)
        << "seed 11, case " << i << ": " << ::testing::PrintToString(word);
  }
  for (std::string_view const unit : {"z", "the", "qrs", "\u65e5\u672c"}) {
    std::string const word = repeated(unit, 1500);
    ASSERT_EQ(tiny().encode(word), reference.encode(word)) << unit;
  }
}

TEST(tokenizer, takes_a_megabyte_of_anything) {
  for (std::string_view const unit : {"z", "a", " ", "\n", "<", "<|im_end|", "<|im_end|>", "'", "1",
                                      "\u00e9", "\u0301", "\xFF", "the "}) {
    std::string const text = repeated(unit, std::size_t{1} << 20);
    EXPECT_TRUE(tiny().decode(tiny().encode(text), false) == nfc(repair_utf8(text)))
        << ::testing::PrintToString(unit);
  }
}

TEST(tokenizer, finds_the_leftmost_longest_added_token_in_raw_text) {
  EXPECT_EQ(tiny().encode("<|im_start|>user"), ids{id_of("<|im_start|>user")});
  ids shorter = tiny().encode("use");
  shorter.insert(shorter.begin(), id_of("<|im_start|>"));
  EXPECT_EQ(tiny().encode("<|im_start|>use"), shorter);
  EXPECT_EQ(tiny().encode("<<think>"), (ids{id_of("<"), id_of("<think>")}));
  // Before normalisation: the decomposed spelling is another text.
  EXPECT_EQ(tiny().encode("<|\u00e9|>"), ids{id_of("<|\u00e9|>")});
  EXPECT_GT(tiny().encode("<|e\u0301|>").size(), 1U);
}

TEST(tokenizer, as_text_makes_no_added_token_of_anything) {
  testing::random_source random(5);
  for (int i = 0; i < 5000; ++i) {
    std::string const text = testing::random_text(random, 12);
    ids const out = tiny().encode(text, special_policy::as_text);
    ASSERT_TRUE(
        std::none_of(out.begin(), out.end(), [](std::int32_t id) { return testing::is_added(id); }))
        << "seed 5, case " << i;
    ASSERT_EQ(tiny().decode(out, true), nfc(text)) << "seed 5, case " << i;
  }
}

TEST(tokenizer, cuts_between_pieces_of_one_policy_leave_no_trace) {
  testing::random_source random(6);
  for (int i = 0; i < 5000; ++i) {
    std::string const text = testing::random_text(random, 12);
    for (special_policy const policy : {special_policy::parse, special_policy::as_text}) {
      std::vector<text_piece> pieces;
      for (std::size_t begin = 0; begin < text.size();) {
        std::size_t end = begin + 1 + random.below(6);
        // Between scalars: pieces are valid UTF-8 each.
        while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
        pieces.push_back({std::string_view(text).substr(begin, end - begin), policy});
        begin = std::min(end, text.size());
      }
      ASSERT_EQ(tiny().encode(pieces), tiny().encode(text, policy)) << "seed 6, case " << i;
    }
  }
}

TEST(tokenizer, client_pieces_join_their_neighbours_but_never_complete_a_token) {
  auto const encode = [](std::vector<text_piece> const& pieces) { return tiny().encode(pieces); };
  auto constexpr parse = special_policy::parse;
  auto constexpr as_text = special_policy::as_text;
  // "\n\n" and " invoice" span the cuts.
  EXPECT_EQ(encode({{"<think>\n", parse}, {"\n the", as_text}, {" invoice", parse}}),
            tiny().encode("<think>\n\n the invoice"));
  EXPECT_EQ(encode({{"=", parse}, {"\u0338", as_text}}), tiny().encode("\u2260"));
  for (std::vector<text_piece> const& pieces :
       {std::vector<text_piece>{{"<thi", as_text}, {"nk>", parse}},
        {{"<thi", parse}, {"nk>", as_text}},
        {{"<th", parse}, {"in", as_text}, {"k>", parse}},
        {{"<think>", as_text}}}) {
    EXPECT_EQ(encode(pieces), tiny().encode("<think>", as_text));
  }
  EXPECT_EQ(encode({{"<think>", parse},
                    {"<think>", as_text},
                    {"<thi", parse},
                    {"", as_text},
                    {"nk>", parse}})
                .front(),
            id_of("<think>"));
}

TEST(tokenizer, reads_ill_formed_text_as_replacement_characters) {
  for (std::string_view const bytes : {"a\xC0\x80z", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80",
                                       "the \xF0\x9F\x98", "<think\xFF>"}) {
    EXPECT_EQ(tiny().encode(bytes), tiny().encode(repair_utf8(bytes)))
        << ::testing::PrintToString(bytes);
  }
}

TEST(tokenizer, knows_its_tokens) {
  auto const file = testing::read_json(testing::tiny_path);
  auto const added = file["added_tokens"];
  EXPECT_EQ(static_cast<std::size_t>(tiny().vocab_size()),
            file["model"]["vocab"].size() + added.size());
  ASSERT_EQ(added.size(), testing::tiny_added.size());
  for (auto const& token : added) {
    EXPECT_TRUE(testing::is_added(token["id"].get<std::int32_t>()));
    auto const id = token["id"].get<std::int32_t>();
    EXPECT_EQ(tiny().token_bytes(id), token["content"].get<std::string>());
    EXPECT_EQ(tiny().token_to_id(token["content"].get<std::string>()), id);
    EXPECT_EQ(tiny().is_special(id), token["special"].get<bool>());
  }
  for (std::int32_t id = 0; id < tiny().vocab_size(); ++id)
    EXPECT_EQ(tiny().token_to_id(tiny().token_bytes(id)), id);
  EXPECT_EQ(tiny().token_bytes(0x20), " ");
  EXPECT_EQ(tiny().token_bytes(0xFF), "\xFF");
  EXPECT_EQ(tiny().token_to_id("no such token"), std::nullopt);
  EXPECT_FALSE(tiny().is_special(-1));
  EXPECT_FALSE(tiny().is_special(tiny().vocab_size()));
}

TEST(tokenizer, refuses_ids_without_a_text) {
  for (std::int32_t const id : {-1, tiny().vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_NE(
        testing::error_message([&] { (void)tiny().token_bytes(id); }).find(std::to_string(id)),
        std::string::npos);
    EXPECT_THROW((void)tiny().decode(ids{id}, true), error);
  }
}

TEST(tokenizer, decode_hides_control_tokens_only_when_asked) {
  ids const all = tiny().encode("<|im_start|>a<think>b</think>c<|im_end|>");
  EXPECT_EQ(tiny().decode(all, false), "<|im_start|>a<think>b</think>c<|im_end|>");
  EXPECT_EQ(tiny().decode(all, true), "a<think>b</think>c");
  EXPECT_EQ(tiny().decode(ids{0xF0, 0x9F}, true), "\uFFFD");
}

TEST(tokenizer, says_which_file_is_missing) {
  EXPECT_EQ(testing::error_message([] { (void)tokenizer::from_file("fixtures/none.json"); }),
            "fixtures/none.json: no such file; a tokenizer.json was expected");
  EXPECT_NE(testing::error_message([] { (void)tokenizer::from_file("fixtures"); }), "");
}

}  // namespace
}  // namespace qwen38::text
