// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/request_fields.hpp"
#include "api/settings.hpp"
#include "engine/request.hpp"

namespace qwen38::api {

/// What chat and text completions have in common.
struct generation_fields {
  engine::request request;  ///< all but id, prompt and reasoning
  bool max_tokens_given =
      false;  ///< false: request.max_tokens is the default, still to be cut to the context
  bool stream = false;
  bool include_usage = false;
};

/// Reads model, n, sampling, limits, stops, speculation and streaming. Fields whose meaning cannot
/// be honoured are refused unless their value is neutral (n: 1, logprobs: false, store: false,
/// ...); unknown fields are ignored. Throws field_error.
[[nodiscard]] generation_fields read_generation_fields(request_fields const& body,
                                                       settings const& served,
                                                       model_limits const& limits);

}  // namespace qwen38::api
