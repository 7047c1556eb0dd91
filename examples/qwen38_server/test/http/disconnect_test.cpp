// SPDX-License-Identifier: Apache-2.0
// Clients that leave, in front of the real engine on a small made-up model: whatever the moment,
// nothing of a request stays behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/handler.hpp"
#include "engine/engine.hpp"
#include "http/server.hpp"
#include "test/api/api_fixture.hpp"
#include "test/engine/toy_model.hpp"
#include "test/http/raw_client.hpp"
#include "test/support/byte_tokenizer.hpp"

namespace qwen38::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t chunk_tokens = 64;

/// A server on a free port in front of the engine; each pass of the model takes a while.
class engine_server {
 public:
  explicit engine_server(std::chrono::microseconds pass)
      : model_(slow(pass, passes_)),
        tokenizer_(make_byte_tokenizer()),
        engine_(model_, tokenizer_, {.queue_limit = 64, .on_fault = {}}),
        requests_(engine_, tokenizer_, api::served_settings()),
        server_(requests_, on_free_port()) {
    engine_.start();
    thread_ = std::thread([this] { server_.run(); });
  }
  ~engine_server() {
    server_.stop();
    thread_.join();
  }
  engine_server(engine_server const&) = delete;
  engine_server& operator=(engine_server const&) = delete;

  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  [[nodiscard]] engine::service::state state() const { return engine_.get_state(); }
  [[nodiscard]] std::size_t connections() const { return server_.connections(); }
  [[nodiscard]] int passes() const { return passes_; }

  /// Whether nothing is left of any request or connection within the time.
  bool wait_until_idle(std::chrono::seconds time) const {
    auto const end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      auto const now = state();
      if (now.running + now.waiting + now.kv_pages_reserved + connections() == 0) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }

 private:
  static toy_options slow(std::chrono::microseconds pass, std::atomic<int>& passes) {
    toy_options out;
    out.limits.max_lanes = 3;
    out.limits.max_context = 8192;
    out.limits.prefill_chunk = chunk_tokens;
    out.limits.snapshots = 4;
    out.agrees = [](std::int64_t position, int depth) { return (position + depth) % 5 != 0; };
    out.on_forward = [pass, &passes](auto const&) {
      ++passes;
      std::this_thread::sleep_for(pass);
    };
    return out;
  }
  static http::options on_free_port() {
    http::options out;
    out.port = 0;
    return out;
  }

  std::atomic<int> passes_ = 0;
  toy_model model_;
  text::tokenizer tokenizer_;
  engine::engine engine_;
  api::handler requests_;
  http::server server_;
  std::thread thread_;
};

std::string chat_request(bool stream, std::size_t prompt_bytes, int max_tokens) {
  return post("/v1/chat/completions",
              R"({"temperature":0,"max_tokens":)" + std::to_string(max_tokens) + R"(,"stream":)" +
                  (stream ? "true" : "false") + R"(,"messages":[{"role":"user","content":")" +
                  std::string(prompt_bytes, 'p') + "\"}]}");
}

enum class moment {
  in_header,
  in_body,
  submitted,  // in the queue or in prefill, whichever it is by then
  in_long_prefill,
  in_stream,
  sent_ahead,  // with further requests in the connection
  waiting,     // for a plain reply
  after_the_end,
  count
};

void leave(raw_client& client, std::mt19937& random) {
  switch (random() % 3) {
    case 0: client.close(); break;
    case 1: client.reset(); break;
    default: client.close_sending_half(); break;  // and closes with its last scope
  }
}

