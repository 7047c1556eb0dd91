// SPDX-License-Identifier: Apache-2.0
#include "http/server.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>

#include "api/health.hpp"
#include "http/auth.hpp"
#include "http/refusals.hpp"
#include "http/reply_channel.hpp"
#include "http/route.hpp"
#include "http/wire.hpp"

namespace qwen38::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using request_parser = beast::http::request_parser<beast::http::string_body>;

// Coroutines here take references to what their caller's frame holds, and what co_await gives is
// stored before it is used: GCC 12 miscompiles temporaries that live across a suspension.

// Failures are values: no exception runs through the I/O loop.
constexpr auto as_values = asio::as_tuple(asio::use_awaitable);

constexpr std::size_t pipelined_bytes = std::size_t{64} << 10U;
constexpr std::chrono::seconds linger_time{2};

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

template <class Action>
class at_exit {
 public:
  explicit at_exit(Action action) : action_(std::move(action)) {}
  ~at_exit() { action_(); }
  at_exit(at_exit const&) = delete;
  at_exit& operator=(at_exit const&) = delete;

 private:
  Action action_;
};

/// One client's connection. Lives on the I/O thread.
struct connection {
  explicit connection(tcp::socket socket)
      : stream(std::move(socket)), wake(stream.get_executor()), buffer(pipelined_bytes) {}

  beast::tcp_stream stream;
  asio::steady_timer wake;              // cancelled when the reply has something new
  beast::flat_buffer buffer;            // received and not yet parsed
  std::shared_ptr<api::exchange> call;  // while a request that the engine may have is answered
  bool answering = false;               // a body has come whole, its reply is on its way
  bool idle = true;                     // between requests
};

/// What has been understood of a request when its header is there.
struct request_head {
  head_fields fields;
  route where;
  bool head_only = false;
};

}  // namespace

class server::impl {
 public:
  explicit impl(options wanted)
      : wanted_(std::move(wanted)),
        acceptor_(io_),
        pool_(static_cast<std::size_t>(std::max(wanted_.translators, 1))),
        wakes_(std::make_shared<wake_list>([this] { asio::post(io_, [this] { wake_ready(); }); })) {
    check_bind(wanted_);
    listen();
  }

  ~impl() {
    shut();
    grace_.reset();  // timers may not outlive their context
    drain_end_.reset();
  }
  impl(impl const&) = delete;
  impl& operator=(impl const&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] std::size_t connections() const noexcept { return connections_; }
  void begin_serving(api::handler const& requests) noexcept { requests_ = &requests; }

  void run() {
    asio::co_spawn(io_, accept_all(), asio::detached);
    asio::signal_set signals(io_);
    if (wanted_.stop_on_signals) {
      signals.add(SIGINT);
      signals.add(SIGTERM);
      signals_ = &signals;
      await_signal();
    }
    io_.run();
    signals_ = nullptr;
    shut();
  }

  void drain() noexcept {
    asio::post(io_, [this] { begin_drain(); });
  }
  void stop() noexcept {
    asio::post(io_, [this] { begin_stop(); });
  }

 private:
  // ---- start and stop

  void listen() {
    error_code failed;
    auto const name = wanted_.address == "localhost" ? "127.0.0.1" : wanted_.address;
    tcp::endpoint const where(asio::ip::make_address(name, failed), wanted_.port);
    if (!failed) acceptor_.open(where.protocol(), failed);
    if (!failed) acceptor_.set_option(tcp::acceptor::reuse_address(true), failed);
    if (!failed) acceptor_.bind(where, failed);
    if (!failed) acceptor_.listen(tcp::acceptor::max_listen_connections, failed);
    if (!failed) port_ = acceptor_.local_endpoint(failed).port();
    if (!failed) return;
    auto const place = wanted_.address + " port " + std::to_string(wanted_.port);
    if (failed == asio::error::address_in_use) {
      throw error(error_kind::io,
                  "Cannot listen on " + place +
                      ": it is in use; stop the other server or choose another port.");
    }
    throw error(error_kind::io, "Cannot listen on " + place + ": " + failed.message() + '.');
  }

