// SPDX-License-Identifier: Apache-2.0
#include "api/handler.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "test/api/api_fixture.hpp"
#include "test/support/recording_sink.hpp"
#include "test/support/scripted_service.hpp"

namespace qwen38::api {
namespace {

using namespace std::chrono_literals;

class handler_fixture : public testing::Test {
 protected:
  std::shared_ptr<test::recording_sink> serve(endpoint kind, std::string const& body) {
    auto sink = std::make_shared<test::recording_sink>();
    calls_.push_back(handler_.open(kind, "0123456789abcdef", sink));
    handler_.serve(calls_.back(), body);
    return sink;
  }
  std::shared_ptr<test::recording_sink> chat(std::string const& members) {
    return serve(endpoint::chat_completions,
                 R"({"messages":[{"role":"user","content":"hi"}])" + members + "}");
  }

  test::script script_ = {.steps = {test::reasoning_delta("why"), test::content_delta("ans"),
                                    test::content_delta("wer")},
                          .outcome = {},
                          .endless = false,
                          .silent = false};
  test::scripted_service engine_{[this](engine::request const&) { return script_; },
                                 {.lanes = 1, .queue = 1}};
  text::tokenizer tokenizer_ = test::make_byte_tokenizer();
  handler handler_{engine_, tokenizer_, served_settings()};
  std::vector<std::shared_ptr<exchange>> calls_;
};

TEST_F(handler_fixture, plain_reply_joins_the_deltas) {
  auto const sink = chat("");
  ASSERT_TRUE(sink->wait_until_ended());
  EXPECT_TRUE(sink->legal());
  auto const reply = nlohmann::json::parse(sink->whole().body);
  EXPECT_EQ(sink->whole().status, 200);
  EXPECT_EQ(reply["id"], "chatcmpl-0123456789abcdef");
  EXPECT_EQ(reply["model"], "qwen3.8-demo");
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "answer");
  EXPECT_EQ(reply["choices"][0]["message"]["reasoning_content"], "why");
}

TEST_F(handler_fixture, prompt_is_the_template_and_users_cannot_write_control_tokens) {
  auto const sink =
      serve(endpoint::chat_completions,
            R"({"reasoning_effort":"medium","messages":[{"role":"user","content":"<|im_end|>"}]})");
  ASSERT_TRUE(sink->wait_until_ended());
  auto const ids = engine_.requests().at(0).prompt_ids;
  EXPECT_EQ(tokenizer_.decode(ids, false),
            "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), test::im_end_id), 1);
  EXPECT_EQ(engine_.requests().at(0).id, "0123456789abcdef");
}

TEST_F(handler_fixture, completions_parse_control_tokens_and_take_ids) {
  ASSERT_TRUE(serve(endpoint::completions, R"({"prompt":"<|im_start|>a"})")->wait_until_ended());
  ASSERT_TRUE(serve(endpoint::completions, R"({"prompt":[1,2,260]})")->wait_until_ended());
  EXPECT_EQ(engine_.requests().at(0).prompt_ids,
            (std::vector<std::int32_t>{test::im_start_id, 'a'}));
  EXPECT_EQ(engine_.requests().at(1).prompt_ids, (std::vector<std::int32_t>{1, 2, 260}));
}

TEST_F(handler_fixture, default_limit_is_cut_to_the_context_and_an_explicit_one_is_refused) {
  std::string const long_prompt(4050, 'x');
  ASSERT_TRUE(
      serve(endpoint::completions, R"({"prompt":")" + long_prompt + "\"}")->wait_until_ended());
  EXPECT_EQ(engine_.requests().at(0).max_tokens, 46);
  auto const refused =
      serve(endpoint::completions, R"({"max_tokens":47,"prompt":")" + long_prompt + "\"}");
  EXPECT_EQ(refused->whole().status, 400);
  EXPECT_EQ(nlohmann::json::parse(refused->whole().body)["error"]["code"],
            "context_length_exceeded");
  std::string const too_long(4096, 'x');
  EXPECT_EQ(serve(endpoint::completions, R"({"prompt":")" + too_long + "\"}")->whole().status, 400);
}

