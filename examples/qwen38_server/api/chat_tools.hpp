// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/request_fields.hpp"
#include "text/answer_grammar.hpp"
#include "text/tool_schema.hpp"

namespace qwen38::api {

/// The functions that an answer may call.
struct chat_tools {
  nlohmann::ordered_json rendered = nullptr;  ///< what the template prints; null: none
  /// For the parser of the answer; null: no calls.
  std::shared_ptr<text::tool_signatures const> signatures;
  /// What the answer is held to; null: the model is free.
  std::shared_ptr<text::byte_grammar const> grammar;
};

/// tools, tool_choice and parallel_tool_calls of a chat request.
/// - tools: functions with a name (no blanks and brackets, at most 128 bytes, none twice) and maybe
///   a schema of their parameters; other types are refused.
/// - tool_choice none: the template prints no tools and nothing is parsed. auto, the default: the
///   model decides. required, or an object that names a function: the answer is calls, of that
///   function, by grammar.
/// - strict of a function: its arguments are held to its schema by grammar, whatever the choice.
/// - parallel_tool_calls false: at most one call, by grammar.
/// Throws field_error.
[[nodiscard]] chat_tools read_chat_tools(request_fields const& body, bool starts_in_reasoning);

}  // namespace qwen38::api
