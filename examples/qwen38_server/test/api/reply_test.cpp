// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "api/answer_reader.hpp"
#include "api/models.hpp"
#include "api/reply_writer.hpp"
#include "api/speculation_text.hpp"
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

TEST(speculation_text, tells_the_depth_or_the_depths_that_were_chosen) {
  engine::speculation_counts counts = measured_outcome().speculation;
  std::string text;
  append_speculation(text, counts);
  EXPECT_EQ("\"speculative\":{" + text + '}', measurements.substr(measurements.find("\"specul")));
  counts.chooses_depth = true;
  counts.rounds_at = {0, 1, 0, 0, 1};
  text.clear();
  append_speculation(text, counts);
  EXPECT_EQ(text, R"("k":"auto","rounds":2,"drafted":6,"accepted":3,"tau":2.500,)"
                  R"("accepted_at":[2,1,0],"rounds_at":{"0":0,"1":1,"3":0,"7":0,"15":1})");
}

reply_writer chat_writer(bool include_usage) {
  return {endpoint::chat_completions, {"chatcmpl-1", 1700000000, "m"}, include_usage};
}
reply_writer text_writer(bool include_usage) {
  return {endpoint::completions, {"cmpl-1", 1700000000, "m"}, include_usage};
}

answer_step step(std::string reasoning, std::string content) {
  return answer_reader(nullptr).read(
      {.reasoning = std::move(reasoning), .content = std::move(content), .ids = {1}});
}

answer text_answer(std::string reasoning, std::string content) {
  answer out;
  out.add(step(std::move(reasoning), std::move(content)));
  return out;
}

std::string streamed(reply_writer writer) {
  std::string out;
  writer.append_begin(out);
  writer.append_step(out, step("r\n", ""));
  writer.append_step(out, step("", ""));
  writer.append_step(out, step("s", "\"c\""));
  writer.append_end(out, measured_outcome(), false);
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
  auto writer = text_writer(false);
  writer.append_begin(out);
  writer.append_step(out, step("", "hi"));
  auto outcome = measured_outcome();
  outcome.finish = engine::finish_reason::length;
  writer.append_end(out, outcome, false);
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
      chat_writer(false).whole(text_answer("why", "answer"), measured_outcome(), false),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"answer","reasoning_content":"why"},"logprobs":null,)"
      R"("finish_reason":"stop"}],"usage":)" +
          usage + "," + measurements + "}\n");
}

TEST(reply_writer, answer_cut_off_inside_reasoning_has_null_content) {
  auto outcome = measured_outcome();
  outcome.finish = engine::finish_reason::length;
  auto const cut =
      nlohmann::json::parse(chat_writer(false).whole(text_answer("why", ""), outcome, false));
  EXPECT_TRUE(cut["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(cut["choices"][0]["message"]["reasoning_content"], "why");
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  auto const empty =
      nlohmann::json::parse(chat_writer(false).whole(text_answer("", ""), outcome, false));
  EXPECT_EQ(empty["choices"][0]["message"]["content"], "");
  EXPECT_FALSE(empty["choices"][0]["message"].contains("reasoning_content"));
}

TEST(reply_writer, whole_text_reply) {
  EXPECT_EQ(
      text_writer(true).whole(text_answer("", "answer"), measured_outcome(), false),
      R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,)"
      R"("text":"answer","logprobs":null,"finish_reason":"stop"}],"usage":)" +
          usage + "," + measurements + "}\n");
}

TEST(reply_writer, one_token_answers_have_no_rate) {
  auto outcome = measured_outcome();
  outcome.usage.completion_tokens = 1;
  outcome.timing.decode = 0;
  outcome.speculation = {};
  auto const reply =
      nlohmann::json::parse(chat_writer(false).whole(text_answer("", "x"), outcome, false));
  EXPECT_EQ(reply["timings"]["predicted_per_second"], 0);
  EXPECT_EQ(reply["speculative"]["tau"], 0);
}

engine::token_logprobs known(std::int32_t id, double logprob,
                             std::vector<engine::token_logprob> top = {}) {
  return {{id, logprob}, std::move(top), false};
}

TEST(reply_writer, calls_have_index_id_type_and_name_once_and_then_arguments) {
  using kind = text::tool_event::kind;
  auto writer = chat_writer(false);
  std::string out;
  answer_step one;
  one.events = {{kind::content, 0, "a"},
                {kind::call, 0, "f"},
                {kind::arguments, 0, "{\"x\": 1}"},
                {kind::call, 1, "g"},
                {kind::arguments, 1, "{}"}};
  writer.append_step(out, one);
  auto outcome = measured_outcome();
  writer.append_end(out, outcome, true);
  std::vector<std::string> deltas;
  std::string finish;
  for (std::size_t at = 0; out.compare(at, 12, "data: [DONE]") != 0;) {
    auto const end = out.find("\n\n", at);
    auto const chunk = nlohmann::json::parse(out.substr(at + 6, end - at - 6));
    at = end + 2;
    deltas.push_back(chunk["choices"][0]["delta"].dump());
    if (chunk["choices"][0]["finish_reason"].is_string())
      finish = chunk["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(
      deltas,
      (std::vector<std::string>{
          R"({"content":"a"})",
          R"({"tool_calls":[{"function":{"arguments":"","name":"f"},"id":"call_1_0","index":0,"type":"function"}]})",
          R"({"tool_calls":[{"function":{"arguments":"{\"x\": 1}"},"index":0}]})",
          R"({"tool_calls":[{"function":{"arguments":"","name":"g"},"id":"call_1_1","index":1,"type":"function"}]})",
          R"({"tool_calls":[{"function":{"arguments":"{}"},"index":1}]})", "{}"}));
  EXPECT_EQ(finish, "tool_calls");

  answer all;
  all.add(one);
  auto const whole = nlohmann::json::parse(writer.whole(all, outcome, true))["choices"][0];
  EXPECT_EQ(whole["message"]["content"], "a");
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(
      whole["message"]["tool_calls"].dump(),
      R"([{"function":{"arguments":"{\"x\": 1}","name":"f"},"id":"call_1_0","type":"function"},)"
      R"({"function":{"arguments":"{}","name":"g"},"id":"call_1_1","type":"function"}])");
  outcome.finish = engine::finish_reason::length;
  EXPECT_EQ(nlohmann::json::parse(writer.whole(all, outcome, true))["choices"][0]["finish_reason"],
            "length");
}