TEST_F(handler_fixture, stream_begins_at_once_even_in_the_queue) {
  script_.silent = true;
  auto const first = chat(",\"stream\":true");
  auto const queued = chat(",\"stream\":true");
  EXPECT_TRUE(queued->begun());
  EXPECT_NE(queued->frames().find("\"role\":\"assistant\""), std::string::npos);
  auto const overload = chat(",\"stream\":true");
  EXPECT_FALSE(overload->begun());
  EXPECT_EQ(overload->whole().status, 429);
  EXPECT_EQ(overload->whole().retry_after_s, 1);
  for (auto const& call : calls_) call->cancel();
  ASSERT_TRUE(first->wait_until_ended());
  ASSERT_TRUE(queued->wait_until_ended());
  EXPECT_EQ(engine_.cancelled(), 2U);
  EXPECT_NE(queued->frames().find("data: {\"error\":"), std::string::npos);
  EXPECT_EQ(queued->frames().find("[DONE]"), std::string::npos);
  EXPECT_TRUE(first->legal() && queued->legal());
}

TEST_F(handler_fixture, failure_is_a_500_or_an_error_frame) {
  script_.outcome.finish = engine::finish_reason::failed;
  script_.outcome.message = "Logits were not finite at token 3.";
  auto const plain = chat("");
  ASSERT_TRUE(plain->wait_until_ended());
  EXPECT_EQ(plain->whole().status, 500);
  EXPECT_EQ(nlohmann::json::parse(plain->whole().body)["error"]["message"],
            script_.outcome.message);
  auto const stream = chat(",\"stream\":true");
  ASSERT_TRUE(stream->wait_until_ended());
  EXPECT_TRUE(
      stream->frames().ends_with("data: {\"error\":{\"message\":\"Logits were not finite at token "
                                 "3.\",\"type\":\"server_error\","
                                 "\"param\":null,\"code\":null}}\n\n"));
}

TEST_F(handler_fixture, a_call_cancelled_before_it_was_served_is_never_submitted) {
  auto const sink = std::make_shared<test::recording_sink>();
  auto const call = handler_.open(endpoint::chat_completions, "1", sink);
  call->cancel();
  handler_.serve(call, R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_TRUE(engine_.requests().empty());
  EXPECT_TRUE(sink->ended());
}

TEST_F(handler_fixture, cancelling_at_any_moment_ends_the_reply_once) {
  script_.endless = true;
  for (int round = 0; round < 50; ++round) {
    auto const sink = std::make_shared<test::recording_sink>();
    auto const call = handler_.open(endpoint::chat_completions, "1", sink);
    std::thread client([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round * 20));
      call->cancel();
    });
    handler_.serve(call, R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})");
    client.join();
    ASSERT_TRUE(sink->wait_until_ended()) << round;
    EXPECT_TRUE(sink->legal()) << round;
    ASSERT_TRUE(engine_.wait_until_jobs(0, 20s)) << round;
  }
}

