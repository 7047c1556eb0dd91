// SPDX-License-Identifier: Apache-2.0
// The parts of the HTTP server that need no socket.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "http/auth.hpp"
#include "http/options.hpp"
#include "http/reply_channel.hpp"
#include "http/route.hpp"
#include "http/wire.hpp"
#include "support/error.hpp"

namespace qwen38::http {
namespace {

std::string bind_refusal(std::string const& address, bool allow_remote, std::string const& key,
                         bool insecure) {
  options wanted;
  wanted.address = address;
  wanted.allow_remote = allow_remote;
  wanted.api_key = key;
  wanted.insecure = insecure;
  try {
    check_bind(wanted);
  } catch (error const& cause) {
    EXPECT_EQ(cause.kind(), error_kind::invalid_argument);
    std::string const message = cause.what();
    EXPECT_TRUE(message.ends_with('.')) << message;
    EXPECT_TRUE(key.empty() || message.find(key) == std::string::npos) << message;
    return message;
  }
  return {};
}

TEST(check_bind, loopback_needs_nothing) {
  for (std::string const address : {"127.0.0.1", "127.8.9.1", "::1", "localhost"}) {
    EXPECT_EQ(bind_refusal(address, false, "", false), "") << address;
  }
}

TEST(check_bind, other_addresses_need_consent_and_a_key_or_a_second_consent) {
  for (std::string const address :
       {"0.0.0.0", "::", "192.168.1.5", "::ffff:127.0.0.1", "2001:db8::1"}) {
    for (int flags = 0; flags < 8; ++flags) {
      bool const consent = (flags & 1) != 0;
      bool const key = (flags & 2) != 0;
      bool const insecure = (flags & 4) != 0;
      bool const allowed = consent && (key || insecure);
      EXPECT_EQ(bind_refusal(address, consent, key ? "secret-key" : "", insecure).empty(), allowed)
          << address << ' ' << flags;
    }
  }
}

TEST(check_bind, names_and_nonsense_are_no_addresses) {
  for (std::string const address : {"example.org", "", "1.2.3", "127.0.0.1 ", "0"}) {
    EXPECT_NE(bind_refusal(address, true, "k", true), "") << address;
  }
}

TEST(check_bind, keys_that_no_header_can_carry_are_refused) {
  for (std::string const key : {"a b", "a\n", "\xC3\xA9", "a\x7f"}) {
    EXPECT_NE(bind_refusal("127.0.0.1", false, key, false), "");
  }
}

TEST(auth, only_the_key_as_a_bearer_token_opens) {
  EXPECT_TRUE(is_authorised("", ""));
  EXPECT_TRUE(is_authorised("anything", ""));
  for (std::string const good : {"Bearer sk-1", "bearer sk-1", "BEARER   sk-1 "}) {
    EXPECT_TRUE(is_authorised(good, "sk-1")) << good;
  }
  for (std::string const bad :
       {"", "Bearer", "Bearer ", "sk-1", "Basic sk-1", "Bearer sk-", "Bearer sk-2",
        "Bearer sk-1sk-1", "Bearer sk-1 x", "Bearersk-1", "Bearer SK-1"}) {
    EXPECT_FALSE(is_authorised(bad, "sk-1")) << bad;
  }
}

TEST(route, paths_and_methods) {
  EXPECT_EQ(resolve("POST", "/v1/chat/completions").what, action::chat_completions);
  EXPECT_EQ(resolve("POST", "/v1/chat/completions?x=1").what, action::chat_completions);
  EXPECT_FALSE(resolve("GET", "/health").deep);
  EXPECT_EQ(resolve("GET", "/v1/internal/report").what, action::report);
  EXPECT_EQ(resolve("POST", "/v1/internal/report").what, action::method_not_allowed);
  for (std::string const target :
       {"/health?deep=1", "/health?a=b&deep=1", "/health?deep=1&a", "http://x/health?deep=1#y"}) {
    EXPECT_EQ(resolve("GET", target).what, action::health) << target;
    EXPECT_TRUE(resolve("GET", target).deep) << target;
  }
  for (std::string const target : {"/health?", "/health?deep", "/health?deep=0", "/health?deep=11",
                                   "/health?xdeep=1", "/health?&&", "/health#?deep=1"}) {
    EXPECT_EQ(resolve("GET", target).what, action::health) << target;
    EXPECT_FALSE(resolve("GET", target).deep) << target;
  }
  EXPECT_EQ(resolve("POST", "/v1/completions").what, action::completions);
  EXPECT_EQ(resolve("GET", "/v1/models").what, action::models);
  EXPECT_EQ(resolve("HEAD", "/v1/models").what, action::models);
  EXPECT_EQ(resolve("GET", "/health").what, action::health);
  EXPECT_EQ(resolve("GET", "http://127.0.0.1:8080/health").what, action::health);
  EXPECT_EQ(resolve("GET", "/v1/models/Qwen/Qwen3.8-27B").model_id, "Qwen/Qwen3.8-27B");
  EXPECT_EQ(resolve("GET", "/v1/models/Qwen%2fQwen%zz%4").model_id, "Qwen/Qwen%zz%4");
  for (std::string const target :
       {"/", "", "*", "/v1", "/v1/", "/v1/models/", "//v1/models", "/v1/models//..", "/V1/models",
        "/health/", "/v1/%6dodels", "http://127.0.0.1"}) {
    auto const what = resolve("GET", target).what;
    EXPECT_TRUE(what == action::not_found || target == "/v1/models//..") << target;
  }
  EXPECT_EQ(resolve("GET", "/v1/completions").allow, "POST");
  EXPECT_EQ(resolve("OPTIONS", "/v1/chat/completions").what, action::method_not_allowed);
  EXPECT_EQ(resolve("POST", "/health").allow, "GET, HEAD");
  EXPECT_EQ(resolve("DELETE", "/v1/models/demo").what, action::method_not_allowed);
  EXPECT_EQ(resolve("POST", "/tokenize").what, action::tokenize);
  EXPECT_EQ(resolve("POST", "/detokenize").what, action::detokenize);
  EXPECT_EQ(resolve("GET", "/tokenize").allow, "POST");
  EXPECT_EQ(resolve("GET", "/detokenize").allow, "POST");
  EXPECT_EQ(resolve("GET", "/version").what, action::version);
  EXPECT_EQ(resolve("HEAD", "/metrics?x=1").what, action::metrics);
  EXPECT_EQ(resolve("POST", "/metrics").allow, "GET, HEAD");
}

TEST(wire, heads_and_chunks) {
  head_fields fields;
  fields.request_id = "id1";
  EXPECT_EQ(format_stream_head(fields),
            "HTTP/1.1 200 OK\r\nx-request-id: id1\r\nConnection: keep-alive\r\nContent-Type: "
            "text/event-stream; "
            "charset=utf-8\r\nCache-Control: no-cache\r\nX-Accel-Buffering: "
            "no\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(format_reply({429, "{}\n", 1}, fields),
            "HTTP/1.1 429 Too Many Requests\r\nx-request-id: id1\r\nConnection: "
            "keep-alive\r\nContent-Type: "
            "application/json\r\nContent-Length: 3\r\nRetry-After: 1\r\n\r\n{}\n");
  auto const page = format_reply({200, "x 1\n", 0, "text/plain"}, fields);
  EXPECT_NE(page.find("\r\nContent-Type: text/plain\r\n"), std::string::npos);
  EXPECT_EQ(page.find("application/json"), std::string::npos);
  std::string chunks;
  append_chunk(chunks, std::string(26, 'x'));
  append_chunk(chunks, "");
  EXPECT_EQ(chunks, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(reply_channel, wakes_once_per_step_and_holds_a_bounded_amount) {
  int pokes = 0;
  auto const wakes = std::make_shared<wake_list>([&] { ++pokes; });
  auto const first = std::make_shared<reply_channel>(wakes, 10);
  auto const second = std::make_shared<reply_channel>(wakes, 10);
  first->begin_stream();
  first->write("12345");
  second->begin_stream();
  EXPECT_EQ(pokes, 1);
  EXPECT_EQ(wakes->take().size(), 2U);
  EXPECT_EQ(first->take().frames, "12345");
  EXPECT_TRUE(second->take().begun);
  first->write("1234567890");
  EXPECT_EQ(pokes, 2);
  auto const full = first->take();
  EXPECT_FALSE(full.overflowed);
  EXPECT_EQ(full.frames.size(), 10U);
  first->write("1234567890");
  first->write("1");
  auto const beyond = first->take();
  EXPECT_TRUE(beyond.overflowed);
  EXPECT_LE(beyond.frames.size(), 10U);
  first->write("1");
  EXPECT_TRUE(first->take().frames.empty());  // nothing is kept for a stream with a gap
  wakes->shut();
}

TEST(reply_channel, is_silent_after_close_and_after_the_list_is_shut) {
  int pokes = 0;
  auto const wakes = std::make_shared<wake_list>([&] { ++pokes; });
  auto const closed = std::make_shared<reply_channel>(wakes, 10);
  closed->close();
  closed->send({200, "x"});
  EXPECT_EQ(pokes, 0);
  EXPECT_FALSE(closed->take().whole.has_value());
  wakes->shut();
  auto const late = std::make_shared<reply_channel>(wakes, 10);
  late->send({200, "x"});
  EXPECT_EQ(pokes, 0);
  EXPECT_TRUE(wakes->take().empty());
}

}  // namespace
}  // namespace qwen38::http