  void await_signal() {
    if (stopping_) return;
    signals_->async_wait([this](error_code failed, int) {
      if (failed) return;
      if (draining_) {
        begin_stop();
      } else {
        begin_drain();
      }
      await_signal();
    });
  }

  void begin_drain() {
    if (stopping_ || std::exchange(draining_, true)) return;
    if (auto const* const requests = requests_.load()) requests->drain();
    drain_end_.emplace(io_, wanted_.drain_timeout);
    drain_end_->async_wait([this](error_code failed) {
      if (!failed) begin_stop();
    });
    stop_if_drained();
  }

  void stop_if_drained() {
    if (!draining_) return;
    bool const busy = std::any_of(clients_.begin(), clients_.end(),
                                  [](auto const* client) { return client->answering; });
    if (!busy) begin_stop();
  }

  void begin_stop() {
    if (std::exchange(stopping_, true)) return;
    error_code ignored;
    acceptor_.close(ignored);
    if (signals_ != nullptr) signals_->cancel(ignored);
    if (drain_end_) drain_end_->cancel();
    for (auto* const client : clients_) {
      if (client->call) client->call->cancel();
      if (client->idle) client->stream.close();
    }
    grace_.emplace(io_, wanted_.stop_grace);
    grace_->async_wait([this](error_code failed) {
      if (!failed) io_.stop();
    });
    end_if_empty();
  }

  void end_if_empty() {
    if (stopping_ && clients_.empty() && grace_) grace_->cancel();
  }

  void shut() noexcept {
    wakes_->shut();
    pool_.stop();
    pool_.join();
  }

  void wake_ready() {
    for (auto const& channel : wakes_->take()) channel->notify();
  }

  // ---- connections

  asio::awaitable<void> accept_all() {
    asio::steady_timer pause(io_);
    while (!stopping_) {
      auto [failed, socket] = co_await acceptor_.async_accept(as_values);
      if (failed == asio::error::operation_aborted || stopping_) co_return;
      if (failed) {  // most likely out of descriptors: connections that end will free some
        pause.expires_after(std::chrono::milliseconds(50));
        (void)co_await pause.async_wait(as_values);
        continue;
      }
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      socket.set_option(asio::socket_base::keep_alive(true), ignored);
      bool const full = clients_.size() >= wanted_.bounds.connections;
      if (full && refusing_ >= 64) continue;  // closes it
      asio::co_spawn(io_, full ? refuse(std::move(socket)) : serve(std::move(socket)),
                     [](std::exception_ptr const& cause) {
                       if (cause)
                         std::fputs("a connection ended by an unexpected exception\n", stderr);
                     });
    }
  }

  asio::awaitable<void> refuse(tcp::socket socket) {
    ++refusing_;
    connection client(std::move(socket));
    request_head head;
    auto const id = new_id();
    head.fields.request_id = id;
    auto const whole = too_many_connections();
    co_await end_with(client, head, whole);
    --refusing_;
  }

  asio::awaitable<void> serve(tcp::socket socket) {
    connection client(std::move(socket));
    clients_.insert(&client);
    connections_ = clients_.size();
    at_exit const forget([this, &client] {
      clients_.erase(&client);
      connections_ = clients_.size();
      end_if_empty();
    });
    bool goes_on = true;
    while (goes_on) goes_on = co_await serve_request(client);
  }

