// SPDX-License-Identifier: Apache-2.0
// Broken requests, clients that leave, limits, and many clients at once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "test/http/server_fixture.hpp"

namespace qwen38::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

std::string chat(std::string const& members) {
  return post(chat_path, R"({"messages":[{"role":"user","content":"hi"}],)" + members + "}");
}
std::string text(std::string const& body) {
  return post("/v1/completions", body);
}

struct bad_request {
  std::string request;
  int status;
  std::string mentions;  // in the message
};

void expect_refused(std::uint16_t port, bad_request const& bad) {
  auto const reply = exchange_once(port, bad.request);
  auto const shown = bad.request.substr(0, 300);
  ASSERT_EQ(reply.status, bad.status) << shown << "\n" << reply.body;
  EXPECT_TRUE(reply.complete) << shown;
  EXPECT_EQ(reply.headers.at("content-type"), "application/json") << shown;
  EXPECT_EQ(reply.headers.count("x-request-id"), 1U) << shown;
  auto const body = json::parse(reply.body);
  auto const& what = body.at("error");
  for (auto const* const member : {"message", "type", "param", "code"})
    EXPECT_TRUE(what.contains(member)) << shown;
  auto const message = what["message"].get<std::string>();
  EXPECT_TRUE(api::is_sentence(message)) << shown << "\n" << message;
  EXPECT_NE(message.find(bad.mentions), std::string::npos) << shown << "\n" << message;
}

TEST(templates, p1_p2_p6_conversations_that_other_servers_answer_with_500) {
  running_server served(short_answer);
  for (
      std::string const members :
      {R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"system","content":"c"},
          {"role":"user","content":"d"}])",
       R"("messages":[{"role":"system","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"}])",
       R"("messages":[{"role":"developer","content":"a"},{"role":"user","content":"b"},{"role":"developer","content":"c"}])",
       R"("messages":[{"role":"user","content":""}])",
       R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1",
          "type":"function","function":{"name":"f","arguments":"{\"city\":\"Paris\"}"}}]},
          {"role":"tool","tool_call_id":"1","content":"ok"}])",
       R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1",
          "type":"function","function":{"name":"f","arguments":""}}]},{"role":"tool","content":"ok"}])",
       R"("reasoning_effort":"high","messages":[{"role":"user","content":"a"}])",
       R"("reasoning_effort":"max","messages":[{"role":"user","content":"a"}])",
       R"("reasoning_effort":"minimal","messages":[{"role":"user","content":"a"}])",
       R"("reasoning_effort":"none","messages":[{"role":"user","content":"a"}])",
       R"("reasoning_effort":"","messages":[{"role":"user","content":"a"}])"}) {
    auto const reply = exchange_once(served.port(), post(chat_path, "{" + members + "}"));
    EXPECT_EQ(reply.status, 200) << members << reply.body;
  }
}

TEST(templates, t1_thinking_off_starts_in_content_and_on_in_reasoning) {
  running_server served(short_answer);
  exchange_once(served.port(), chat(R"("enable_thinking":false)"));
  exchange_once(served.port(), chat(R"("chat_template_kwargs":{"enable_thinking":false})"));
  exchange_once(served.port(), chat(R"("reasoning_effort":"none")"));
  exchange_once(served.port(), chat(R"("n":1)"));
  auto const requests = served.engine.requests();
  ASSERT_EQ(requests.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(requests[i].split_reasoning);
    EXPECT_EQ(requests[i].starts_in_reasoning, i == 3) << i;
    auto const prompt = served.tokenizer.decode(requests[i].prompt_ids, false);
    EXPECT_EQ(prompt.ends_with("<think>\n\n</think>\n\n"), i != 3) << prompt;
  }
}

TEST(templates, t2_thinking_cut_off_by_the_limit_is_not_content) {
  running_server served([](engine::request const&) {
    script out;
    out.steps = {reasoning_delta("half a thought")};
    out.outcome.finish = engine::finish_reason::length;
    return out;
  });
  auto const choice =
      json::parse(exchange_once(served.port(), chat(R"("max_tokens":5)")).body)["choices"][0];
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["reasoning_content"], "half a thought");
  EXPECT_EQ(choice["finish_reason"], "length");
}

// A disconnect is noticed by the pending read, within milliseconds; by the next comment it would
// take 10 s.
constexpr auto soon = 5s;

enum class leaving { close, reset, half_close };

void leave(raw_client& client, leaving way) {
  if (way == leaving::close) client.close();
  if (way == leaving::reset) client.reset();
  if (way == leaving::half_close) client.close_sending_half();
}

