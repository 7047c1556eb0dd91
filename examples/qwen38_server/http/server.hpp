// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/handler.hpp"
#include "http/options.hpp"

namespace qwen38::http {

/// HTTP/1.1 and 1.0 in front of an api::handler: POST /v1/chat/completions and /v1/completions, GET
/// /v1/models, /v1/models/{id} and /health; server-sent events for streams; everything else an
/// error object. One thread does all input and output, a small pool translates requests; neither
/// ever waits for the engine.
///
/// A client that closes its connection, or only its sending half, has left: its request is
/// cancelled wherever it is. (A half-closed peer cannot be told from a closed one before something
/// is written to it, which may be minutes away.) A client may send further requests ahead; only
/// beyond 64 KiB of them is a disconnect noticed late, by writing.
class server {
 public:
  /// Listens at once; connections wait until run(). Until begin_serving() every request that needs
  /// the model gets 503 `loading`, /health too. Throws qwen38::error: what check_bind() throws, or
  /// io if the address cannot be had.
  explicit server(options const& wanted);
  /// The same with the model at hand. `requests` outlives the server.
  server(api::handler const& requests, options const& wanted);
  ~server();
  server(server const&) = delete;
  server& operator=(server const&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept;
  /// From any thread, at most once: the model is loaded. `requests` outlives the server.
  void begin_serving(api::handler const& requests) noexcept;
  /// Connections that are open now, refused ones left out. From any thread.
  [[nodiscard]] std::size_t connections() const noexcept;

  /// Serves until stop(). To be called once. Throws nothing but what the operating system's event
  /// loop may.
  void run();
  /// From any thread (not from a signal handler), also before run(). New requests get 503 and
  /// /health says `draining`, while answers go on; stops once there are none, or after
  /// options::drain_timeout.
  void drain() noexcept;
  /// From any thread (not from a signal handler), also before run(). Cancels what is in flight,
  /// gives its clients options::stop_grace to be told, and makes run() return.
  void stop() noexcept;

 private:
  class impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace qwen38::http
