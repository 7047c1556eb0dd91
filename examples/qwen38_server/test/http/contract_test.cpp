// SPDX-License-Identifier: Apache-2.0
// The wire contract over real sockets: headers, framing, order, usage, errors, auth, keep-alive.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "test/http/server_fixture.hpp"
#include "test/support/prometheus_text.hpp"

namespace qwen38::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

/// The data of each frame; comments are left out.
std::vector<std::string> frames_of(std::string const& body) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < body.size();) {
    auto const end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "frame without its end: " << body.substr(at);
      break;
    }
    auto const frame = body.substr(at, end - at);
    if (frame.starts_with("data: ")) {
      out.push_back(frame.substr(6));
    } else {
      EXPECT_EQ(frame, ": keep-alive");
    }
    at = end + 2;
  }
  return out;
}

TEST(sse_contract, headers_of_a_stream) {
  running_server served(short_answer);
  auto const reply = exchange_once(served.port(), post(chat_path, stream_body));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.version, "HTTP/1.1");
  EXPECT_TRUE(reply.headers.at("content-type").starts_with("text/event-stream"));
  EXPECT_EQ(reply.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(reply.headers.at("x-accel-buffering"), "no");
  EXPECT_EQ(reply.headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(reply.headers.at("x-request-id").size(), 16U);
  for (auto const& [name, value] : reply.headers)
    EXPECT_FALSE(name.starts_with("access-control")) << value;
}

TEST(sse_contract, order_and_stable_fields_of_a_chat_stream) {
  running_server served([](engine::request const&) {
    return script{.steps = {reasoning_delta("why"), content_delta("Hel"), content_delta("lo")},
                  .outcome = {},
                  .endless = false,
                  .silent = false};
  });
  auto const reply = exchange_once(served.port(), post(chat_path, stream_body));
  EXPECT_TRUE(reply.complete);
  auto const frames = frames_of(reply.body);
  ASSERT_EQ(frames.size(), 6U) << reply.body;
  EXPECT_EQ(frames.back(), "[DONE]");
  std::vector<json> const deltas = {{{"role", "assistant"}, {"content", ""}},
                                    {{"reasoning_content", "why"}},
                                    {{"content", "Hel"}},
                                    {{"content", "lo"}},
                                    json::object()};
  auto const first = json::parse(frames[0]);
  EXPECT_EQ(first["id"], "chatcmpl-" + reply.headers.at("x-request-id"));
  for (std::size_t i = 0; i < deltas.size(); ++i) {
    EXPECT_EQ(frames[i].find('\n'), std::string::npos);
    auto const chunk = json::parse(frames[i]);
    EXPECT_EQ(chunk["choices"].size(), 1U);
    EXPECT_EQ(chunk["choices"][0]["index"], 0);
    EXPECT_EQ(chunk["choices"][0]["delta"], deltas[i]);
    EXPECT_EQ(chunk["choices"][0]["finish_reason"], i == 4 ? json("stop") : json(nullptr));
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    for (auto const* const same : {"id", "created", "model"}) EXPECT_EQ(chunk[same], first[same]);
    EXPECT_FALSE(chunk.contains("usage"));
  }
  EXPECT_TRUE(json::parse(frames[4]).contains("timings"));
  EXPECT_TRUE(json::parse(frames[4]).contains("speculative"));
}

TEST(sse_contract, w1_no_usage_unless_asked_for) {
  running_server served(short_answer);
  for (std::string const options :
       {"{}", "null", R"({"include_usage":false})", R"({"include_usage":null})"}) {
    for (std::string const& path : {chat_path, std::string("/v1/completions")}) {
      auto const body =
          R"({"stream":true,"prompt":"x","messages":[{"role":"user","content":"x"}],"stream_options":)" +
          options + "}";
      auto const reply = exchange_once(served.port(), post(path, body));
      EXPECT_EQ(reply.status, 200);
      EXPECT_EQ(reply.body.find("usage"), std::string::npos) << reply.body;
      EXPECT_EQ(frames_of(reply.body).back(), "[DONE]");
    }
  }
}

TEST(sse_contract, w2_usage_has_a_chunk_of_its_own_after_the_finish_chunk) {
  running_server served(short_answer);
  for (std::string const& path : {chat_path, std::string("/v1/completions")}) {
    auto const reply = exchange_once(
        served.port(),
        post(path, R"({"stream":true,"prompt":"x","messages":[{"role":"user","content":"x"}],
                       "stream_options":{"include_usage":true}})"));
    auto const frames = frames_of(reply.body);
    ASSERT_GE(frames.size(), 4U);
    for (std::size_t i = 0; i + 2 < frames.size(); ++i) {
      auto const chunk = json::parse(frames[i]);
      ASSERT_TRUE(chunk.contains("usage")) << frames[i];
      EXPECT_TRUE(chunk["usage"].is_null());
      EXPECT_EQ(chunk["choices"].size(), 1U);
    }
    EXPECT_EQ(json::parse(frames[frames.size() - 3])["choices"][0]["finish_reason"], "stop");
    auto const usage = json::parse(frames[frames.size() - 2]);
    EXPECT_TRUE(usage["choices"].empty());
    EXPECT_EQ(usage["usage"]["completion_tokens"], 3);
    EXPECT_EQ(frames.back(), "[DONE]");
  }
}

TEST(sse_contract, comments_while_nothing_is_sent_in_queue_and_prefill) {
  http::options wanted;
  wanted.keep_alive_interval = 20ms;
  running_server served(silent_answer, wanted, {.lanes = 1});
  raw_client running(served.port());
  raw_client queued(served.port());
  running.send(post(chat_path, stream_body));
  EXPECT_EQ(running.read_head().status, 200);
  queued.send(post(chat_path, stream_body));
  EXPECT_EQ(queued.read_head().status, 200);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(running.read_until(": keep-alive\n\n"), "");
    EXPECT_NE(queued.read_until(": keep-alive\n\n"), "");
  }
}

