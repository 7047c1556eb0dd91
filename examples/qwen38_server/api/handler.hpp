// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/exchange.hpp"
#include "api/health.hpp"
#include "api/json_body.hpp"
#include "api/reply.hpp"
#include "api/settings.hpp"
#include "engine/service.hpp"
#include "text/tokenizer.hpp"
#include "text/vocabulary.hpp"

namespace qwen38::api {

/// The endpoint without its sockets: what an HTTP server calls. Thread-safe; outlives its
/// exchanges' submission, and the engine outlives both.
class handler {
 public:
  /// Throws qwen38::error (invalid_argument) for settings that no request could be served with.
  handler(engine::service& engine, text::tokenizer const& tokenizer, settings served);

  /// Makes the exchange of a request whose body is still to come. id: see exchange.
  [[nodiscard]] std::shared_ptr<exchange> open(endpoint kind, std::string id,
                                               std::shared_ptr<reply_sink> sink) const;

  /// Parses, renders, tokenises and submits: takes as long as the body is large. Every failure
  /// becomes the reply.
  void serve(std::shared_ptr<exchange> const& call, std::string_view body) const noexcept;

  /// POST /tokenize: the prompt that a chat completion (where the body has `messages`) or a
  /// completion would be served with. Takes as long as serve(), which this and the next are like.
  [[nodiscard]] reply tokenize(std::string_view body) const noexcept;
  /// POST /detokenize
  [[nodiscard]] reply detokenize(std::string_view body) const noexcept;

  /// GET /version
  [[nodiscard]] reply version() const;
  /// GET /metrics, in Prometheus' text format.
  [[nodiscard]] reply metrics() const;
  [[nodiscard]] reply models() const;
  [[nodiscard]] reply model(std::string_view id) const;
  /// What the start-up checks found.
  [[nodiscard]] reply report() const { return {200, served_.startup_report}; }
  /// deep: also whether the engine gets on with what it has, as far as the looks so far can tell.
  [[nodiscard]] reply health(bool deep) const;
  /// What is running or waiting goes on; new requests get 503.
  void drain() const noexcept { engine_.drain(); }

 private:
  void submit(std::shared_ptr<exchange> const& call, std::string_view body) const;
  template <class Answer>
  [[nodiscard]] reply answer(Answer const& make) const noexcept;

  engine::service& engine_;
  text::tokenizer const& tokenizer_;
  std::shared_ptr<text::vocabulary const> words_;  // of grammars
  settings const served_;
  model_limits const limits_;
  std::shared_ptr<telemetry> const traces_;  // exchanges may outlive this object
  mutable progress_watch watch_;
};

}  // namespace qwen38::api
