// SPDX-License-Identifier: Apache-2.0
#include "bench/load_clients.hpp"

#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace qwen38::bench {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using clock = std::chrono::steady_clock;

constexpr auto as_values = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds health_interval{50};

double milliseconds_since(clock::time_point from) {
  return std::chrono::duration<double, std::milli>(clock::now() - from).count();
}

/// Every answer is of plain words, so that their frames need no JSON parser.
class stream_reader {
 public:
  stream_reader(load_result& result, clock::time_point sent) : result_(result), sent_(sent) {}

  void take(std::string_view bytes) {
    rest_ += bytes;
    std::size_t at = 0;
    for (auto end = rest_.find("\n\n"); end != std::string::npos; end = rest_.find("\n\n", at)) {
      take_event(std::string_view(rest_).substr(at, end - at));
      at = end + 2;
    }
    rest_.erase(0, at);
  }
  [[nodiscard]] bool done() const noexcept { return done_; }
  [[nodiscard]] std::string const& text() const noexcept { return text_; }

 private:
  void take_event(std::string_view event) {
    auto const data = event.find("data: ");
    if (data == std::string_view::npos) return;  // a comment
    if (last_) {
      result_.gaps.push_back(milliseconds_since(*last_));
    } else {
      result_.first_event.push_back(milliseconds_since(sent_));
    }
    last_ = clock::now();
    done_ = event.substr(data) == "data: [DONE]";
    constexpr std::string_view mark = R"("delta":{"content":")";
    auto const begin = event.find(mark);
    if (begin == std::string_view::npos) return;
    if (text_.empty()) result_.first_token.push_back(milliseconds_since(sent_));
    auto const text = event.substr(begin + mark.size());
    text_ += text.substr(0, text.find('"'));
  }

  load_result& result_;
  clock::time_point const sent_;
  std::optional<clock::time_point> last_;
  std::string rest_;
  std::string text_;
  bool done_ = false;
};

/// Streams, all on the thread that runs them.
class crowd {
 public:
  crowd(std::uint16_t port, int clients, std::string const& expected)
      : where_(asio::ip::address_v4::loopback(), port), streams_(clients), expected_(expected) {}

  load_result run() {
    auto const begin = clock::now();
    for (int i = 0; i < streams_; ++i) asio::co_spawn(io_, stream(), asio::detached);
    io_.run();
    result_.wall_ms = milliseconds_since(begin);
    return std::move(result_);
  }

 private:
  asio::awaitable<void> stream() {
    tcp::socket socket(io_);
    bool const whole = co_await read_stream(socket);
    ++(whole ? result_.completed : result_.errors);
  }

  asio::awaitable<bool> read_stream(tcp::socket& socket) {
    static std::string const body =
        R"({"stream":true,"messages":[{"role":"user","content":"a question of some words"}]})";
    static std::string const request =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\n"
        "Connection: close\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    auto [refused] = co_await socket.async_connect(where_, as_values);
    if (refused) co_return false;
    stream_reader reader(result_, clock::now());
    auto [unsent, ignored] = co_await asio::async_write(socket, asio::buffer(request), as_values);
    bool ended = static_cast<bool>(unsent);
    std::array<char, 4096> buffer{};
    while (!ended) {
      auto [failed, size] = co_await socket.async_read_some(asio::buffer(buffer), as_values);
      reader.take({buffer.data(), size});
      ended = static_cast<bool>(failed);
    }
    co_return reader.done() && reader.text() == expected_;
  }

  asio::io_context io_{1};
  tcp::endpoint const where_;
  int const streams_;
  std::string const expected_;
  load_result result_;
};

struct health_result {
  std::vector<double> round_trips;
  int errors = 0;
};

/// Round trips of /health until the streams are over, on the caller's thread.
health_result ask_for_health(std::uint16_t port, std::atomic<bool> const& over) {
  static std::string const request = "GET /health HTTP/1.1\r\nHost: load\r\n\r\n";
  health_result out;
  boost::system::error_code failed;
  asio::io_context io;
  tcp::socket socket(io);
  socket.connect({asio::ip::address_v4::loopback(), port}, failed);
  std::string reply;
  while (!over && !failed) {
    auto const sent = clock::now();
    asio::write(socket, asio::buffer(request), failed);
    if (!failed) asio::read_until(socket, asio::dynamic_buffer(reply), "}\n", failed);
    if (!reply.starts_with("HTTP/1.1 200 ")) ++out.errors;
    reply.clear();
    out.round_trips.push_back(milliseconds_since(sent));
    std::this_thread::sleep_for(health_interval);
  }
  if (failed) ++out.errors;
  return out;
}

}  // namespace

load_result run_load_clients(std::uint16_t port, int clients, std::string const& expected) {
  std::atomic<bool> over = false;
  health_result health;
  std::thread asking([&] { health = ask_for_health(port, over); });
  auto out = crowd(port, clients, expected).run();
  over = true;
  asking.join();
  out.health = std::move(health.round_trips);
  out.health_errors = health.errors;
  return out;
}

}  // namespace qwen38::bench