TEST(sse_contract, w5_error_after_the_stream_began_is_a_frame_and_a_proper_end) {
  running_server served([](engine::request const&) {
    script out;
    out.steps = {content_delta("Hel")};
    out.outcome.finish = engine::finish_reason::failed;
    out.outcome.message = "Logits were not finite.";
    return out;
  });
  auto const reply = exchange_once(served.port(), post(chat_path, stream_body));
  EXPECT_TRUE(reply.complete);
  auto const frames = frames_of(reply.body);
  EXPECT_EQ(json::parse(frames.back())["error"]["message"], "Logits were not finite.");
  EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos);
  auto const plain = exchange_once(served.port(), post(chat_path, chat_body));
  EXPECT_EQ(plain.status, 500);
  EXPECT_EQ(json::parse(plain.body)["error"]["message"], "Logits were not finite.");
}

script ends_by(engine::finish_reason reason, std::string const& message) {
  script out;
  out.outcome.finish = reason;
  out.outcome.message = message;
  return out;
}

TEST(sse_contract, w5_queue_timeouts_and_deadlines_are_told_plain_and_in_a_stream) {
  struct ending {
    engine::finish_reason reason;
    int status;
    std::string code;
  };
  for (auto const& want : {ending{engine::finish_reason::queue_timeout, 503, "queue_timeout"},
                           ending{engine::finish_reason::deadline, 504, "deadline_exceeded"}}) {
    running_server served([&](engine::request const&) { return ends_by(want.reason, "Too late."); },
                          {}, {.retry_after_s = 13});
    for (std::string const& path : {chat_path, std::string("/v1/completions")}) {
      std::string const both = R"("prompt":"x","messages":[{"role":"user","content":"x"}]})";
      auto const plain = exchange_once(served.port(), post(path, "{" + both));
      EXPECT_EQ(plain.status, want.status);
      EXPECT_EQ(json::parse(plain.body)["error"]["code"], want.code);
      EXPECT_EQ(json::parse(plain.body)["error"]["message"], "Too late.");
      EXPECT_EQ(json::parse(plain.body)["error"]["type"], "server_error");
      EXPECT_EQ(plain.headers.count("retry-after"), want.status == 503 ? 1U : 0U);
      if (want.status == 503) {
        EXPECT_EQ(plain.headers.at("retry-after"), "13");
      }
      auto const stream = exchange_once(served.port(), post(path, R"({"stream":true,)" + both));
      EXPECT_EQ(stream.status, 200);
      EXPECT_TRUE(stream.complete);
      auto const frames = frames_of(stream.body);
      ASSERT_FALSE(frames.empty());
      EXPECT_EQ(json::parse(frames.back())["error"], (json{{"message", "Too late."},
                                                           {"type", "server_error"},
                                                           {"param", nullptr},
                                                           {"code", want.code}}));
      EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
      EXPECT_EQ(stream.body.find("finish_reason\":\""), std::string::npos);
    }
  }
}