  /// One request and its reply. False: the connection is at its end.
  asio::awaitable<bool> serve_request(connection& client) {
    bool const arrived = co_await wait_for_request(client);
    if (!arrived) co_return false;
    client.idle = false;
    auto const id = new_id();
    request_head head;
    head.fields.request_id = id;

    request_parser parser;
    parser.header_limit(static_cast<std::uint32_t>(wanted_.bounds.header_bytes));
    parser.body_limit(wanted_.bounds.body_bytes);
    client.stream.expires_after(wanted_.bounds.header_timeout);
    auto [failed, ignored] =
        co_await beast::http::async_read_header(client.stream, client.buffer, parser, as_values);
    bool readable = !failed;
    auto early = failed ? describe_failure(failed) : answer_early(parser, head);
    if (early && readable && parser.is_done()) {
      auto const bytes = format_reply(*early, head.fields, head.head_only);
      bool const sent = co_await send(client, bytes);
      bool const goes_on = sent && head.fields.keep_alive;
      co_return goes_on;
    }

    std::size_t counted = 0;  // bytes of the body that count towards all_bodies_bytes
    if (readable && !early) {
      auto const trouble = co_await read_body(client, parser, counted);
      readable = !trouble.has_value();
      if (!readable) {
        all_bodies_ -= counted;
        early = trouble->refusal;
      }
    }
    if (early) co_await end_with(client, head, *early);
    if (early || !readable) co_return false;
    bool const goes_on = co_await generate(client, head, parser.get().body(), counted);
    co_return goes_on;
  }

  asio::awaitable<bool> wait_for_request(connection& client) {
    client.idle = true;
    if (stopping_) co_return false;
    if (client.buffer.size() > 0) co_return true;  // sent ahead
    client.stream.expires_after(wanted_.bounds.idle_timeout);
    auto [failed, size] =
        co_await client.stream.async_read_some(client.buffer.prepare(4096), as_values);
    client.buffer.commit(size);
    co_return !failed;
  }

  // ---- reading

  /// The reply to a request that could not be read; none if the client has left or was too slow:
  /// the stream closes itself at a time-out.
  [[nodiscard]] std::optional<api::reply> describe_failure(error_code failed) const {
    using beast::http::error;
    if (failed == error::header_limit || failed == error::buffer_overflow) {
      return header_too_large(wanted_.bounds);
    }
    if (failed == error::body_limit) return body_too_large(wanted_.bounds);
    bool const is_parsers = failed.category() == make_error_code(error::bad_method).category();
    if (!is_parsers || failed == error::end_of_stream || failed == error::partial_message) {
      return std::nullopt;
    }
    return malformed_http("The request is not valid HTTP: " + failed.message() + '.');
  }

  /// Fills `head`; a reply if the request is refused by its header alone.
  [[nodiscard]] std::optional<api::reply> examine(request_parser const& parser,
                                                  request_head& head) const {
    auto const& message = parser.get();
    head.fields.http_1_0 = message.version() < 11;  // and then one request per connection
    head.fields.keep_alive =
        parser.keep_alive() && !head.fields.http_1_0 && !draining_ && !stopping_;
    head.head_only = message.method() == beast::http::verb::head;
    auto const fields = std::distance(message.begin(), message.end());
    if (static_cast<std::size_t>(fields) > wanted_.bounds.header_count) {
      return too_many_header_fields(wanted_.bounds);
    }
    if (!head.fields.http_1_0 && message.count(beast::http::field::host) != 1) {
      return malformed_http("The request is not valid HTTP/1.1: expected one Host field.");
    }
    head.where = resolve(view(message.method_string()), view(message.target()));
    if (head.where.what != action::health &&
        !is_authorised(view(message[beast::http::field::authorization]), wanted_.api_key)) {
      return no_valid_key();
    }
    if (head.where.what == action::not_found) return no_such_path();
    if (head.where.what == action::method_not_allowed) {
      head.fields.allow = head.where.allow;
      return no_such_method(head.where.allow);
    }
    return std::nullopt;
  }

  /// What needs no body: a refusal, or the reply to a GET.
  [[nodiscard]] std::optional<api::reply> answer_early(request_parser const& parser,
                                                       request_head& head) const {
    if (auto refusal = examine(parser, head)) return refusal;
    auto const* const requests = requests_.load();
    if (requests == nullptr) {
      return head.where.what == action::health ? api::loading_health_reply() : still_loading();
    }
    switch (head.where.what) {
      case action::health: return requests->health(head.where.deep);
      case action::version: return requests->version();
      case action::metrics: return requests->metrics();
      case action::report: return requests->report();
      case action::models: return requests->models();
      case action::model: return requests->model(head.where.model_id);
      default: return std::nullopt;
    }
  }

