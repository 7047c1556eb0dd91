// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>
#include <utf8proc.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "random_texts.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

/// The published pattern as PCRE2 reads it.
class oracle {
 public:
  oracle() {
    int code = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(split_pattern.data()),
                              split_pattern.size(), PCRE2_UTF | PCRE2_UCP, &code, &offset,
                              nullptr));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  std::vector<std::string_view> split(std::string_view text) {
    std::vector<std::string_view> words;
    for (std::size_t at = 0; at < text.size();) {
      int const groups = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                     text.size(), at, 0, match_.get(), nullptr);
      PCRE2_SIZE const* const range = pcre2_get_ovector_pointer(match_.get());
      if (groups < 1 || range[0] != at || range[1] <= at) {
        ADD_FAILURE() << "the pattern does not match at " << at << " of "
                      << ::testing::PrintToString(text);
        break;
      }
      words.push_back(text.substr(at, range[1] - at));
      at = range[1];
    }
    return words;
  }

 private:
  struct release {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, release> code_;
  std::unique_ptr<pcre2_match_data, release> match_;
};

using words = std::vector<std::string_view>;

TEST(pretokenizer, follows_the_pattern_by_hand) {
  EXPECT_EQ(pretokenize(""), words{});
  EXPECT_EQ(pretokenize("Hello world"), (words{"Hello", " world"}));
  EXPECT_EQ(pretokenize("a  b   c"), (words{"a", " ", " b", "  ", " c"}));
  EXPECT_EQ(pretokenize("x1234"), (words{"x", "1", "2", "3", "4"}));
  EXPECT_EQ(pretokenize("a  12"), (words{"a", " ", " ", "1", "2"}));
  EXPECT_EQ(pretokenize("it's 'SAM 'x 'LLama"),
            (words{"it", "'s", " '", "SAM", " '", "x", " '", "LLama"}));
  EXPECT_EQ(pretokenize("'SAM"), (words{"'S", "AM"}));
  EXPECT_EQ(pretokenize("'\u017fx"), (words{"'\u017f", "x"}));
  EXPECT_EQ(pretokenize("a!!\n\nb"), (words{"a", "!!\n\n", "b"}));
  EXPECT_EQ(pretokenize(" \n \n  x"), (words{" \n \n", " ", " x"}));
  EXPECT_EQ(pretokenize("a \t "), (words{"a", " \t "}));
  EXPECT_EQ(pretokenize("\u0301\u0301a"), (words{"\u0301\u0301a"}));
  EXPECT_EQ(pretokenize("\n\u0301"), (words{"\n", "\u0301"}));
  EXPECT_EQ(pretokenize("\u4f60\u597d\uff0c"), (words{"\u4f60\u597d", "\uff0c"}));
  EXPECT_EQ(pretokenize("<think>"), (words{"<think", ">"}));
  // U+180E is no blank since Unicode 6.3; PCRE2 still counts it as one.
  EXPECT_EQ(pretokenize("1\u180e\n"), (words{"1", "\u180e\n"}));
}

TEST(pretokenizer, sees_every_scalar_as_the_pattern_does) {
  oracle reference;
  int compared = 0;
  for (char32_t scalar = 0; scalar < 0x110000; ++scalar) {
    // Not assigned in utf8proc's Unicode: then it may be in PCRE2's, or the other way round.
    auto const category = utf8proc_category(static_cast<utf8proc_int32_t>(scalar));
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS || scalar == 0x180E)
      continue;
    std::string one;
    append_utf8(scalar, one);
    std::string text;
    for (std::string_view const part : {"a", "1 ", "b", ""}) text.append(part).append(one);
    text += '\n';
    auto const expected = reference.split(text);
    if (expected != pretokenize(text)) {
      // What PCRE2 does not know yet counts as `other` there.
      std::string const alone = "1" + one + "!";
      bool const unknown_to_pcre2 = reference.split(alone) == words{"1", one + "!"};
      ASSERT_TRUE(unknown_to_pcre2 && scalar > 0xFF)
          << std::hex << static_cast<std::uint32_t>(scalar);
      continue;
    }
    ++compared;
  }
  EXPECT_GT(compared, 280000);
}