std::string const face = "\xF0\x9F\x98\xB8";

script faces_in_steps(int steps, int faces) {
  std::string piece;
  for (int i = 0; i < faces; ++i) piece += face;
  script out;
  for (int i = 0; i < steps; ++i) out.steps.push_back(content_delta(piece));
  return out;
}

/// How many faces the whole events of a chunked stream hold; anything else in a text is a failure.
/// What follows the last whole event is left out.
std::size_t faces_in(std::string const& chunked) {
  constexpr std::string_view mark = "data: {";
  std::size_t faces = 0;
  for (auto at = chunked.find(mark); at != std::string::npos; at = chunked.find(mark, at + 1)) {
    auto const end = chunked.find("\n\n", at);
    if (end == std::string::npos) break;
    auto const event = json::parse(chunked.substr(at + 6, end - at - 6), nullptr,
                                   /*allow_exceptions=*/false);
    if (event.is_discarded()) {
      ADD_FAILURE() << "not an event: " << chunked.substr(at, std::min<std::size_t>(end - at, 300));
      break;
    }
    auto const text = event["choices"][0]["delta"].value("content", "");
    for (std::size_t i = 0; i < text.size(); i += face.size(), ++faces) {
      if (text.substr(i, face.size()) == face) continue;
      ADD_FAILURE() << "a cut character";
      return faces;
    }
  }
  return faces;
}

TEST(sse_contract, w21_a_slow_reader_gets_every_character_whole) {
  running_server served([](engine::request const&) { return faces_in_steps(300, 200); });
  auto client = raw_client::with_small_window(served.port());
  client.send(post(chat_path, stream_body));
  EXPECT_EQ(client.read_head().status, 200);
  // The whole answer, 240 kB, waits in the server before the reader goes on.
  ASSERT_TRUE(served.engine.wait_until_jobs(1, 10s));
  ASSERT_TRUE(served.engine.wait_until_jobs(0, 20s));
  auto const rest = client.read_until("data: [DONE]\n\n\r\n0\r\n\r\n");
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(faces_in(rest), 300U * 200U);
}

TEST(sse_contract, w21_a_reader_that_is_dropped_got_no_cut_character) {
  http::options wanted;
  wanted.bounds.stream_buffer_bytes = std::size_t{100} << 10U;
  running_server served(
      [](engine::request const&) {
        auto out = faces_in_steps(1, 8000);
        out.endless = true;
        return out;
      },
      wanted);
  auto client = raw_client::with_small_window(served.port());
  client.send(post(chat_path, stream_body));
  EXPECT_EQ(client.read_head().status, 200);
  ASSERT_TRUE(served.engine.wait_until_jobs(1, 10s));
  ASSERT_TRUE(served.engine.wait_until_jobs(0, 20s)) << "it was never dropped";
  auto const rest = client.read_to_end();
  EXPECT_GT(faces_in(rest), 0U);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos) << "a stream with a gap looks complete";
  EXPECT_FALSE(rest.ends_with("0\r\n\r\n")) << "a stream with a gap looks complete";
}

TEST(sse_contract, cached_tokens_are_told_on_both_endpoints_plain_and_in_a_stream) {
  running_server served([](engine::request const&) {
    script out;
    out.steps = {content_delta("x")};
    out.outcome.usage = {
        .prompt_tokens = 100, .completion_tokens = 3, .reasoning_tokens = 1, .cached_tokens = 64};
    return out;
  });
  json const expected = {{"prompt_tokens", 100},
                         {"completion_tokens", 3},
                         {"total_tokens", 103},
                         {"prompt_tokens_details", {{"cached_tokens", 64}}},
                         {"completion_tokens_details", {{"reasoning_tokens", 1}}}};
  std::string const both = R"("prompt":"x","messages":[{"role":"user","content":"x"}]})";
  for (std::string const& path : {chat_path, std::string("/v1/completions")}) {
    auto const plain = exchange_once(served.port(), post(path, "{" + both));
    EXPECT_EQ(json::parse(plain.body)["usage"], expected);
    auto const stream = exchange_once(
        served.port(),
        post(path, R"({"stream":true,"stream_options":{"include_usage":true},)" + both));
    auto const frames = frames_of(stream.body);
    ASSERT_GE(frames.size(), 3U);
    EXPECT_EQ(json::parse(frames[frames.size() - 2])["usage"], expected);
    EXPECT_EQ(json::parse(frames[frames.size() - 3])["timings"]["cache_n"], 64);
  }
}

