// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/metrics.hpp"
#include "api/request_log.hpp"
#include "engine/request.hpp"
#include "text/chat_format.hpp"

namespace qwen38::api {

/// What a request gets where it says nothing. Sampling comes from the checkpoint's
/// generation_config.json.
struct generation_defaults {
  engine::sampling_params sampling;   ///< its seed is not used
  std::optional<std::uint64_t> seed;  ///< none: a random one per request
  /// Most tokens of an answer whose request names no limit. Cut to what the context leaves, so that
  /// a long prompt is not refused for a limit that nobody asked for.
  std::int64_t max_tokens = 4096;
  int draft_tokens = 0;        ///< MTP depth
  bool chooses_depth = false;  ///< `k` auto: the depth of each round is chosen up to that
  bool enable_thinking = true;
  std::string reasoning_effort = "xhigh";  ///< xhigh, medium or low
  text::chat_format chat_format = text::chat_format::qwen38;
};

/// What is served, and how it answers to what it is called.
struct settings {
  std::string model_id;
  std::vector<std::string> aliases;  ///< other names for the same model
  bool accept_any_model = false;     ///< true: any `model` is served; false: an unknown one is 404
  std::int64_t created = 0;          ///< seconds since 1970, in /v1/models
  std::vector<std::int32_t>
      eos_ids;  ///< generation_config.json's list; they end every answer unless ignore_eos
  generation_defaults defaults;
  std::string startup_report = "{}\n";  ///< JSON: what /v1/internal/report gives
  /// A deep /health gives up on an engine that has work and has not moved for this long. Above what
  /// one chunk of a prompt takes on the slowest machine.
  std::chrono::seconds stall_limit{60};
  std::shared_ptr<request_log> log;  ///< a line per request; null: none is kept
  /// Kernel launches so far, for /metrics: asked on the engine's thread. Empty: none are told.
  std::function<std::vector<launch_count>()> launches;
};

/// What the engine and the tokenizer behind the endpoint can do.
struct model_limits {
  std::int64_t max_context = 0;
  std::int32_t vocab_size = 0;  ///< ids that have a text
  bool supports_drafts = false;
};

}  // namespace qwen38::api
