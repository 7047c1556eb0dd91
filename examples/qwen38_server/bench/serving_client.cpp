// SPDX-License-Identifier: Apache-2.0
#include "bench/serving_client.hpp"

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>

namespace qwen38::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr auto as_values = asio::as_tuple(asio::use_awaitable);

std::chrono::duration<double, std::milli> since(clock::time_point from) {
  return clock::now() - from;
}

/// Reads the events of one stream into a trace. Bytes are cut anywhere; events are parsed whole.
class event_reader {
 public:
  event_reader(request_trace& trace, clock::time_point sent) : trace_(trace), sent_(sent) {}

  void take(std::string_view bytes) {
    rest_ += bytes;
    std::size_t at = 0;
    for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', at)) {
      auto line = std::string_view(rest_).substr(at, end - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      take_line(line);
      at = end + 1;
    }
    rest_.erase(0, at);
  }
  [[nodiscard]] bool done() const noexcept { return done_; }

 private:
  void take_line(std::string_view line) {
    if (!line.starts_with("data:")) return;  // a comment, or the blank line of an event
    line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
    if (line == "[DONE]") {
      done_ = true;
      return;
    }
    auto const event = json::parse(line, nullptr, false);
    if (!event.is_object()) {
      trace_.error = "an event that is no JSON object";
    } else if (event.contains("error")) {
      trace_.error = "error event: " + event["error"].value("message", std::string("no message"));
    } else {
      take_event(event);
    }
  }

  void take_event(json const& event) {
    auto const count = [](json const& object, char const* name) {
      auto const found = object.find(name);
      return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
    };
    auto const has_text = [](json const& object, char const* name) {
      auto const found = object.find(name);
      return found != object.end() && found->is_string() &&
             !found->get_ref<std::string const&>().empty();
    };
    for (json const& choice : event.value("choices", json::array())) {
      json const delta = choice.value("delta", json::object());
      bool const calls = delta.contains("tool_calls") && !delta["tool_calls"].empty();
      if (calls || has_text(delta, "content") || has_text(delta, "reasoning_content") ||
          has_text(delta, "reasoning") || has_text(choice, "text")) {
        trace_.arrivals.push_back(since(sent_).count());
        break;
      }
    }
    if (auto const usage = event.find("usage"); usage != event.end() && usage->is_object()) {
      trace_.input_tokens = count(*usage, "prompt_tokens");
      trace_.output_tokens = count(*usage, "completion_tokens");
      auto const details = usage->find("prompt_tokens_details");
      if (details != usage->end() && details->is_object())
        trace_.cached_tokens = count(*details, "cached_tokens");
    }
    auto const speculative = event.find("speculative");
    if (speculative == event.end()) return;
    if (count(*speculative, "k") < 1 && !has_text(*speculative, "k")) return;
    trace_.rounds = count(*speculative, "rounds");
    trace_.drafted = count(*speculative, "drafted");
    trace_.accepted = count(*speculative, "accepted");
    trace_.accepted_at = speculative->value("accepted_at", std::vector<std::int64_t>());
  }

  request_trace& trace_;
  clock::time_point const sent_;
  std::string rest_;
  bool done_ = false;
};

class client {
 public:
  explicit client(serving_run const& wanted)
      : wanted_(wanted),
        where_(tcp::resolver(io_).resolve(wanted.host, wanted.port)),
        turn_(io_),
        random_(wanted.seed) {
    traces_.requests.resize(wanted.bodies.size());
  }

  serving_traces run() {
    auto const begin = clock::now();
    asio::co_spawn(io_, send_all(), asio::detached);
    io_.run();
    traces_.duration_s = since(begin).count() / 1000;
    return std::move(traces_);
  }

 private:
  asio::awaitable<void> send_all() {
    auto next = clock::now();
    for (std::size_t i = 0; i < wanted_.bodies.size(); ++i) {
      while (wanted_.concurrency > 0 && running_ >= wanted_.concurrency) {
        turn_.expires_at(asio::steady_timer::time_point::max());
        (void)co_await turn_.async_wait(as_values);
      }
      if (wanted_.request_rate > 0 && i > 0) {
        std::exponential_distribution<double> gap(wanted_.request_rate);
        next += std::chrono::duration_cast<clock::duration>(
            std::chrono::duration<double>(gap(random_)));
        asio::steady_timer pause(io_, next);
        (void)co_await pause.async_wait(as_values);
      }
      ++running_;
      asio::co_spawn(io_, ask(wanted_.bodies[i], traces_.requests[i]), [this](std::exception_ptr) {
        --running_;
        turn_.cancel();
      });
    }
  }

  asio::awaitable<void> ask(std::string const& body, request_trace& trace) {
    beast::tcp_stream stream(io_);
    stream.expires_after(std::chrono::duration_cast<clock::duration>(
        std::chrono::duration<double>(wanted_.timeout_s)));
    auto const sent = clock::now();
    co_await converse(stream, body, trace, sent);
    trace.latency = since(sent).count();
  }

  asio::awaitable<void> converse(beast::tcp_stream& stream, std::string const& body,
                                 request_trace& trace, clock::time_point sent) {
    auto [refused, where] = co_await stream.async_connect(where_, as_values);
    if (refused) {
      trace.error = "no connection: " + refused.message();
      co_return;
    }
    beast::http::request<beast::http::string_body> request(beast::http::verb::post, wanted_.path,
                                                           11);
    request.set(beast::http::field::host, wanted_.host);
    request.set(beast::http::field::content_type, "application/json");
    request.set(beast::http::field::connection, "close");
    if (!wanted_.api_key.empty())
      request.set(beast::http::field::authorization, "Bearer " + wanted_.api_key);
    request.body() = body;
    request.prepare_payload();
    auto [unsent, bytes] = co_await beast::http::async_write(stream, request, as_values);
    if (unsent) {
      trace.error = "not sent: " + unsent.message();
      co_return;
    }
    co_await read_reply(stream, trace, sent);
  }

  static asio::awaitable<void> read_reply(beast::tcp_stream& stream, request_trace& trace,
                                          clock::time_point sent) {
    beast::http::response_parser<beast::http::string_body> parser;
    parser.body_limit(boost::none);
    parser.eager(true);
    beast::flat_buffer buffer;
    event_reader events(trace, sent);
    std::string refusal;
    while (!parser.is_done()) {
      auto [failed, size] =
          co_await beast::http::async_read_some(stream, buffer, parser, as_values);
      if (parser.is_header_done()) {
        auto piece = std::exchange(parser.get().body(), {});
        if (parser.get().result_int() == 200) {
          events.take(piece);
        } else {
          refusal += piece;
        }
      }
      if (failed) {
        trace.error = "the reply broke off: " + failed.message();
        co_return;
      }
    }
    if (parser.get().result_int() != 200) {
      trace.error = "status " + std::to_string(parser.get().result_int()) + ": " + refusal;
    } else if (trace.error.empty() && !events.done()) {
      trace.error = "the stream ended without [DONE]";
    } else if (trace.error.empty() && trace.arrivals.empty()) {
      trace.error = "the answer had no text";
    }
  }

  serving_run const& wanted_;
  asio::io_context io_{1};
  tcp::resolver::results_type where_;
  asio::steady_timer turn_;  // cancelled when a request has ended
  std::mt19937_64 random_;
  std::int64_t running_ = 0;
  serving_traces traces_;
};

}  // namespace

serving_traces run_serving_clients(serving_run const& wanted) {
  return client(wanted).run();
}

}  // namespace qwen38::bench