TEST(sse_contract, http_1_0_streams_end_with_the_connection) {
  running_server served(short_answer);
  for (std::string const header : {"", "Connection: keep-alive\r\n"}) {
    raw_client client(served.port());
    client.send("POST " + chat_path + " HTTP/1.0\r\n" + header +
                "Content-Length: " + std::to_string(stream_body.size()) + "\r\n\r\n" + stream_body);
    auto const reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.headers.count("transfer-encoding"), 0U);
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_EQ(frames_of(reply.body).back(), "[DONE]");
  }
}

TEST(sse_contract, connection_close_is_honoured_by_streams_and_plain_replies) {
  running_server served(short_answer);
  for (auto const& body : {chat_body, stream_body}) {
    raw_client client(served.port());
    client.send(post(chat_path, body, "Connection: close\r\n"));
    auto const reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.complete);
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_TRUE(client.is_closed_by_peer());
  }
}

TEST(plain_contract, whole_chat_and_text_replies) {
  running_server served(short_answer);
  auto const chat = exchange_once(served.port(), post(chat_path, chat_body));
  EXPECT_EQ(chat.status, 200);
  EXPECT_EQ(chat.headers.at("content-type"), "application/json");
  EXPECT_EQ(chat.body.back(), '\n');
  auto const reply = json::parse(chat.body);
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["choices"][0]["message"], (json{{"role", "assistant"}, {"content", "Hello"}}));
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(
      reply["usage"]["total_tokens"].get<int>(),
      reply["usage"]["prompt_tokens"].get<int>() + reply["usage"]["completion_tokens"].get<int>());
  for (auto const* const member : {"timings", "speculative"}) EXPECT_TRUE(reply.contains(member));
  auto const text =
      json::parse(exchange_once(served.port(), post("/v1/completions", R"({"prompt":"x"})")).body);
  EXPECT_EQ(text["object"], "text_completion");
  EXPECT_EQ(text["choices"][0]["text"], "Hello");
}

TEST(plain_contract, w9_twenty_requests_on_one_connection) {
  running_server served(short_answer);
  raw_client client(served.port());
  std::string last_id;
  for (int i = 0; i < 20; ++i) {
    client.send(post(chat_path, i % 2 == 0 ? chat_body : stream_body));
    auto const reply = client.read_reply();
    ASSERT_EQ(reply.status, 200) << i;
    ASSERT_TRUE(reply.complete) << i;
    EXPECT_EQ(reply.headers.at("connection"), "keep-alive");
    EXPECT_NE(reply.headers.at("x-request-id"), last_id);
    last_id = reply.headers.at("x-request-id");
  }
}

