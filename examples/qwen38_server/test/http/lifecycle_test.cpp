// SPDX-License-Identifier: Apache-2.0
// A server from the start of its process to the end: loading, serving, draining, stopping.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "test/http/server_fixture.hpp"

namespace qwen38::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

std::string error_code_in(raw_reply const& reply) {
  auto const code = json::parse(reply.body)["error"]["code"];
  return code.is_string() ? code.get<std::string>() : std::string();
}

/// Answers that go on until the flag is set, and then end by themselves.
scripted_service::author answers_until(std::shared_ptr<std::atomic<bool>> released) {
  return [released = std::move(released)](engine::request const&) {
    script out;
    out.steps = {content_delta("more ")};
    out.endless = true;
    out.released = released;
    return out;
  };
}

TEST(loading, everything_is_503_but_the_key_and_the_path_are_checked) {
  http::options wanted;
  wanted.port = 0;
  wanted.api_key = "sk-secret";
  http::server server(wanted);
  std::thread running([&] { server.run(); });
  std::string const key = "Authorization: Bearer sk-secret\r\n";

  auto const health = exchange_once(server.port(), get("/health"));
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(json::parse(health.body), json({{"status", "loading"}}));
  EXPECT_EQ(exchange_once(server.port(), get("/health?deep=1")).status, 503);
  for (auto const& request :
       {get("/v1/models", key), get("/v1/models/demo", key), post(chat_path, chat_body, key),
        post(chat_path, stream_body, key), post("/v1/completions", "no JSON", key),
        post("/tokenize", "{}", key), post("/detokenize", "{}", key), get("/version", key),
        get("/metrics", key)}) {
    auto const reply = exchange_once(server.port(), request);
    EXPECT_EQ(reply.status, 503) << request;
    EXPECT_EQ(error_code_in(reply), "loading") << request;
    EXPECT_TRUE(api::is_sentence(json::parse(reply.body)["error"]["message"])) << reply.body;
    EXPECT_GE(std::stoi(reply.headers.at("retry-after")), 1);
  }
  EXPECT_EQ(exchange_once(server.port(), post(chat_path, chat_body)).status, 401);
  EXPECT_EQ(exchange_once(server.port(), get("/nothing", key)).status, 404);
  EXPECT_EQ(exchange_once(server.port(), get(chat_path, key)).status, 405);

  scripted_service engine(short_answer);
  auto const tokenizer = make_byte_tokenizer();
  api::handler const requests(engine, tokenizer, api::served_settings());
  raw_client before(server.port());
  before.send(get("/health"));
  EXPECT_EQ(before.read_reply().status, 503);
  server.begin_serving(requests);
  before.send(get("/health"));
  EXPECT_EQ(before.read_reply().status, 200) << "on a connection from before";
  EXPECT_EQ(exchange_once(server.port(), get("/v1/models", key)).status, 200);
  EXPECT_EQ(exchange_once(server.port(), post(chat_path, chat_body, key)).status, 200);
  server.stop();
  running.join();
}

TEST(loading, drained_or_stopped_it_ends_at_once) {
  for (bool const drained : {true, false}) {
    http::options wanted;
    wanted.port = 0;
    http::server server(wanted);
    std::thread running([&] { server.run(); });
    EXPECT_EQ(exchange_once(server.port(), get("/health")).status, 503);
    drained ? server.drain() : server.stop();
    running.join();
  }
}

