// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "api/models.hpp"
#include "api/reply_writer.hpp"
#include "test/api/api_fixture.hpp"

namespace qwen38::api {
namespace {

engine::result measured_outcome() {
  engine::result out;
  out.finish = engine::finish_reason::stop;
  out.usage = {
      .prompt_tokens = 10, .completion_tokens = 5, .reasoning_tokens = 2, .cached_tokens = 4};
  out.speculation = {
      .draft_tokens = 3, .rounds = 2, .drafted = 6, .accepted = 3, .accepted_at = {2, 1, 0}};
  out.timing = {.queued = 0.5, .prefill = 12.25, .decode = 8};
  return out;
}

std::string const measurements =
    R"("timings":{"queued_ms":0.500,"cache_n":4,"prompt_n":6,"prompt_ms":12.250,"predicted_n":5,)"
    R"("predicted_ms":8.000,"predicted_per_second":500.000},)"
    R"("speculative":{"k":3,"rounds":2,"drafted":6,"accepted":3,"tau":2.500,"accepted_at":[2,1,0]})";
std::string const usage =
    R"({"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},)"
    R"("completion_tokens_details":{"reasoning_tokens":2}})";

reply_writer chat_writer(bool include_usage) {
  return {endpoint::chat_completions, {"chatcmpl-1", 1700000000, "m"}, include_usage};
}
reply_writer text_writer(bool include_usage) {
  return {endpoint::completions, {"cmpl-1", 1700000000, "m"}, include_usage};
}

std::string streamed(reply_writer const& writer) {
  std::string out;
  writer.append_begin(out);
  writer.append_delta(out, {.reasoning = "r\n", .content = {}, .ids = {1}});
  writer.append_delta(out, {.reasoning = {}, .content = {}, .ids = {2}});
  writer.append_delta(out, {.reasoning = "s", .content = "\"c\"", .ids = {3}});
  writer.append_end(out, measured_outcome());
  return out;
}

TEST(reply_writer, chat_stream_without_usage) {
  std::string const head =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,)";
  std::string const open = R"(,"logprobs":null,"finish_reason":null}]})"
                           "\n\n";
  EXPECT_EQ(streamed(chat_writer(false)),
            head + R"("delta":{"role":"assistant","content":""})" + open +  //
                head + R"("delta":{"reasoning_content":"r\n"})" + open +    //
                head + R"("delta":{"reasoning_content":"s"})" + open +      //
                head + R"("delta":{"content":"\"c\""})" + open +            //
                head + R"("delta":{},"logprobs":null,"finish_reason":"stop"}],)" + measurements +
                "}\n\n" + "data: [DONE]\n\n");
}

TEST(reply_writer, chat_stream_with_usage_has_it_null_everywhere_but_in_its_own_chunk) {
  std::string const head =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[)";
  std::string const open = R"(,"logprobs":null,"finish_reason":null}],"usage":null})"
                           "\n\n";
  EXPECT_EQ(streamed(chat_writer(true)),
            head + R"({"index":0,"delta":{"role":"assistant","content":""})" + open + head +
                R"({"index":0,"delta":{"reasoning_content":"r\n"})" + open + head +
                R"({"index":0,"delta":{"reasoning_content":"s"})" + open + head +
                R"({"index":0,"delta":{"content":"\"c\""})" + open + head +
                R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],)" +
                measurements + ",\"usage\":null}\n\n" + head + "],\"usage\":" + usage + "}\n\n" +
                "data: [DONE]\n\n");
}

TEST(reply_writer, text_stream) {
  std::string out;
  auto const writer = text_writer(false);
  writer.append_begin(out);
  writer.append_delta(out, {.reasoning = {}, .content = "hi", .ids = {1}});
  auto outcome = measured_outcome();
  outcome.finish = engine::finish_reason::length;
  writer.append_end(out, outcome);
  std::string const head =
      R"(data: {"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,)";
  EXPECT_EQ(out, head +
                     R"("text":"hi","logprobs":null,"finish_reason":null}]})"
                     "\n\n" +
                     head + R"("text":"","logprobs":null,"finish_reason":"length"}],)" +
                     measurements + "}\n\n" + "data: [DONE]\n\n");
}

TEST(reply_writer, whole_chat_reply) {
  EXPECT_EQ(
      chat_writer(false).whole("why", "answer", measured_outcome()),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"answer","reasoning_content":"why"},"logprobs":null,)"
      R"("finish_reason":"stop"}],"usage":)" +
          usage + "," + measurements + "}\n");
}