TEST(plain_contract, errors_leave_the_connection_usable_where_the_body_was_read) {
  running_server served(short_answer);
  raw_client client(served.port());
  client.send(post(chat_path, "{"));
  EXPECT_EQ(client.read_reply().status, 400);
  client.send(get("/nowhere"));
  EXPECT_EQ(client.read_reply().status, 404);
  client.send(get("/v1/models"));
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(plain_contract, requests_sent_ahead_are_answered_in_order) {
  running_server served(short_answer);
  raw_client client(served.port());
  client.send(get("/health") + post(chat_path, chat_body) + get("/v1/models") +
              post(chat_path, stream_body) + get("/nowhere"));
  EXPECT_TRUE(json::parse(client.read_reply().body).contains("status"));
  EXPECT_EQ(json::parse(client.read_reply().body)["object"], "chat.completion");
  EXPECT_EQ(json::parse(client.read_reply().body)["object"], "list");
  EXPECT_TRUE(client.read_reply().body.ends_with("[DONE]\n\n"));
  EXPECT_EQ(client.read_reply().status, 404);
}

TEST(plain_contract, a_large_body_may_wait_for_100_continue) {
  running_server served(short_answer);
  raw_client client(served.port());
  std::string const body = R"({"prompt":")" + std::string(2000, 'x') + "\"}";
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read_head().status, 100);
  client.send(body);
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(plain_contract, chunked_bodies_are_read) {
  running_server served(short_answer);
  raw_client client(served.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (char const c : std::string(R"({"prompt":"abc"})"))
    client.send("1\r\n" + std::string(1, c) + "\r\n");
  client.send("0\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 200);
  EXPECT_EQ(served.engine.requests().at(0).prompt_ids.size(), 3U);
}

TEST(plain_contract, models_and_health) {
  running_server served(short_answer);
  auto const port = served.port();
  EXPECT_EQ(json::parse(exchange_once(port, get("/v1/models")).body)["data"][0]["id"],
            "qwen3.8-demo");
  EXPECT_EQ(json::parse(exchange_once(port, get("/v1/models/demo")).body)["id"], "demo");
  EXPECT_EQ(exchange_once(port, get("/v1/models/none")).status, 404);
  EXPECT_EQ(exchange_once(port, get("/health")).status, 200);
  raw_client client(port);
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + get("/health"));
  EXPECT_NE(client.read_reply(true).headers.at("content-length"), "0");
  EXPECT_EQ(client.read_reply().status, 200);
  served.engine.set_failed();
  auto const failed = exchange_once(port, get("/health"));
  EXPECT_EQ(failed.status, 503);
  EXPECT_EQ(json::parse(failed.body)["status"], "failed");
}

TEST(plain_contract, tokens_version_and_metrics) {
  running_server served(short_answer);
  raw_client client(served.port());  // all on one connection
  client.send(post("/tokenize", R"({"prompt":"hi"})"));
  EXPECT_EQ(json::parse(client.read_reply().body)["tokens"], json({'h', 'i'}));
  client.send(post("/tokenize", R"({"prompt":3})"));
  EXPECT_EQ(client.read_reply().status, 400);
  client.send(post("/detokenize", R"({"tokens":[104,105]})"));
  EXPECT_EQ(json::parse(client.read_reply().body)["prompt"], "hi");
  client.send(get("/version"));
  EXPECT_TRUE(json::parse(client.read_reply().body)["version"].is_string());
  client.send(post(chat_path, chat_body));
  EXPECT_EQ(client.read_reply().status, 200);
  client.send(get("/metrics"));
  auto const page = client.read_reply();
  EXPECT_EQ(page.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  auto const read = prometheus_reader::read(page.body);
  EXPECT_EQ(read.problem, "");
  EXPECT_EQ(read.at("qwen38_requests_finished_total{finished_reason=\"stop\"}"), 1);
  EXPECT_EQ(read.at("qwen38_num_requests_running"), 0);
  client.send("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_reply(true).status, 200);
}

TEST(plain_contract, large_bodies_are_tokenised_beside_the_io_thread_and_may_be_left) {
  running_server served(short_answer);
  std::string const body = R"({"prompt":")" + std::string(std::size_t{4} << 20, 'x') + "\"}";
  raw_client client(served.port());
  client.send(post("/tokenize", body));
  EXPECT_EQ(exchange_once(served.port(), get("/health")).status, 200);
  EXPECT_EQ(json::parse(client.read_reply().body)["count"], 4 << 20);
  for (int i = 0; i < 5; ++i) {
    raw_client leaver(served.port());
    leaver.send(post("/tokenize", body));
    leaver.reset();
  }
  EXPECT_EQ(exchange_once(served.port(), post(chat_path, chat_body)).status, 200);
}

TEST(plain_contract, the_reply_to_a_head_is_a_head_whatever_it_says) {
  running_server served(short_answer);
  raw_client client(served.port());
  struct expected {
    std::string target;
    int status;
  };
  for (auto const& want :
       {expected{"/health", 200}, expected{"/v1/models", 200}, expected{"/v1/models/none", 404},
        expected{"/nothing", 404}, expected{chat_path, 405}}) {
    client.send("HEAD " + want.target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    auto const reply = client.read_reply(/*head_only=*/true);
    EXPECT_EQ(reply.status, want.status) << want.target;
    EXPECT_NE(reply.headers.at("content-length"), "0") << want.target;
  }
  client.send(get("/health"));
  EXPECT_EQ(client.read_reply().status, 200) << "a body was sent where none may be";
}

TEST(plain_contract, a_full_queue_is_429_with_retry_after_for_plain_and_stream) {
  running_server served(silent_answer, {}, {.lanes = 1, .queue = 0, .retry_after_s = 42});
  raw_client running(served.port());
  running.send(post(chat_path, stream_body));
  EXPECT_EQ(running.read_head().status, 200);
  for (auto const& body : {chat_body, stream_body}) {
    auto const reply = exchange_once(served.port(), post(chat_path, body));
    EXPECT_EQ(reply.status, 429);
    EXPECT_EQ(reply.headers.at("retry-after"), "42");  // what the engine estimates
    EXPECT_EQ(json::parse(reply.body)["error"]["code"], "server_overloaded");
  }
}

TEST(plain_contract, prompts_beyond_the_context_are_400_and_the_next_request_is_served) {
  running_server served(short_answer, {}, {.context = 1000});
  auto const reply = exchange_once(
      served.port(), post("/v1/completions", R"({"prompt":")" + std::string(1001, 'x') + "\"}"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(json::parse(reply.body)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(exchange_once(served.port(), post(chat_path, chat_body)).status, 200);
}

TEST(auth_contract, w18_every_route_but_health_needs_the_key) {
  http::options wanted;
  wanted.api_key = "sk-secret";
  running_server served(short_answer, wanted);
  for (std::string const method :
       {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"}) {
    for (std::string const path :
         {"/v1/models", "/v1/models/demo", "/v1/chat/completions", "/v1/completions", "//v1/models",
          "/v1/models/", "/%76%31/models", "/%2576%2531/models", "/v2/models", "/", "/metrics",
          "/version", "/tokenize", "/detokenize", "/v1/../health", "/health/../v1/models",
          "/health%2f", "http://x/v1/models"}) {
      for (std::string const header :
           {"", "Authorization: Bearer sk-wrong\r\n", "Authorization: sk-secret\r\n",
            "X-Authorization: Bearer sk-secret\r\n"}) {
        raw_client client(served.port());
        client.send(method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n" + header +
                    "\r\n");
        auto const reply = client.read_reply(method == "HEAD");
        ASSERT_EQ(reply.status, 401) << method << ' ' << path << ' ' << header;
        ASSERT_EQ(reply.headers.at("www-authenticate"), "Bearer");
      }
    }
  }
  EXPECT_TRUE(served.engine.requests().empty());
  EXPECT_EQ(exchange_once(served.port(), get("/health")).status, 200);
  std::string const key = "Authorization: Bearer sk-secret\r\n";
  EXPECT_EQ(exchange_once(served.port(), get("/v1/models", key)).status, 200);
  EXPECT_EQ(exchange_once(served.port(), post(chat_path, chat_body, key)).status, 200);
  EXPECT_EQ(exchange_once(served.port(), get("//v1/models", key)).status, 404);
  EXPECT_EQ(exchange_once(served.port(), post(chat_path, chat_body)).status, 401);
}

TEST(server_start, port_in_use_and_foreign_addresses_are_one_sentence) {
  running_server served(short_answer);
  http::options wanted;
  wanted.port = served.port();
  try {
    http::server second(served.requests, wanted);
    FAIL() << "two servers on one port";
  } catch (error const& cause) {
    EXPECT_EQ(cause.kind(), error_kind::io);
    EXPECT_EQ(std::string(cause.what()),
              "Cannot listen on 127.0.0.1 port " + std::to_string(wanted.port) +
                  ": it is in use; stop the other server or choose another port.");
  }
  wanted.address = "0.0.0.0";
  EXPECT_THROW(http::server(served.requests, wanted), error);
  wanted.address = "192.0.2.1";  // reserved for documentation: nobody has it
  wanted.allow_remote = true;
  wanted.api_key = "k";
  EXPECT_THROW(http::server(served.requests, wanted), error);
}

}  // namespace
}  // namespace qwen38::test