TEST(draining, answers_go_on_and_new_requests_get_503) {
  auto const released = std::make_shared<std::atomic<bool>>(false);
  running_server served(answers_until(released), {}, {.retry_after_s = 7});
  raw_client stream(served.port());
  raw_client plain(served.port());
  raw_client idle(served.port());
  ASSERT_TRUE(both_run(served, stream, plain));
  idle.send(get("/health"));
  EXPECT_EQ(idle.read_reply().headers.at("connection"), "keep-alive");

  served.server.drain();
  int health = 0;
  for (int attempt = 0; attempt < 2000 && health != 503; ++attempt) {
    auto const reply = exchange_once(served.port(), get("/health"));
    health = reply.status;
    if (health == 503) {
      EXPECT_EQ(json::parse(reply.body)["status"], "draining");
    }
  }
  ASSERT_EQ(health, 503);
  for (auto const& body : {chat_body, stream_body}) {
    auto const reply = exchange_once(served.port(), post(chat_path, body));
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(error_code_in(reply), "unavailable");
    EXPECT_EQ(reply.headers.at("retry-after"), "7");
    EXPECT_EQ(reply.headers.at("connection"), "close");
  }
  ASSERT_NE(stream.read_until("more "), "") << "a running answer ended too early";

  *released = true;
  auto const rest = stream.read_to_end();
  EXPECT_NE(rest.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_EQ(rest.find("error"), std::string::npos);
  EXPECT_EQ(plain.read_reply().status, 200);
  EXPECT_TRUE(idle.is_closed_by_peer());
  served.wait_until_ended();
  EXPECT_EQ(served.engine.cancelled(), 0U);
  EXPECT_EQ(served.server.connections(), 0U);
}

TEST(draining, ends_what_is_not_done_in_time_with_an_error) {
  http::options wanted;
  wanted.drain_timeout = 100ms;
  running_server served(endless_answer, wanted);
  raw_client stream(served.port());
  raw_client plain(served.port());
  ASSERT_TRUE(both_run(served, stream, plain));
  served.server.drain();
  auto const rest = stream.read_to_end();
  EXPECT_NE(rest.find("data: {\"error\":"), std::string::npos);
  EXPECT_NE(rest.find("\"code\":\"cancelled\""), std::string::npos);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  auto const reply = plain.read_reply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(error_code_in(reply), "cancelled");
  EXPECT_EQ(reply.headers.count("retry-after"), 1U);
  served.wait_until_ended();
  EXPECT_EQ(served.engine.cancelled(), 2U);
}

TEST(draining, is_cut_short_by_a_stop) {
  http::options wanted;
  wanted.drain_timeout = 10min;
  running_server served(endless_answer, wanted);
  raw_client stream(served.port());
  stream.send(post(chat_path, stream_body));
  ASSERT_NE(stream.read_until("more "), "");
  served.server.drain();
  served.server.drain();  // the same again changes nothing
  ASSERT_NE(stream.read_until("more "), "");
  served.server.stop();
  EXPECT_NE(stream.read_to_end().find("data: {\"error\":"), std::string::npos);
  served.wait_until_ended();
}

TEST(draining, is_over_at_once_where_nothing_runs) {
  running_server served(short_answer);
  raw_client idle(served.port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.read_reply().status, 200);
  served.server.drain();
  EXPECT_TRUE(idle.is_closed_by_peer());
  served.wait_until_ended();
}

TEST(draining, before_running_ends_the_run) {
  http::options wanted;
  wanted.port = 0;
  http::server server(wanted);
  server.drain();
  server.run();
}

TEST(health_route, deep_tells_of_progress_and_stalls) {
  running_server served(endless_answer);
  auto const calm = json::parse(exchange_once(served.port(), get("/health?deep=1")).body);
  EXPECT_EQ(calm["status"], "ok");
  EXPECT_EQ(calm["silent_s"], 0);
  EXPECT_FALSE(
      json::parse(exchange_once(served.port(), get("/health?deep=0")).body).contains("turns"));
  raw_client stream(served.port());
  stream.send(post(chat_path, stream_body));
  ASSERT_NE(stream.read_until("more "), "");
  auto const busy = json::parse(exchange_once(served.port(), get("/health?x&deep=1")).body);
  EXPECT_GT(busy["turns"], calm["turns"]);
  EXPECT_EQ(busy["running"], 1);
}

/// Whether the other end of a connection of this process has TCP_NODELAY set; nullopt if it is not
/// in this process.
std::optional<bool> has_no_delay(std::uint16_t client_port) {
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != client_port) continue;
    int value = 0;
    size = sizeof value;
    ::getsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &value, &size);
    return value != 0;
  }
  return std::nullopt;
}

TEST(sockets, small_frames_are_not_held_back) {
  running_server served(endless_answer);
  raw_client stream(served.port());
  stream.send(post(chat_path, stream_body));
  ASSERT_NE(stream.read_until("more "), "");
  EXPECT_EQ(has_no_delay(stream.local_port()), std::optional<bool>(true));
}

TEST(sockets, connections_are_counted_and_forgotten) {
  running_server served(endless_answer);
  {
    raw_client first(served.port());
    raw_client second(served.port());
    first.send(get("/health"));
    second.send(post(chat_path, stream_body));
    EXPECT_EQ(first.read_reply().status, 200);
    ASSERT_NE(second.read_until("more "), "");
    EXPECT_EQ(served.server.connections(), 2U);
  }
  for (int i = 0; i < 2000 && served.server.connections() > 0; ++i)
    std::this_thread::sleep_for(5ms);
  EXPECT_EQ(served.server.connections(), 0U);
}

}  // namespace
}  // namespace qwen38::test
