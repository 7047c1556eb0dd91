// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "api/reply.hpp"
#include "api/settings.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::api {

/// `{"count":..,"max_model_len":..,"tokens":[..]}`, and where the body has return_token_strs
/// "token_strs": the text of each token, with U+FFFD where it is no whole UTF-8. Throws
/// field_error.
[[nodiscard]] reply tokens_reply(nlohmann::ordered_json const& body,
                                 std::span<std::int32_t const> ids, model_limits const& limits,
                                 text::tokenizer const& tokenizer);

/// Of a body with `tokens`, an array of ids: `{"prompt":..}`, their text, control tokens included.
/// Throws field_error.
[[nodiscard]] reply text_reply(nlohmann::ordered_json const& body, model_limits const& limits,
                               text::tokenizer const& tokenizer);

}  // namespace qwen38::api
