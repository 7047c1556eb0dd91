// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace qwen38::bench {

/// The server under load: the real HTTP and API layers in front of an engine that only keeps time.
struct load_server_options {
  std::size_t lanes = 300;  ///< answers at the same time; further requests wait
  std::size_t queue = 512;
  int tokens = 100;      ///< of each answer
  int interval_ms = 20;  ///< between the tokens of an answer
};

/// The text of token `index` of every answer.
inline constexpr char const* load_token = "token ";

/// Runs the server in this process until standard input ends; writes its port to standard output.
void run_load_server(load_server_options const& wanted);

/// Another process of this program that runs the server.
class load_process {
 public:
  /// Starts it and waits until it listens. Throws std::runtime_error.
  explicit load_process(load_server_options const& wanted);
  /// Ends it and waits for it.
  ~load_process();
  load_process(load_process const&) = delete;
  load_process& operator=(load_process const&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Resident memory now and its highest value so far, in KiB.
  [[nodiscard]] long resident_kib() const;
  [[nodiscard]] long peak_resident_kib() const;

 private:
  pid_t process_ = -1;
  int input_ = -1;  // its standard input, held open while it shall run
  std::uint16_t port_ = 0;
};

}  // namespace qwen38::bench
