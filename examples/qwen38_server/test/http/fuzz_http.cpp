// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a client sends: every reply that comes is whole and well-formed, there are no more
// replies than requests, nothing follows a reply that closes, the connection ends, and the server
// serves on. Link with libFuzzer (clang -fsanitize=fuzzer), or with fuzz_http_replay.cpp.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "api/handler.hpp"
#include "http/server.hpp"
#include "test/api/api_fixture.hpp"
#include "test/http/raw_client.hpp"
#include "test/support/byte_tokenizer.hpp"
#include "test/support/instant_service.hpp"

namespace qwen38::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_bytes = std::size_t{256} << 10U;
constexpr std::string_view head_end = "\r\n\r\n";

/// Short patience: what a client leaves unfinished ends soon.
http::options impatient() {
  http::options out;
  out.port = 0;
  out.bounds.body_bytes = std::size_t{64} << 10U;
  out.bounds.header_timeout = 25ms;
  out.bounds.body_timeout = 25ms;
  out.bounds.idle_timeout = 25ms;
  return out;
}

struct served {
  served() : thread([this] { server.run(); }) {}
  ~served() {
    server.stop();
    thread.join();
  }
  instant_service engine;
  text::tokenizer tokenizer = make_byte_tokenizer();
  api::handler requests{engine, tokenizer, api::served_settings()};
  http::server server{requests, impatient()};
  std::thread thread;
};

void require(bool holds, char const* what, std::string_view got) {
  if (holds) return;
  std::fprintf(stderr, "%s: %.*s\n", what,
               static_cast<int>(std::min<std::size_t>(got.size(), 2000)), got.data());
  std::abort();
}

bool contains_text(std::string_view text, std::string_view lower_case) {
  auto const same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
  };
  return std::search(text.begin(), text.end(), lower_case.begin(), lower_case.end(), same) !=
         text.end();
}

std::size_t count_of(std::string_view text, std::string_view piece) {
  std::size_t out = 0;
  for (auto at = text.find(piece); at != std::string_view::npos; at = text.find(piece, at + 1))
    ++out;
  return out;
}

/// Takes replies off the front of what a server sent.
class reply_reader {
 public:
  reply_reader(std::string_view sent, std::string_view received) : sent_(sent), rest_(received) {}

  void read_all() {
    while (!rest_.empty()) {
      require(!closing_, "something follows a reply that closes the connection", rest_);
      read_one();
    }
    // Each request has an empty line; one whose header never ends can be refused once.
    require(replies_ <= count_of(sent_, head_end) + 1, "more replies than requests", sent_);
  }

 private:
  std::string_view take(std::size_t size) {
    require(size <= rest_.size(), "a reply is cut off", rest_);
    auto const out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }
  std::string_view take_until(std::string_view mark) {
    auto const at = rest_.find(mark);
    require(at != std::string_view::npos, "a reply is cut off", rest_);
    return take(at + mark.size());
  }

  void read_one() {
    auto const head = take_until(head_end);
    require(head.starts_with("HTTP/1.1 ") && head.size() > 13, "not a status line", head);
    int const status = std::atoi(head.data() + 9);
    if (status == 100) {
      require(contains_text(sent_, "100-continue"), "100 Continue unasked", head);
      return;
    }
    require(status >= 200 && status < 500, "a status that no request should cause", head);
    ++replies_;
    std::map<std::string, std::string> fields;
    for (auto at = head.find("\r\n") + 2; at + 2 < head.size();) {
      auto const end = head.find("\r\n", at);
      auto const colon = head.find(": ", at);
      require(colon < end, "not a header field", head);
      auto const name = std::string(head.substr(at, colon - at));
      require(fields.emplace(name, head.substr(colon + 2, end - colon - 2)).second,
              "a header field twice", head);
      at = end + 2;
    }
    require(ids_.insert(fields["x-request-id"]).second && fields["x-request-id"].size() == 16,
            "no id of its own", head);
    closing_ = fields["Connection"] == "close";
    require(closing_ || fields["Connection"] == "keep-alive", "no word on the connection", head);
    read_body(fields);
  }

  void read_body(std::map<std::string, std::string> const& fields) {
    if (auto const length = fields.find("Content-Length"); length != fields.end()) {
      if (!rest_.starts_with('{')) {  // of a HEAD
        require(contains_text(sent_, "head "), "no body", sent_);
        return;
      }
      auto const body = take(std::stoul(length->second));
      require(nlohmann::json::accept(body) && body.ends_with("}\n"), "the body is not JSON", body);
      return;
    }
    require(fields.at("Content-Type").starts_with("text/event-stream"), "no stream", sent_);
    std::string events;
    if (fields.count("Transfer-Encoding") == 0) {
      require(closing_, "a stream without end", rest_);
      events = take(rest_.size());
    } else {
      for (bool last = false; !last;) {
        auto const size = std::stoul(std::string(take_until("\r\n")), nullptr, 16);
        events += take(size);
        require(take(2) == "\r\n", "a chunk without its end", rest_);
        last = size == 0;
      }
    }
    check_events(events);
  }

  static void check_events(std::string const& events) {
    std::string_view data;
    for (std::size_t at = 0; at < events.size();) {
      auto const end = events.find("\n\n", at);
      require(end != std::string::npos && events.compare(at, 6, "data: ") == 0, "no event", events);
      data = std::string_view(events).substr(at + 6, end - at - 6);
      require(data == "[DONE]" || nlohmann::json::accept(data), "an event is not JSON", data);
      at = end + 2;
    }
    require(data == "[DONE]", "the stream does not say that it is done", events);
  }

  std::string_view sent_;
  std::string_view rest_;
  std::set<std::string> ids_;
  std::size_t replies_ = 0;
  bool closing_ = false;
};

}  // namespace
}  // namespace qwen38::test

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace qwen38::test;
  static served here;
  std::string_view const sent(reinterpret_cast<char const*>(data), std::min(size, most_bytes));
  raw_client client(here.server.port());
  client.send(sent);
  auto const received = client.read_to_end();
  require(client.how_ended() != ending::out_of_patience, "the connection does not end", sent);
  // A reset may swallow replies that were under way.
  if (client.how_ended() == ending::closed) reply_reader(sent, received).read_all();
  require(exchange_once(here.server.port(), get("/health")).status == 200,
          "the server does not answer after", sent);
  return 0;
}
