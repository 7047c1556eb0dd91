// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace qwen38::test {

/// A reply as it came over the wire.
struct raw_reply {
  int status = 0;                              ///< 0: none came
  std::string version;                         ///< "HTTP/1.1"
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< without the chunked coding
  bool complete = false;                       ///< the body came to its proper end
};

/// How the peer ended a connection, as far as it has been read.
enum class ending { not_yet, closed, reset, out_of_patience };

/// One TCP connection to a port of 127.0.0.1, by plain POSIX calls; every wait has an end.
class raw_client {
 public:
  explicit raw_client(std::uint16_t port);
  ~raw_client();
  raw_client(raw_client&& other) noexcept;
  raw_client(raw_client const&) = delete;
  raw_client& operator=(raw_client const&) = delete;

  /// False if the peer no longer takes bytes.
  bool send(std::string_view bytes);
  /// The next reply; with head_only none of its body is expected (HEAD).
  raw_reply read_reply(bool head_only = false);
  /// Head of a reply; the body is left for read_until().
  raw_reply read_head();
  /// Everything up to and with `mark`, undecoded; "" if it does not come.
  std::string read_until(std::string_view mark);
  /// Everything up to the end of the connection.
  std::string read_to_end();
  /// Whether the peer has closed the connection, waiting for it.
  bool is_closed_by_peer();
  [[nodiscard]] ending how_ended() const noexcept { return ending_; }
  /// This end's port.
  [[nodiscard]] std::uint16_t local_port() const;
  void close_sending_half();
  void close();
  /// Closes with RST.
  void reset();
  /// Asks the kernel for small receive buffers, so that a reader that stops reading is noticed
  /// soon.
  static raw_client with_small_window(std::uint16_t port);

 private:
  raw_client(std::uint16_t port, int receive_bytes);
  bool receive();

  int socket_ = -1;
  std::string received_;
  ending ending_ = ending::not_yet;
};

/// A POST with a JSON body over HTTP/1.1; `extra` are further header lines, each with its CRLF.
std::string post(std::string_view path, std::string_view body, std::string_view extra = "");
std::string get(std::string_view path, std::string_view extra = "");

/// One request on a connection of its own.
raw_reply exchange_once(std::uint16_t port, std::string_view request);

}  // namespace qwen38::test