TEST(reply_writer, answer_cut_off_inside_reasoning_has_null_content) {
  auto outcome = measured_outcome();
  outcome.finish = engine::finish_reason::length;
  auto const cut = nlohmann::json::parse(chat_writer(false).whole("why", "", outcome));
  EXPECT_TRUE(cut["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(cut["choices"][0]["message"]["reasoning_content"], "why");
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  auto const empty = nlohmann::json::parse(chat_writer(false).whole("", "", outcome));
  EXPECT_EQ(empty["choices"][0]["message"]["content"], "");
  EXPECT_FALSE(empty["choices"][0]["message"].contains("reasoning_content"));
}

TEST(reply_writer, whole_text_reply) {
  EXPECT_EQ(
      text_writer(true).whole("", "answer", measured_outcome()),
      R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,)"
      R"("text":"answer","logprobs":null,"finish_reason":"stop"}],"usage":)" +
          usage + "," + measurements + "}\n");
}

TEST(reply_writer, one_token_answers_have_no_rate) {
  auto outcome = measured_outcome();
  outcome.usage.completion_tokens = 1;
  outcome.timing.decode = 0;
  outcome.speculation = {};
  auto const reply = nlohmann::json::parse(chat_writer(false).whole("", "x", outcome));
  EXPECT_EQ(reply["timings"]["predicted_per_second"], 0);
  EXPECT_EQ(reply["speculative"]["tau"], 0);
}

TEST(errors, kinds_map_to_statuses_types_and_codes) {
  struct expected {
    error_kind kind;
    int status;
    std::string type;
    std::optional<std::string> code;
  };
  for (auto const& want :
       {expected{error_kind::invalid_argument, 400, "invalid_request_error", std::nullopt},
        {error_kind::unsupported, 400, "invalid_request_error", "unsupported"},
        {error_kind::context_length_exceeded, 400, "invalid_request_error",
         "context_length_exceeded"},
        {error_kind::not_found, 404, "invalid_request_error", "not_found"},
        {error_kind::overloaded, 429, "server_overloaded", "server_overloaded"},
        {error_kind::unavailable, 503, "server_error", "unavailable"},
        {error_kind::corrupt_data, 500, "server_error", std::nullopt},
        {error_kind::io, 500, "server_error", std::nullopt},
        {error_kind::internal, 500, "server_error", std::nullopt}}) {
    auto got = describe_error(error(want.kind, "Said."));
    EXPECT_EQ(got.status, want.status);
    EXPECT_EQ(got.type, want.type);
    EXPECT_EQ(got.code, want.code);
    EXPECT_EQ(got.message == "Said.", want.status != 500);
    bool const may_come_back = want.status == 429 || want.status == 503;
    EXPECT_EQ(to_reply(got).retry_after_s, may_come_back ? 1 : 0);
    got.retry_after_s = 17;
    EXPECT_EQ(to_reply(got).retry_after_s, may_come_back ? 17 : 0);
  }
  EXPECT_EQ(describe_error(field_error(error_kind::not_found, "model", "No.")).code,
            "model_not_found");
}

TEST(errors, foreign_exceptions_tell_a_client_nothing) {
  auto const got = describe_error(std::runtime_error("prompt text"));
  EXPECT_EQ(got.status, 500);
  EXPECT_EQ(got.message.find("prompt"), std::string::npos);
}

TEST(errors, body_has_the_four_members_and_survives_any_bytes) {
  error_reply what;
  what.message = "bad \xff \" text";
  what.param = "a.b";
  EXPECT_EQ(error_body(what),
            "{\"error\":{\"message\":\"bad \xEF\xBF\xBD \\\" "
            "text\",\"type\":\"server_error\",\"param\":\"a.b\","
            "\"code\":null}}");
}

TEST(models, list_and_single_reply) {
  auto const list = nlohmann::json::parse(models_reply(served_settings(), served_limits()).body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2U);
  EXPECT_EQ(list["data"][0],
            nlohmann::json::parse(R"({"id":"qwen3.8-demo","object":"model","created":1700000000,
                                                       "owned_by":"qpn","max_model_len":4096})"));
  EXPECT_EQ(list["data"][1]["id"], "demo");
  EXPECT_EQ(
      nlohmann::json::parse(model_reply(served_settings(), served_limits(), "demo").body)["id"],
      "demo");
  auto const missing = model_reply(served_settings(), served_limits(), "gpt-4");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(nlohmann::json::parse(missing.body)["error"]["code"], "model_not_found");
}

TEST(models, any_name_will_do_where_the_flag_says_so) {
  auto any = served_settings();
  any.accept_any_model = true;
  auto const model = nlohmann::json::parse(model_reply(any, served_limits(), "gpt-4 \"x\"").body);
  EXPECT_EQ(model["id"], "gpt-4 \"x\"");
  EXPECT_EQ(nlohmann::json::parse(models_reply(any, served_limits()).body)["data"].size(), 2U);
}

}  // namespace
}  // namespace qwen38::api