/// One client that gets to a moment and leaves.
void come_and_leave(std::uint16_t port, moment when, std::mt19937& random) {
  auto const below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  raw_client client(port);
  // So long that it takes some 2,000 passes of the model if it goes on.
  constexpr int tokens = 5000;
  auto const stream = chat_request(true, below(100), tokens);
  auto const head_size = stream.find("\r\n\r\n") + 4;
  switch (when) {
    case moment::in_header: client.send(stream.substr(0, below(head_size))); break;
    case moment::in_body:
      client.send(stream.substr(0, head_size + below(stream.size() - head_size)));
      break;
    case moment::submitted:
      client.send(chat_request(below(2) == 0, below(1000), tokens));
      std::this_thread::sleep_for(std::chrono::microseconds(below(1000)));
      break;
    case moment::in_long_prefill:
      client.send(chat_request(true, 6000, 1000));
      client.read_until("\"role\":\"assistant\"");
      break;
    case moment::in_stream:
      client.send(stream);
      for (auto events = below(20); events > 0; --events) client.read_until("\n\n");
      break;
    case moment::sent_ahead:
      client.send(stream + get("/health") + stream);
      client.read_until("\n\n");
      break;
    case moment::waiting:
      client.send(chat_request(false, below(300), tokens));
      std::this_thread::sleep_for(std::chrono::microseconds(below(5000)));
      break;
    default:
      client.send(chat_request(true, below(100), 3));
      client.read_until("data: [DONE]");
      break;
  }
  leave(client, random);
}

std::string answer_of(std::uint16_t port) {
  auto const reply = exchange_once(port, chat_request(false, 150, 60));
  EXPECT_EQ(reply.status, 200);
  return nlohmann::json::parse(reply.body)["choices"][0]["message"].dump();
}

TEST(disconnect, w6_a_thousand_at_random_moments_leave_nothing_behind) {
  constexpr unsigned seed = 7;
  constexpr unsigned threads = 12;
  constexpr unsigned clients = 1000;
  engine_server served(150us);
  auto const before = answer_of(served.port());

  std::array<std::atomic<int>, static_cast<std::size_t>(moment::count)> counts{};
  std::atomic<unsigned> next = 0;
  std::vector<std::thread> crowd;
  for (unsigned i = 0; i < threads; ++i) {
    crowd.emplace_back([&] {
      for (auto number = next++; number < clients; number = next++) {
        std::mt19937 random(seed * clients + number);
        auto const when = random() % static_cast<unsigned>(moment::count);
        ++counts[when];
        come_and_leave(served.port(), static_cast<moment>(when), random);
      }
    });
  }
  for (auto& one : crowd) one.join();

  bool const idle = served.wait_until_idle(20s);
  auto const left = served.state();
  EXPECT_TRUE(idle) << "seed " << seed << ": " << left.running << " running, " << left.waiting
                    << " waiting, " << left.kv_pages_reserved << " pages, " << served.connections()
                    << " connections";
  EXPECT_FALSE(left.failed);
  EXPECT_EQ(left.snapshots_reserved, 0U) << "seed " << seed;
  EXPECT_LE(left.snapshots_used, left.snapshots);
  EXPECT_GT(left.kv_pages_cached, 0U) << "seed " << seed << ": no prompt was kept";
  for (auto const& count : counts) EXPECT_GT(count, 50) << "seed " << seed;
  EXPECT_LT(served.passes(), static_cast<int>(100 * clients)) << "answers went on for nobody";
  // All lanes are whole: more requests than there are, and the same text as before.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(answer_of(served.port()), before) << "seed " << seed;
}

TEST(disconnect, w7_retries_of_an_impatient_client_do_not_pile_up) {
  constexpr int prompt_bytes = 7500;
  constexpr int chunks = prompt_bytes / chunk_tokens;
  engine_server served(2ms);
  for (int retry = 0; retry < 4; ++retry) {
    int const before = served.passes();
    {
      raw_client client(served.port());
      client.send(chat_request(true, prompt_bytes, 10));
      ASSERT_NE(client.read_until("assistant"), "");
      while (served.passes() == before) std::this_thread::sleep_for(1ms);
    }
    ASSERT_TRUE(served.wait_until_idle(20s));
    EXPECT_LT(served.passes() - before, chunks / 2) << "the prompt was computed for nobody";
  }
}

}  // namespace
}  // namespace qwen38::test
