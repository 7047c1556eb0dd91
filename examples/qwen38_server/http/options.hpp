// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qwen38::http {

/// What one client may cost.
struct limits {
  std::size_t header_bytes = std::size_t{16} << 10U;  ///< request line and header; else 431
  std::size_t header_count = 100;                     ///< fields; else 431
  std::size_t body_bytes = std::size_t{16} << 20U;    ///< with or without Content-Length; else 413
  /// Bodies of all requests that are being read or translated; else 503.
  std::size_t all_bodies_bytes = std::size_t{256} << 20U;
  /// Events that a stream's client has not taken yet; one that falls further behind is dropped.
  std::size_t stream_buffer_bytes = std::size_t{1} << 20U;
  std::size_t connections = 1024;  ///< further ones get 503
  // A connection that is over one of these is closed without a reply.
  std::chrono::milliseconds header_timeout{15'000};
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{30'000};
  std::chrono::milliseconds idle_timeout{75'000};  ///< between the requests of a connection
};

struct options {
  std::string address = "127.0.0.1";  ///< a numeric address or "localhost"
  std::uint16_t port = 8080;          ///< 0: any free one
  std::string api_key;                ///< "": no key is asked for
  bool allow_remote = false;          ///< consent to an address that other machines reach
  bool insecure = false;              ///< consent to such an address without a key
  /// The first SIGINT or SIGTERM drains the server, the second stops it.
  bool stop_on_signals = false;
  std::chrono::milliseconds keep_alive_interval{10'000};  ///< of comments in a silent stream
  std::chrono::milliseconds drain_timeout{30'000};        ///< for running answers once draining
  std::chrono::milliseconds stop_grace{3'000};  ///< for clients to be told that the server stops
  int translators = 2;                          ///< threads that parse, render and tokenise
  limits bounds;
};

/// Throws qwen38::error (invalid_argument) unless the address is a loopback one, or allow_remote is
/// set together with an API key or `insecure`.
void check_bind(options const& wanted);

}  // namespace qwen38::http