TEST(reply_writer, log_probabilities_of_a_chat) {
  auto const tokenizer = test::make_byte_tokenizer();
  reply_writer writer(endpoint::chat_completions, {"chatcmpl-1", 1, "m"}, false, &tokenizer);
  answer_step held;  // a step without text: they come with the next one
  held.logprobs = {known(0xC3, -0.25, {{0xC3, -0.25}, {'b', -1.5}})};
  std::string out;
  writer.append_step(out, held);
  EXPECT_EQ(out, "");
  auto shown = step("", "\u00e9");
  shown.logprobs = {known(0xA9, -2)};
  writer.append_step(out, shown);
  std::string const expected =
      "{\"content\":[{\"token\":\"\uFFFD\",\"logprob\":-0.25,\"bytes\":[195],\"top_logprobs\":["
      "{\"token\":\"\uFFFD\",\"logprob\":-0.25,\"bytes\":[195]},"
      "{\"token\":\"b\",\"logprob\":-1.5,\"bytes\":[98]}]},"
      "{\"token\":\"\uFFFD\",\"logprob\":-2,\"bytes\":[169],\"top_logprobs\":[]}],\"refusal\":"
      "null}";
  EXPECT_NE(out.find("\"logprobs\":" + expected + ",\"finish_reason\":null"), std::string::npos)
      << out;
  out.clear();
  writer.append_end(out, measured_outcome(), false);
  EXPECT_NE(out.find("\"logprobs\":null"), std::string::npos) << out;
  answer all;
  all.add(held);
  all.add(shown);
  EXPECT_NE(writer.whole(all, measured_outcome(), false).find("\"logprobs\":" + expected),
            std::string::npos);
}

TEST(reply_writer, log_probabilities_of_a_completion_have_the_older_shape_and_offsets_that_go_on) {
  auto const tokenizer = test::make_byte_tokenizer();
  reply_writer writer(endpoint::completions, {"cmpl-1", 1, "m"}, false, &tokenizer);
  auto first = step("", "\u00e9");
  first.logprobs = {known(0xC3, -0.25, {{0xC3, -0.25}, {'b', -1.5}}), known(0xA9, -2, {{'c', -3}})};
  std::string out;
  writer.append_step(out, first);
  EXPECT_NE(
      out.find(R"("logprobs":{"tokens":["bytes:\\xc3","bytes:\\xa9"],"token_logprobs":[-0.25,-2],)"
               R"("top_logprobs":[{"bytes:\\xc3":-0.25,"b":-1.5},{"c":-3}],"text_offset":[0,1]})"),
      std::string::npos)
      << out;
  auto second = step("", "d");
  second.logprobs = {known('d', -1)};
  out.clear();
  writer.append_step(out, second);
  EXPECT_NE(
      out.find(
          R"("logprobs":{"tokens":["d"],"token_logprobs":[-1],"top_logprobs":null,"text_offset":[1]})"),
      std::string::npos)
      << out;
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
