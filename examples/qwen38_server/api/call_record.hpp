// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/errors.hpp"
#include "api/metrics.hpp"
#include "api/reply_writer.hpp"
#include "api/request_log.hpp"
#include "engine/request.hpp"

namespace qwen38::api {

/// Where requests leave their traces.
struct telemetry {
  metrics numbers;
  std::shared_ptr<request_log> log;  ///< null: none is kept
  /// Asked at each end of a request, on the engine's thread; may be empty.
  std::function<std::vector<launch_count>()> launches;
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

/// One request's times and counts, from its whole body to its end, for metrics and log. No text of
/// prompt or answer, nor any word that the client chose, is kept. Called by one thread at a time.
class call_record {
 public:
  /// The request has come whole.
  call_record(std::shared_ptr<telemetry> to, endpoint kind, std::string id);

  /// It is about to be handed to the engine.
  void submitted(engine::request const& wanted, bool stream);
  /// On the engine's thread.
  void output(engine::output_delta const& delta) noexcept;
  /// On the engine's thread, last.
  void finished(engine::result const& outcome, int status) noexcept;
  /// Instead of finished(), where the engine did not take it.
  void refused(error_reply const& what) noexcept;

 private:
  using time_point = std::chrono::steady_clock::time_point;

  struct parameters {
    engine::sampling_params sampling;
    std::int64_t prompt_tokens = 0;
    std::int64_t max_tokens = 0;
    bool stream = false;
    double prepare_ms = 0;  // parsing, template, tokenizer
  };

  [[nodiscard]] double milliseconds_to(time_point end) const;
  void append_head(std::string& line, int status) const;
  void append_parameters(std::string& line) const;

  std::shared_ptr<telemetry> const to_;
  endpoint const kind_;
  std::string const id_;
  std::chrono::system_clock::time_point const date_;
  time_point const came_;
  std::optional<parameters> wanted_;
  std::optional<time_point> first_token_;
  time_point last_step_;
};

}  // namespace qwen38::api
