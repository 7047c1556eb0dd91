// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "api/request_fields.hpp"
#include "api/settings.hpp"
#include "engine/request.hpp"
#include "text/byte_grammar.hpp"

namespace qwen38::api {

/// What chat and text completions have in common, and what is read the same way from both.
struct generation_fields {
  engine::request request;  ///< all but id, prompt, reasoning and grammar
  bool max_tokens_given =
      false;  ///< false: request.max_tokens is the default, still to be cut to the context
  std::shared_ptr<text::byte_grammar const> grammar;  ///< of the answer; null: any
  bool stream = false;
  bool include_usage = false;
};

/// Reads model, n, sampling, limits, stops, speculation and streaming. Fields whose meaning cannot
/// be honoured are refused unless their value is neutral (n: 1, echo: false, store: false,
/// ...); unknown fields are ignored. Throws field_error.
[[nodiscard]] generation_fields read_generation_fields(request_fields const& body,
                                                       settings const& served,
                                                       model_limits const& limits);

}  // namespace qwen38::api