  /// Why a body was not read: what to reply, or nothing because nobody is there any more.
  struct body_trouble {
    std::optional<api::reply> refusal;
  };

  asio::awaitable<std::optional<body_trouble>> read_body(connection& client, request_parser& parser,
                                                         std::size_t& counted) {
    client.stream.expires_after(wanted_.bounds.body_timeout);
    if (!parser.is_done() &&
        beast::iequals(parser.get()[beast::http::field::expect], "100-continue")) {
      static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      (void)co_await asio::async_write(client.stream, asio::buffer(go_on), as_values);
    }
    while (!parser.is_done()) {
      auto [failed, ignored] =
          co_await beast::http::async_read_some(client.stream, client.buffer, parser, as_values);
      if (failed) co_return body_trouble{describe_failure(failed)};
      auto const size = parser.get().body().size();
      all_bodies_ += size - counted;
      counted = size;
      if (all_bodies_ > wanted_.bounds.all_bodies_bytes) {
        co_return body_trouble{too_many_bodies()};
      }
    }
    co_return std::nullopt;
  }

  // ---- replying

  asio::awaitable<bool> send(connection& client, std::string const& bytes) {
    client.stream.expires_after(wanted_.bounds.write_timeout);
    auto [failed, ignored] =
        co_await asio::async_write(client.stream, asio::buffer(bytes), as_values);
    co_return !failed;
  }

  /// The last reply of a connection whose input cannot be read to its end.
  asio::awaitable<void> end_with(connection& client, request_head& head, api::reply const& whole) {
    head.fields.keep_alive = false;
    auto const bytes = format_reply(whole, head.fields, head.head_only);
    bool const sent = co_await send(client, bytes);
    if (sent) co_await linger(client);
  }

  /// Reads on for a while after the last reply: closing with bytes unread would reset the
  /// connection, and the reply might be lost with it.
  asio::awaitable<void> linger(connection& client) {
    error_code failed;
    client.stream.socket().shutdown(tcp::socket::shutdown_send, failed);
    client.stream.expires_after(linger_time);
    while (!failed) {
      client.buffer.clear();
      auto [ended, ignored] =
          co_await client.stream.async_read_some(client.buffer.prepare(pipelined_bytes), as_values);
      failed = ended;
    }
  }

  asio::awaitable<bool> generate(connection& client, request_head const& head, std::string& body,
                                 std::size_t counted) {
    using asio::experimental::awaitable_operators::operator||;
    auto const channel =
        std::make_shared<reply_channel>(wakes_, wanted_.bounds.stream_buffer_bytes);
    at_exit const close([&channel] { channel->close(); });
    channel->set_ready([&client, from = channel.get()] {
      if (from->has_overflowed()) client.stream.close();  // ends a write that is not getting on
      client.wake.cancel();
    });
    auto const* const requests = requests_.load();  // there: a request came past answer_early()
    auto const what = head.where.what;
    client.answering = true;
    if (what == action::chat_completions || what == action::completions) {
      auto const kind = what == action::chat_completions ? api::endpoint::chat_completions
                                                         : api::endpoint::completions;
      client.call = requests->open(kind, std::string(head.fields.request_id), channel);
    }
    asio::post(pool_, [this, requests, what, channel, call = client.call, body = std::move(body),
                       counted]() mutable {
      if (call) {
        requests->serve(call, body);
      } else {
        channel->send(what == action::tokenize ? requests->tokenize(body)
                                               : requests->detokenize(body));
      }
      std::string().swap(body);
      all_bodies_ -= counted;
    });

    bool delivered = false;
    auto either = deliver(client, *channel, head, delivered) || watch(client);
    co_await std::move(either);
    if (!delivered && client.call) client.call->cancel();
    client.call.reset();
    client.answering = false;
    stop_if_drained();
    bool const goes_on = delivered && head.fields.keep_alive;
    co_return goes_on;
  }

