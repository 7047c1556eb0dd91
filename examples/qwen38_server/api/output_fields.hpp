// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "api/request_fields.hpp"
#include "text/byte_grammar.hpp"

namespace qwen38::api {

/// response_format: text; json_object, also with a `schema` of its own; json_schema, whose
/// json_schema.schema the answer is held to, strict or not. null: text. See text::json_grammar for
/// what of JSON Schema is served. Throws field_error.
[[nodiscard]] std::shared_ptr<text::byte_grammar const> read_response_format(
    request_fields const& body, bool starts_in_reasoning);

/// logprobs: true and top_logprobs from 0 to 20, of a chat; none: not asked for.
[[nodiscard]] std::optional<int> read_chat_logprobs(request_fields const& body);

/// logprobs from 0 to 20, of a completion; false asks for none.
[[nodiscard]] std::optional<int> read_completion_logprobs(request_fields const& body);

/// thinking_budget, thinking_token_budget or chat_template_kwargs.thinking_budget: most tokens of
/// reasoning; where several are given they must agree.
[[nodiscard]] std::optional<std::int64_t> read_thinking_budget(request_fields const& body);

}  // namespace qwen38::api
