// SPDX-License-Identifier: Apache-2.0
#include "test/http/raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace qwen38::test {
namespace {

constexpr int patience_s = 20;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

raw_client::raw_client(std::uint16_t port) : raw_client(port, 0) {}

raw_client raw_client::with_small_window(std::uint16_t port) {
  return {port, 4096};
}

raw_client::raw_client(std::uint16_t port, int receive_bytes)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_bytes > 0) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  }
  timeval const patience{patience_s, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr const*>(&where), sizeof where) != 0) {
    close();
    throw std::runtime_error("cannot connect to the server under test");
  }
}

raw_client::~raw_client() {
  close();
}

raw_client::raw_client(raw_client&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      received_(std::move(other.received_)),
      ending_(other.ending_) {}

bool raw_client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    auto const sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool raw_client::receive() {
  std::array<char, 65536> buffer{};
  auto const size = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (size <= 0) {
    ending_ = size == 0             ? ending::closed
              : errno == ECONNRESET ? ending::reset
                                    : ending::out_of_patience;
    return false;
  }
  received_.append(buffer.data(), static_cast<std::size_t>(size));
  return true;
}

std::string raw_client::read_until(std::string_view mark) {
  for (;;) {
    auto const at = received_.find(mark);
    if (at != std::string::npos) {
      auto out = received_.substr(0, at + mark.size());
      received_.erase(0, at + mark.size());
      return out;
    }
    if (!receive()) return {};
  }
}

std::string raw_client::read_to_end() {
  while (receive()) {
  }
  return std::exchange(received_, {});
}

bool raw_client::is_closed_by_peer() {
  char byte = 0;
  auto const size = ::recv(socket_, &byte, 1, 0);
  return size == 0 || (size < 0 && errno == ECONNRESET);
}

raw_reply raw_client::read_head() {
  raw_reply out;
  auto const head = read_until("\r\n\r\n");
  if (head.empty()) return out;
  out.version = head.substr(0, head.find(' '));
  out.status = std::atoi(head.c_str() + out.version.size() + 1);
  for (auto at = head.find("\r\n") + 2; at + 2 < head.size();) {
    auto const end = head.find("\r\n", at);
    auto const colon = head.find(": ", at);
    out.headers[lower(head.substr(at, colon - at))] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  return out;
}

raw_reply raw_client::read_reply(bool head_only) {
  auto out = read_head();
  if (out.status == 0) return out;
  out.complete = true;
  if (head_only) return out;
  if (out.headers.count("content-length") > 0) {
    auto const size = static_cast<std::size_t>(std::stoul(out.headers["content-length"]));
    while (received_.size() < size && receive()) {
    }
    out.complete = received_.size() >= size;
    out.body = received_.substr(0, size);
    received_.erase(0, size);
    return out;
  }
  if (out.headers.count("transfer-encoding") == 0) {
    out.body = read_to_end();
    return out;
  }
  for (;;) {
    auto const line = read_until("\r\n");
    auto const size = std::strtoul(line.c_str(), nullptr, 16);
    while (received_.size() < size + 2 && receive()) {
    }
    if (line.empty() || received_.size() < size + 2) {
      out.complete = false;
      return out;
    }
    out.body += received_.substr(0, size);
    received_.erase(0, size + 2);
    if (size == 0) return out;
  }
}

std::uint16_t raw_client::local_port() const {
  sockaddr_in here{};
  socklen_t size = sizeof here;
  ::getsockname(socket_, reinterpret_cast<sockaddr*>(&here), &size);
  return ntohs(here.sin_port);
}

void raw_client::close_sending_half() {
  ::shutdown(socket_, SHUT_WR);
}

void raw_client::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void raw_client::reset() {
  linger const now{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

std::string post(std::string_view path, std::string_view body, std::string_view extra) {
  std::string out = "POST ";
  out += path;
  out += " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n";
  out += extra;
  out += "\r\n";
  out += body;
  return out;
}

std::string get(std::string_view path, std::string_view extra) {
  std::string out = "GET ";
  out += path;
  out += " HTTP/1.1\r\nHost: x\r\n";
  out += extra;
  out += "\r\n";
  return out;
}

raw_reply exchange_once(std::uint16_t port, std::string_view request) {
  raw_client client(port);
  client.send(request);
  return client.read_reply();
}

}  // namespace qwen38::test