TEST(pretokenizer, equals_pcre2_on_random_texts) {
  oracle reference;
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    testing::random_source random(seed);
    for (int i = 0; i < 30000; ++i) {
      std::string const text = testing::random_text(random, 16);
      ASSERT_EQ(pretokenize(text), reference.split(text)) << "seed " << seed << ", case " << i;
    }
  }
}

/// Scalars by general category, as far as PCRE2's Unicode and utf8proc's agree on them (the test
/// above holds the rest to account).
std::vector<std::vector<char32_t>> scalars_by_category(oracle& reference) {
  std::vector<std::vector<char32_t>> out;
  std::vector<std::size_t> place(UTF8PROC_CATEGORY_CO + 1, SIZE_MAX);
  for (char32_t scalar = 0; scalar < 0x110000; ++scalar) {
    auto const category = utf8proc_category(static_cast<utf8proc_int32_t>(scalar));
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS || scalar == 0x180E)
      continue;
    // 137,468 private ones would be most of the work and are all alike.
    if (category == UTF8PROC_CATEGORY_CO && scalar % 0x101 != 0) continue;
    std::string text = "1";
    append_utf8(scalar, text);
    text += "!";
    if (reference.split(text) != pretokenize(text)) continue;
    auto& index = place[static_cast<std::size_t>(category)];
    if (index == SIZE_MAX) {
      index = out.size();
      out.emplace_back();
    }
    out[index].push_back(scalar);
  }
  return out;
}

/// Runs of scalars near each other (of one script, mostly) from every category alike, and what the
/// pattern names.
std::string random_scalars(testing::random_source& random,
                           std::vector<std::vector<char32_t>> const& pools) {
  std::string text;
  for (std::size_t runs = 1 + random.below(8); runs > 0; --runs) {
    if (random.below(3) == 0) {
      text += random.pick(testing::interesting_texts());
      continue;
    }
    auto const& pool = random.pick(pools);
    std::size_t const start = random.below(pool.size());
    for (std::size_t count = 1 + random.below(4); count > 0; --count)
      append_utf8(pool[(start + random.below(32)) % pool.size()], text);
  }
  return text;
}

TEST(pretokenizer, equals_pcre2_on_random_scalars_of_every_category) {
  constexpr std::uint32_t first_seed = 1000;
  constexpr int texts_per_seed = 5000;
  constexpr int fewest_seeds = 4;
  constexpr std::chrono::seconds bound{5};
  oracle reference;
  auto const pools = scalars_by_category(reference);
  EXPECT_EQ(pools.size(), 28U);  // of 30, without unassigned ones and surrogates
  auto const end = std::chrono::steady_clock::now() + bound;
  std::uint32_t seed = first_seed;
  for (; seed < first_seed + fewest_seeds || std::chrono::steady_clock::now() < end; ++seed) {
    testing::random_source random(seed);
    for (int i = 0; i < texts_per_seed; ++i) {
      std::string const text = random_scalars(random, pools);
      ASSERT_EQ(pretokenize(text), reference.split(text))
          << "seed " << seed << ", text " << i << ": " << ::testing::PrintToString(text);
    }
  }
  std::printf("seeds %u to %u, %d texts each\n", first_seed, seed - 1, texts_per_seed);
}

TEST(pretokenizer, takes_a_long_run_in_linear_time_and_loses_nothing) {
  for (std::string const unit : {"a", " ", "\n", " \n", "!", "1", "'", "\u0301", "\u3000", " a"}) {
    std::string text;
    while (text.size() < (1U << 20)) text += unit;
    std::string joined;
    for (std::string_view const word : pretokenize(text)) joined += word;
    EXPECT_TRUE(joined == text) << ::testing::PrintToString(unit);
  }
}

}  // namespace
}  // namespace qwen38::text
