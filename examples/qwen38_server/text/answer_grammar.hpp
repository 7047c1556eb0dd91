// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "text/byte_grammar.hpp"

namespace qwen38::text {

/// Answers that are one JSON value held to `schema`, or with null one JSON object. With
/// starts_in_reasoning any reasoning comes first: text up to </think>, without the tag of a call,
/// which would end it early, and at most two newlines behind. Throws like
/// json_grammar::add_value().
[[nodiscard]] byte_grammar make_json_grammar(nlohmann::ordered_json const* schema,
                                             bool starts_in_reasoning);

/// One function that an answer may call.
struct tool_form {
  std::string name;
  /// Of the arguments. null: parameters of any name and text.
  nlohmann::ordered_json const* schema = nullptr;
};

struct tool_grammar_options {
  bool starts_in_reasoning = false;  ///< as for make_json_grammar()
  bool required = false;  ///< the answer is calls and nothing else; false: text, then maybe calls
  bool parallel = true;   ///< false: at most one call
};

/// Answers with well-formed calls of these functions, in the format of Qwen3.8's template. With a
/// schema: parameters in its order, the required ones at least, strings as they are (lengths,
/// pattern and format are refused) and all else as JSON. Throws like json_grammar::add_value().
[[nodiscard]] byte_grammar make_tool_grammar(std::vector<tool_form> const& tools,
                                             tool_grammar_options const& options);

}  // namespace qwen38::text
