// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <span>
#include <string>
#include <string_view>

#include "text/byte_grammar.hpp"

namespace qwen38::text {

/// How a grammar spells the characters of JSON strings. Inside the tags of a tool call, `<` is
/// written as \u003c, so that no string can look like the end of its parameter.
enum class json_form { plain, inside_tags };

/// `text` in quotes, escaped where it must be.
[[nodiscard]] std::string quoted_json(std::string_view text, json_form form);

/// A set of characters: single ASCII ones, and all others together.
struct char_set {
  std::bitset<128> ascii;
  bool others = false;
};

/// Reads one character of the set as it stands inside a JSON string, in its shortest spelling.
void add_char_of(byte_grammar& grammar, byte_grammar::node from, char_set const& set,
                 json_form form, byte_grammar::node to);

/// Reads one character of a JSON string in any of its spellings; escapes of surrogates come in
/// pairs.
void add_json_char(byte_grammar& grammar, byte_grammar::node from, json_form form,
                   byte_grammar::node to);

/// Reads a member's name, in quotes and without escapes, that is none of `names`.
void add_other_name(byte_grammar& grammar, byte_grammar::node from,
                    std::span<std::string const> names, json_form form, byte_grammar::node to);

}  // namespace qwen38::text
