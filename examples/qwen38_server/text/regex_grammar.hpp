// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "text/byte_grammar.hpp"
#include "text/json_chars.hpp"

namespace qwen38::text {

/// Reads, as it stands inside a JSON string, a text in which `pattern` matches, as JSON Schema
/// means it: anywhere, unless ^ and $ stand at the ends of a branch. Served: characters, `.`,
/// classes [] of ASCII characters and ranges, \d \D \w \W \s \S, escapes of punctuation and \n \r
/// \t \f \v, groups (...) and (?:...), |, and the quantifiers * + ? {m} {m,} {m,n}. Throws
/// qwen38::error: unsupported for anything else that regular expressions have (backreferences,
/// look-around, \b, lazy quantifiers, Unicode classes), invalid_argument for a broken pattern; the
/// sentence names what it is and where.
void add_regex(byte_grammar& grammar, byte_grammar::node from, std::string_view pattern,
               json_form form, byte_grammar::node to);

}  // namespace qwen38::text
