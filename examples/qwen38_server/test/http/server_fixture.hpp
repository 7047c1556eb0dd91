// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "api/handler.hpp"
#include "http/server.hpp"
#include "test/api/api_fixture.hpp"
#include "test/http/raw_client.hpp"
#include "test/support/byte_tokenizer.hpp"
#include "test/support/scripted_service.hpp"

namespace qwen38::test {

/// A server on a free port of the loopback address, in front of a scripted engine.
class running_server {
 public:
  explicit running_server(scripted_service::author write, http::options wanted = {},
                          scripted_service::options engine_options = {})
      : engine(std::move(write), engine_options),
        tokenizer(make_byte_tokenizer()),
        requests(engine, tokenizer, api::served_settings()),
        server(requests, on_free_port(std::move(wanted))),
        thread_([this] { server.run(); }) {}
  ~running_server() { stop(); }
  running_server(running_server const&) = delete;
  running_server& operator=(running_server const&) = delete;

  [[nodiscard]] std::uint16_t port() const { return server.port(); }
  void stop() {
    server.stop();
    wait_until_ended();
  }
  /// Until run() has returned.
  void wait_until_ended() {
    if (thread_.joinable()) thread_.join();
  }

  scripted_service engine;
  text::tokenizer tokenizer;
  api::handler requests;
  http::server server;

 private:
  static http::options on_free_port(http::options wanted) {
    wanted.port = 0;
    return wanted;
  }
  std::thread thread_;
};

/// Answers every request with two pieces of content.
inline script short_answer(engine::request const& wanted) {
  script out;
  out.steps = {content_delta("Hel"), content_delta("lo")};
  out.outcome.usage.prompt_tokens = static_cast<std::int64_t>(wanted.prompt_ids.size());
  out.outcome.usage.completion_tokens = 3;
  return out;
}

inline script endless_answer(engine::request const& /*wanted*/) {
  script out;
  out.steps = {content_delta("more ")};
  out.endless = true;
  return out;
}

inline script silent_answer(engine::request const& /*wanted*/) {
  script out;
  out.silent = true;
  return out;
}

inline std::string const chat_path = "/v1/chat/completions";
inline std::string const chat_body = R"({"messages":[{"role":"user","content":"hi"}]})";
inline std::string const stream_body =
    R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})";

/// Sends a streamed and a plain request, answered with endless pieces "more ": whether both run.
[[nodiscard]] inline bool both_run(running_server& served, raw_client& stream, raw_client& plain) {
  stream.send(post(chat_path, stream_body));
  plain.send(post(chat_path, chat_body));
  return !stream.read_until("more ").empty() &&
         served.engine.wait_until_jobs(2, std::chrono::seconds(10));
}

}  // namespace qwen38::test
