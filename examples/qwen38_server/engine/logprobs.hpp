// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "engine/request.hpp"

namespace qwen38::engine {

/// logits: [n], finite, one per valid id; id is one of them. `top`: how many of the likeliest to
/// name, at most n. The sum runs in the order of the ids, in double, so the result is a function of
/// the row alone.
[[nodiscard]] token_logprobs logprobs_of(std::span<float const> logits, std::int32_t id, int top);

}  // namespace qwen38::engine