TEST(disconnect, w6_generation_ends_at_once_in_every_phase) {
  for (auto const way : {leaving::close, leaving::reset, leaving::half_close}) {
    for (bool const stream : {true, false}) {
      for (bool const prefill : {true, false}) {
        running_server served(prefill ? silent_answer : endless_answer, {}, {.lanes = 1});
        raw_client running(served.port());
        raw_client queued(served.port());
        running.send(post(chat_path, stream ? stream_body : chat_body));
        ASSERT_TRUE(served.engine.wait_until_jobs(1, 10s));
        queued.send(post(chat_path, stream ? stream_body : chat_body));
        ASSERT_TRUE(served.engine.wait_until_jobs(2, 10s));
        if (stream) {
          ASSERT_NE(running.read_until(prefill ? "assistant" : "more "), "");
        }
        leave(queued, way);
        EXPECT_TRUE(served.engine.wait_until_jobs(1, soon)) << "in the queue";
        leave(running, way);
        EXPECT_TRUE(served.engine.wait_until_jobs(0, soon)) << "running";
        EXPECT_EQ(served.engine.cancelled(), 2U);
        EXPECT_EQ(exchange_once(served.port(), get("/health")).status, 200);
      }
    }
  }
}

TEST(disconnect, requests_sent_ahead_do_not_hide_it) {
  running_server served(endless_answer);
  raw_client client(served.port());
  client.send(post(chat_path, stream_body) + get("/health"));
  ASSERT_NE(client.read_until("more "), "");
  client.send(get("/health"));
  client.close();
  EXPECT_TRUE(served.engine.wait_until_jobs(0, soon));
}

TEST(disconnect, w22_a_client_that_never_reads_is_dropped_and_slows_nobody) {
  http::options wanted;
  wanted.bounds.stream_buffer_bytes = std::size_t{256} << 10U;
  running_server served(
      [](engine::request const& request) {
        script out;
        out.steps = {content_delta(std::string(32768, 'x'))};
        out.endless = request.max_tokens == 7;
        return out;
      },
      wanted);
  auto lazy = raw_client::with_small_window(served.port());
  lazy.send(post(chat_path,
                 R"({"stream":true,"max_tokens":7,"messages":[{"role":"user","content":"hi"}]})"));
  ASSERT_TRUE(served.engine.wait_until_jobs(1, 10s));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(exchange_once(served.port(), post(chat_path, stream_body)).status, 200);
    EXPECT_EQ(exchange_once(served.port(), get("/health")).status, 200);
  }
  EXPECT_TRUE(served.engine.wait_until_jobs(0, 20s))
      << "the stream of a client that does not read goes on";
  EXPECT_EQ(served.engine.cancelled(), 1U);
}

TEST(limits, w17_bodies_are_bounded_with_and_without_content_length) {
  http::options wanted;
  wanted.bounds.body_bytes = 1000;
  running_server served(short_answer, wanted);
  auto const body = [](std::size_t size) {
    std::string const frame = R"({"prompt":""})";
    return R"({"prompt":")" + std::string(size - frame.size(), 'x') + "\"}";
  };
  EXPECT_EQ(exchange_once(served.port(), text(body(1000))).status, 200);
  expect_refused(served.port(), {text(body(1001)), 413, "1000 bytes"});
  raw_client endless(served.port());
  endless.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string const chunk = "100\r\n" + std::string(256, 'x') + "\r\n";
  for (int i = 0; i < 4096 && endless.send(chunk); ++i) {
  }
  EXPECT_EQ(endless.read_reply().status, 413);
  EXPECT_TRUE(endless.is_closed_by_peer());
}

TEST(limits, all_bodies_together_are_bounded_and_given_back) {
  http::options wanted;
  wanted.bounds.all_bodies_bytes = 3000;
  running_server served(short_answer, wanted);
  std::string const half = std::string(2000, ' ');
  std::string const head =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2014\r\n\r\n";
  {
    raw_client first(served.port());
    first.send(head + half);
    // The first body is counted once its bytes have arrived; until then the second one passes.
    int status = 0;
    for (int attempt = 0; attempt < 200 && status != 503; ++attempt) {
      raw_client second(served.port());
      second.send(head + half + R"({"prompt":"x"})");
      auto const reply = second.read_reply();
      status = reply.status;
      EXPECT_EQ(reply.headers.count("retry-after"), status == 503 ? 1U : 0U);
    }
    EXPECT_EQ(status, 503);
    first.send(R"({"prompt":"x"})");
    EXPECT_EQ(first.read_reply().status, 200);
  }
  EXPECT_EQ(exchange_once(served.port(), head + half + R"({"prompt":"x"})").status, 200);
}

