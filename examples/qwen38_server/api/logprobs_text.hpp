// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/request.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::api {

/// `{"content":[{"token":..,"logprob":..,"bytes":[..],"top_logprobs":[..]},..],"refusal":null}`, as
/// chats have it. `token` shows bytes that are no whole UTF-8 as U+FFFD; `bytes` are exact.
void append_chat_logprobs(std::string& out, text::tokenizer const& tokenizer,
                          std::span<engine::token_logprobs const> tokens);

/// `{"tokens":[..],"token_logprobs":[..],"top_logprobs":[{..},..],"text_offset":[..]}`, as
/// completions have it; top_logprobs is null where none were asked for. A token that is no whole
/// UTF-8 is shown as `bytes:\xe2\x82`. text_offset counts characters from the beginning of the
/// text; `offset` is where this part begins and is moved to its end.
void append_completion_logprobs(std::string& out, text::tokenizer const& tokenizer,
                                std::span<engine::token_logprobs const> tokens,
                                std::int64_t& offset);

}  // namespace qwen38::api
