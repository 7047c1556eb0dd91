// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "api/chat_tools.hpp"
#include "api/generation_fields.hpp"
#include "api/settings.hpp"
#include "text/chat_template.hpp"

namespace qwen38::api {

/// The body of POST /v1/chat/completions.
struct chat_request {
  generation_fields generation;
  std::vector<text::message> messages;
  chat_tools tools;  ///< its grammar, if there is one, is generation.grammar
  text::chat_options options;
};

/// Translates a parsed body; a pure function of its arguments but for the seed of a request that
/// gives none. Thinking: chat_template_kwargs.enable_thinking, else enable_thinking, else the
/// default. Effort: chat_template_kwargs.reasoning_effort, else reasoning_effort; xhigh, high and
/// max mean xhigh, low and minimal low, none switches thinking off. Throws field_error.
[[nodiscard]] chat_request parse_chat_request(nlohmann::ordered_json const& body,
                                              settings const& served, model_limits const& limits);

}  // namespace qwen38::api