  /// Passes the reply on until it is complete (then `delivered` is true) or the client cannot be
  /// reached.
  asio::awaitable<void> deliver(connection& client, reply_channel& channel,
                                request_head const& head, bool& delivered) {
    bool head_sent = false;
    for (;;) {
      auto news = channel.take();
      if (news.overflowed) co_return;
      std::string bytes;
      if (news.whole) {
        bytes = format_reply(*news.whole, head.fields);
        delivered = true;
      } else if (news.begun) {
        if (!std::exchange(head_sent, true)) bytes = format_stream_head(head.fields);
        append_frames(bytes, news.frames, head.fields);
        if (news.ended && !head.fields.http_1_0) bytes += last_chunk;
        delivered = news.ended;
      }
      if (!bytes.empty()) {
        bool const sent = co_await send(client, bytes);
        delivered = delivered && sent;
        if (delivered || !sent) co_return;
        continue;
      }
      if (delivered) co_return;
      client.wake.expires_after(wanted_.keep_alive_interval);
      auto [woken] = co_await client.wake.async_wait(as_values);
      if (!woken && head_sent) {
        append_frames(bytes, keep_alive_comment, head.fields);
        bool const sent = co_await send(client, bytes);
        if (!sent) co_return;
      }
    }
  }

  static void append_frames(std::string& bytes, std::string_view frames,
                            head_fields const& fields) {
    if (fields.http_1_0) {
      bytes += frames;
    } else {
      append_chunk(bytes, frames);
    }
  }

  /// Ends when the client has left. What it sends ahead stays in the buffer.
  static asio::awaitable<void> watch(connection& client) {
    while (client.buffer.size() < pipelined_bytes) {
      auto const room = std::min<std::size_t>(pipelined_bytes - client.buffer.size(), 4096);
      auto [failed, size] =
          co_await client.stream.socket().async_read_some(client.buffer.prepare(room), as_values);
      client.buffer.commit(size);
      if (failed == asio::error::operation_aborted) co_return;  // the reply is complete
      if (failed) {
        if (client.call) client.call->cancel();
        client.stream.close();  // ends a write that the client will never read
        co_return;
      }
    }
    asio::steady_timer forever(client.stream.get_executor(), asio::steady_timer::time_point::max());
    (void)co_await forever.async_wait(as_values);
  }

  /// 16 hexadecimal digits, not to be guessed from earlier ones by accident.
  std::string new_id() {
    constexpr std::string_view hex = "0123456789abcdef";
    std::string out;
    for (auto bits = ids_(); out.size() < 16; bits >>= 4U) out += hex[bits & 15U];
    return out;
  }

  std::atomic<api::handler const*> requests_{nullptr};
  options const wanted_;
  std::uint16_t port_ = 0;

  // I/O thread only. Before the context, which destroys the coroutines that use them.
  std::unordered_set<connection*> clients_;
  std::size_t refusing_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
  std::optional<asio::steady_timer> drain_end_;
  std::optional<asio::steady_timer> grace_;
  asio::signal_set* signals_ = nullptr;
  std::mt19937_64 ids_{std::random_device{}()};

  std::atomic<std::size_t> connections_{0};
  std::atomic<std::size_t> all_bodies_{0};
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::thread_pool pool_;
  std::shared_ptr<wake_list> wakes_;
};

server::server(options const& wanted) : impl_(std::make_unique<impl>(wanted)) {}
server::server(api::handler const& requests, options const& wanted) : server(wanted) {
  begin_serving(requests);
}
server::~server() = default;
std::uint16_t server::port() const noexcept {
  return impl_->port();
}
std::size_t server::connections() const noexcept {
  return impl_->connections();
}
void server::begin_serving(api::handler const& requests) noexcept {
  impl_->begin_serving(requests);
}
void server::run() {
  impl_->run();
}
void server::drain() noexcept {
  impl_->drain();
}
void server::stop() noexcept {
  impl_->stop();
}

}  // namespace qwen38::http
