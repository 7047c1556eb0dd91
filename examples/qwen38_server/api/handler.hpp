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

  [[nodiscard]] reply models() const;
  [[nodiscard]] reply model(std::string_view id) const;
  /// deep: also whether the engine gets on with what it has, as far as the looks so far can tell.
  [[nodiscard]] reply health(bool deep) const;
  /// What is running or waiting goes on; new requests get 503.
  void drain() const noexcept { engine_.drain(); }

 private:
  void submit(std::shared_ptr<exchange> const& call, std::string_view body) const;

  engine::service& engine_;
  text::tokenizer const& tokenizer_;
  std::shared_ptr<text::vocabulary const> words_;  // of grammars
  settings const served_;
  model_limits const limits_;
  mutable progress_watch watch_;
};

}  // namespace qwen38::api