TEST(limits, w17_headers_are_bounded_in_bytes_and_number) {
  running_server served(short_answer);
  std::string many;
  for (int i = 0; i < 98; ++i) many += "a: b\r\n";
  EXPECT_EQ(exchange_once(served.port(), get("/health", many)).status, 200);
  expect_refused(served.port(), {get("/health", many + "a: b\r\na: b\r\n"), 431, "100"});
  expect_refused(served.port(),
                 {get("/health", "a: " + std::string(20'000, 'x') + "\r\n"), 431, "16384 bytes"});
  expect_refused(
      served.port(),
      {"GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\nHost: x\r\n\r\n", 431, "bytes"});
  raw_client endless(served.port());
  endless.send("GET /health HTTP/1.1\r\nHost: x\r\n");
  for (int i = 0; i < 100'000 && endless.send("a: b\r\n"); ++i) {
  }
  EXPECT_EQ(endless.read_reply().status, 431);
}

TEST(limits, slow_headers_slow_bodies_and_idle_connections_are_closed) {
  http::options wanted;
  wanted.bounds.header_timeout = 100ms;
  wanted.bounds.body_timeout = 100ms;
  wanted.bounds.idle_timeout = 100ms;
  running_server served(short_answer, wanted);
  raw_client slow_header(served.port());
  slow_header.send("GET /health HTTP/1.1\r\nHost:");
  EXPECT_TRUE(slow_header.is_closed_by_peer());
  raw_client slow_body(served.port());
  slow_body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_TRUE(slow_body.is_closed_by_peer());
  raw_client idle(served.port());
  EXPECT_TRUE(idle.is_closed_by_peer());
}

TEST(limits, connections_beyond_the_limit_get_503_and_others_go_on) {
  http::options wanted;
  wanted.bounds.connections = 2;
  running_server served(endless_answer, wanted);
  raw_client first(served.port());
  raw_client second(served.port());
  first.send(post(chat_path, stream_body));
  second.send(post(chat_path, stream_body));
  ASSERT_NE(first.read_until("more "), "");
  ASSERT_NE(second.read_until("more "), "");
  raw_client third(served.port());
  auto const refused = third.read_reply();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "server_overloaded");
  first.close();
  ASSERT_TRUE(served.engine.wait_until_jobs(1, 10s));
  int status = 0;
  for (int attempt = 0; attempt < 200 && status != 200; ++attempt) {
    raw_client fourth(served.port());
    fourth.send(get("/health"));
    status = fourth.read_reply().status;
  }
  EXPECT_EQ(status, 200);
  EXPECT_NE(second.read_until("more "), "");
}

TEST(many_clients, a_hundred_streams_at_once_and_health_in_between) {
  constexpr int clients = 100;
  running_server served(
      [](engine::request const&) {
        script out;
        for (int i = 0; i < 50; ++i)
          out.steps.push_back(content_delta("t" + std::to_string(i) + " "));
        return out;
      },
      {}, {.lanes = clients, .step = 2ms});
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += "t" + std::to_string(i) + " ";
  std::vector<raw_client> streams;
  streams.reserve(clients);
  for (int i = 0; i < clients; ++i) {
    streams.emplace_back(served.port());
    streams.back().send(post(chat_path, stream_body));
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(exchange_once(served.port(), get("/health")).status, 200);
  for (auto& stream : streams) {
    auto const reply = stream.read_reply();
    ASSERT_EQ(reply.status, 200);
    ASSERT_TRUE(reply.complete);
    std::string text;
    for (std::size_t at = 0;
         (at = reply.body.find("\"delta\":{\"content\":\"", at)) != std::string::npos;) {
      at += 20;
      text += reply.body.substr(at, reply.body.find('"', at) - at);
    }
    EXPECT_EQ(text, expected);
    EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
  }
}

TEST(stopping, tells_streams_and_plain_requests_and_returns) {
  running_server served(endless_answer);
  raw_client idle(served.port());
  raw_client stream(served.port());
  raw_client plain(served.port());
  ASSERT_TRUE(both_run(served, stream, plain));
  served.stop();
  EXPECT_NE(stream.read_to_end().find("data: {\"error\":"), std::string::npos);
  EXPECT_EQ(plain.read_reply().status, 503);
  EXPECT_TRUE(idle.is_closed_by_peer());
  EXPECT_EQ(served.engine.cancelled(), 2U);
}

TEST(stopping, does_not_wait_for_what_never_ends) {
  http::options wanted;
  wanted.stop_grace = 50ms;
  running_server served(short_answer, wanted);
  raw_client half_header(served.port());
  raw_client half_body(served.port());
  half_header.send("GET /health HTTP/1.1\r\nHost:");
  half_body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(exchange_once(served.port(), get("/health")).status, 200);
  served.stop();
}

TEST(stopping, is_possible_before_running) {
  scripted_service engine(short_answer);
  auto const tokenizer = make_byte_tokenizer();
  api::handler const requests(engine, tokenizer, api::served_settings());
  http::options wanted;
  wanted.port = 0;
  http::server server(requests, wanted);
  server.stop();
  server.run();
}

}  // namespace
}  // namespace qwen38::test
