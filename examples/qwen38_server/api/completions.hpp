// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "api/generation_fields.hpp"
#include "api/settings.hpp"

namespace qwen38::api {

/// The body of POST /v1/completions: no template, no reasoning split.
struct completion_request {
  generation_fields generation;
  /// A text, in which the tokenizer's control tokens are parsed, or ids.
  std::variant<std::string, std::vector<std::int32_t>> prompt;
};

/// Translates a parsed body. prompt: a string, an array of ids, or an array of exactly one of
/// these. Throws field_error; an empty prompt and several prompts are refused.
[[nodiscard]] completion_request parse_completion_request(nlohmann::ordered_json const& body,
                                                          settings const& served,
                                                          model_limits const& limits);

}  // namespace qwen38::api
