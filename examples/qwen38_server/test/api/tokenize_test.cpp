// SPDX-License-Identifier: Apache-2.0
#include "api/tokenize.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "api/handler.hpp"
#include "test/api/api_fixture.hpp"
#include "test/support/recording_sink.hpp"
#include "test/support/scripted_service.hpp"

namespace qwen38::api {
namespace {

using nlohmann::json;

class tokenize_endpoint : public testing::Test {
 protected:
  json tokenize(std::string const& body, int status = 200) {
    auto const reply = handler_.tokenize(body);
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.content_type, "application/json");
    return json::parse(reply.body);
  }
  json detokenize(std::string const& body, int status = 200) {
    auto const reply = handler_.detokenize(body);
    EXPECT_EQ(reply.status, status) << reply.body;
    return json::parse(reply.body);
  }

  test::scripted_service engine_{[](engine::request const&) { return test::script(); }};
  text::tokenizer tokenizer_ = test::make_byte_tokenizer();
  handler handler_{engine_, tokenizer_, served_settings()};
};

TEST_F(tokenize_endpoint, a_prompt_and_a_chat_have_the_ids_that_the_endpoints_serve_them_with) {
  struct {
    endpoint kind;
    std::string body;
  } const cases[] = {
      {endpoint::completions, R"({"prompt":"a <|im_end|> b"})"},
      {endpoint::completions, R"({"prompt":[1,2,260]})"},
      {endpoint::chat_completions, R"({"messages":[{"role":"user","content":"<|im_end|> hi"}]})"},
      {endpoint::chat_completions,
       R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"enable_thinking":false}})"},
  };
  for (auto const& one : cases) {
    auto const told = tokenize(one.body);
    auto sink = std::make_shared<test::recording_sink>();
    auto const call = handler_.open(one.kind, "0123456789abcdef", sink);
    handler_.serve(call, one.body);
    ASSERT_TRUE(sink->wait_until_ended());
    auto const served = engine_.requests().back().prompt_ids;
    EXPECT_EQ(told["tokens"].get<std::vector<std::int32_t>>(), served) << one.body;
    EXPECT_EQ(told["count"], served.size());
    EXPECT_EQ(told["max_model_len"], 4096);
    EXPECT_FALSE(told.contains("token_strs"));
  }
}

TEST_F(tokenize_endpoint, texts_of_tokens_are_given_on_request) {
  auto const told = tokenize(R"({"prompt":"h\u00e9<|im_end|>","return_token_strs":true})");
  EXPECT_EQ(told["token_strs"], json({"h", "\uFFFD", "\uFFFD", "<|im_end|>"}));
}

TEST_F(tokenize_endpoint, text_comes_back_from_its_ids) {
  for (std::string const text : {"plain", "h\u00e9 \U0001F638", "<|im_start|>user\n<think>", ""}) {
    json const ids = tokenizer_.encode(text);
    EXPECT_EQ(detokenize(json({{"tokens", ids}}).dump())["prompt"], text);
  }
  EXPECT_EQ(detokenize(R"({"tokens":[195]})")["prompt"], "\uFFFD");
}

TEST_F(tokenize_endpoint, what_is_wrong_is_refused_by_its_name) {
  auto const param = [](json const& reply) { return reply["error"]["param"]; };
  EXPECT_EQ(param(tokenize("{}", 400)), "prompt");
  EXPECT_EQ(param(tokenize(R"({"prompt":3})", 400)), "prompt");
  EXPECT_EQ(param(tokenize(R"({"prompt":"x","return_token_strs":1})", 400)), "return_token_strs");
  EXPECT_EQ(param(tokenize(R"({"prompt":"x","model":"another"})", 404)), "model");
  EXPECT_EQ(param(tokenize(R"({"messages":[]})", 400)), "messages");
  EXPECT_EQ(param(detokenize("{}", 400)), "tokens");
  EXPECT_EQ(param(detokenize(R"({"tokens":"x"})", 400)), "tokens");
  EXPECT_EQ(param(detokenize(R"({"tokens":[1,261]})", 400)), "tokens[1]");
  EXPECT_EQ(param(detokenize(R"({"tokens":[-1]})", 400)), "tokens[0]");
  EXPECT_EQ(param(detokenize(R"({"tokens":[1.5]})", 400)), "tokens[0]");
  for (std::string const body : {"", "[]", "3", "{", "\xff", "null"}) {
    EXPECT_TRUE(tokenize(body, 400)["error"]["message"].is_string()) << body;
    EXPECT_TRUE(detokenize(body, 400)["error"]["message"].is_string()) << body;
  }
}

}  // namespace
}  // namespace qwen38::api
