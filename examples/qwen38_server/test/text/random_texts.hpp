// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace qwen38::text::testing {

class random_source {
 public:
  explicit random_source(std::uint32_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return engine_() % limit; }
  template <class Container>
  auto const& pick(Container const& from) {
    return from[below(std::size(from))];
  }

 private:
  std::mt19937 engine_;  // not through a distribution: those differ between standard libraries
};

/// Texts that a pre-tokenizer, a normaliser or a matcher may stumble over; all assigned since
/// Unicode 12.
inline std::vector<std::string> const& interesting_texts() {
  static std::vector<std::string> const texts = {"a",
                                                 "A",
                                                 "s",
                                                 "S",
                                                 "t",
                                                 "l",
                                                 "L",
                                                 "r",
                                                 "v",
                                                 "e",
                                                 "E",
                                                 "m",
                                                 "d",
                                                 "x",
                                                 "z",
                                                 "0",
                                                 "1",
                                                 "9",
                                                 " ",
                                                 " ",
                                                 "  ",
                                                 "\t",
                                                 "\n",
                                                 "\n",
                                                 "\r",
                                                 "\r\n",
                                                 "\v",
                                                 "\f",
                                                 "'",
                                                 "'",
                                                 "''",
                                                 "-",
                                                 "_",
                                                 "<",
                                                 ">",
                                                 "|",
                                                 "/",
                                                 ".",
                                                 ",",
                                                 "\"",
                                                 "!?",
                                                 std::string(1, '\0'),
                                                 "\x1c",
                                                 "\x7f",
                                                 "\u0085",
                                                 "\u00a0",
                                                 "\u00ad",
                                                 "\u00b2",
                                                 "\u00bd",
                                                 "\u00e9",
                                                 "\u017f",
                                                 "\u0301",
                                                 "\u0323",
                                                 "\u0338",
                                                 "\u0345",
                                                 "\u0391",
                                                 "\u0410",
                                                 "\u05d0",
                                                 "\u05b0",
                                                 "\u0627",
                                                 "\u0651",
                                                 "\u0661",
                                                 "\u0915",
                                                 "\u093c",
                                                 "\u0958",
                                                 "\u0f71",
                                                 "\u1100",
                                                 "\u1161",
                                                 "\u11a8",
                                                 "\uac00",
                                                 "\u1680",
                                                 "\u2003",
                                                 "\u200b",
                                                 "\u200d",
                                                 "\u2028",
                                                 "\u202f",
                                                 "\u20ac",
                                                 "\u20dd",
                                                 "\u2126",
                                                 "\u212a",
                                                 "\u2160",
                                                 "\u3000",
                                                 "\u3007",
                                                 "\u4e00",
                                                 "\ufb05",
                                                 "\ufe0f",
                                                 "\ufeff",
                                                 "\uff01",
                                                 "\ufffd",
                                                 "\ue000",
                                                 "\U0001d7d8",
                                                 "\U0001f1e9",
                                                 "\U0001f638",
                                                 "\U00020000",
                                                 "\U0002f800",
                                                 "<|im_end|>",
                                                 "<|im_start|>",
                                                 "<think>",
                                                 "</think>",
                                                 "<tool_call>",
                                                 "'ll",
                                                 "'RE",
                                                 "'\u017f",
                                                 "the",
                                                 " invoice",
                                                 "zzzz",
                                                 "qrs"};
  return texts;
}

inline std::string random_text(random_source& random, std::size_t max_pieces) {
  std::string text;
  for (std::size_t count = random.below(max_pieces + 1); count > 0; --count)
    text += random.pick(interesting_texts());
  return text;
}

}  // namespace qwen38::text::testing