TEST_F(handler_fixture, stream_and_plain_reply_tell_the_same) {
  script_.outcome.finish = engine::finish_reason::length;
  script_.outcome.usage = {
      .prompt_tokens = 9, .completion_tokens = 4, .reasoning_tokens = 1, .cached_tokens = 0};
  auto const plain = chat("");
  auto const stream = chat(",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  ASSERT_TRUE(plain->wait_until_ended());
  ASSERT_TRUE(stream->wait_until_ended());
  std::string content;
  std::string reasoning;
  std::string finish;
  nlohmann::json usage;
  auto const frames = stream->frames();
  for (std::size_t at = 0; at < frames.size();) {
    auto const end = frames.find("\n\n", at);
    auto const data = frames.substr(at + 6, end - at - 6);
    at = end + 2;
    if (data == "[DONE]") continue;
    auto const chunk = nlohmann::json::parse(data);
    if (chunk["choices"].empty()) {
      usage = chunk["usage"];
      continue;
    }
    auto const& choice = chunk["choices"][0];
    content += choice["delta"].value("content", "");
    reasoning += choice["delta"].value("reasoning_content", "");
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
  }
  auto const reply = nlohmann::json::parse(plain->whole().body);
  EXPECT_EQ(content, reply["choices"][0]["message"]["content"]);
  EXPECT_EQ(reasoning, reply["choices"][0]["message"]["reasoning_content"]);
  EXPECT_EQ(finish, reply["choices"][0]["finish_reason"]);
  EXPECT_EQ(usage, reply["usage"]);
}

/// Fails every request with something that quotes its prompt.
class leaking_service final : public engine::service {
 public:
  std::uint64_t submit(engine::request wanted,
                       std::shared_ptr<engine::observer> /*sink*/) override {
    throw std::runtime_error("bad prompt: " +
                             std::string(wanted.prompt_ids.begin(), wanted.prompt_ids.end()));
  }
  void cancel(std::uint64_t /*ticket*/) noexcept override {}
  void drain() noexcept override {}
  [[nodiscard]] state get_state() const override { return {}; }
  [[nodiscard]] std::int64_t max_context() const noexcept override { return 4096; }
  [[nodiscard]] bool supports_drafts() const noexcept override { return false; }
};

TEST(handler, w19_what_fails_is_logged_without_the_prompt) {
  leaking_service engine;
  auto const tokenizer = test::make_byte_tokenizer();
  handler const requests(engine, tokenizer, served_settings());
  auto const sink = std::make_shared<test::recording_sink>();
  testing::internal::CaptureStderr();
  requests.serve(requests.open(endpoint::completions, "0123", sink), R"({"prompt":"mysecret"})");
  auto const logged = testing::internal::GetCapturedStderr();
  EXPECT_EQ(sink->whole().status, 500);
  EXPECT_NE(logged.find("0123"), std::string::npos) << logged;
  EXPECT_EQ(logged.find("mysecret"), std::string::npos) << logged;
  EXPECT_EQ(sink->whole().body.find("mysecret"), std::string::npos) << sink->whole().body;
}

TEST_F(handler_fixture, draining_refuses_new_requests_with_the_time_to_come_back) {
  handler_.drain();
  auto const sink = chat("");
  EXPECT_EQ(sink->whole().status, 503);
  EXPECT_EQ(sink->whole().retry_after_s, engine_.get_state().retry_after_s);
  EXPECT_EQ(nlohmann::json::parse(handler_.health(false).body)["status"], "draining");
  EXPECT_EQ(nlohmann::json::parse(handler_.health(true).body)["status"], "draining");
}

TEST(handler, deep_health_of_an_engine_that_does_not_move) {
  test::scripted_service engine([](engine::request const&) { return test::script{}; });
  auto const tokenizer = test::make_byte_tokenizer();
  auto impatient = served_settings();
  impatient.stall_limit = 0s;  // any look will do
  handler const requests(engine, tokenizer, impatient);
  EXPECT_EQ(requests.health(false).status, 200);
  EXPECT_EQ(requests.health(true).status, 503);
  EXPECT_EQ(nlohmann::json::parse(requests.health(true).body)["status"], "stalled");
}

TEST(handler, refuses_settings_that_serve_nobody) {
  test::scripted_service engine([](engine::request const&) { return test::script{}; });
  auto const tokenizer = test::make_byte_tokenizer();
  auto nameless = served_settings();
  nameless.model_id.clear();
  EXPECT_THROW(handler(engine, tokenizer, nameless), error);
  auto empty = served_settings();
  empty.defaults.max_tokens = 0;
  EXPECT_THROW(handler(engine, tokenizer, empty), error);
}

}  // namespace
}  // namespace qwen38::api
