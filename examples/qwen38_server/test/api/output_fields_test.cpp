// SPDX-License-Identifier: Apache-2.0
#include "api/output_fields.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "api/chat_completions.hpp"
#include "api/completions.hpp"
#include "test/api/api_fixture.hpp"
#include "test/text/grammar_support.hpp"

namespace qwen38::api {
namespace {

chat_request chat(std::string const& member) {
  return parse_chat_request(
      parse_json(R"({"messages":[{"role":"user","content":"hi"}],)" + member + "}", "b"),
      served_settings(), served_limits());
}
completion_request completion(std::string const& member) {
  return parse_completion_request(parse_json(R"({"prompt":"x",)" + member + "}", "b"),
                                  served_settings(), served_limits());
}
std::string const quiet = R"("enable_thinking":false,)";

TEST(response_format, json_object_and_schemas_become_grammars) {
  EXPECT_EQ(chat(R"("response_format":{"type":"text"})").generation.grammar, nullptr);
  EXPECT_EQ(chat(R"("response_format":null)").generation.grammar, nullptr);
  auto const reads = [](std::string const& member, std::string const& text) {
    auto const grammar = chat(member).generation.grammar;
    return text::testing::reader(*grammar).reads(text);
  };
  std::string const object = R"("response_format":{"type":"json_object"})";
  EXPECT_TRUE(reads(quiet + object, R"({"a":[1]})"));
  EXPECT_FALSE(reads(quiet + object, "[1]"));
  EXPECT_TRUE(reads(object, "why</think>\n\n{}"));
  EXPECT_FALSE(reads(object, "{}"));
  for (
      std::string const member :
      {R"("response_format":{"type":"json_object","schema":{"type":"integer"}})",
       R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"integer"}}})"}) {
    EXPECT_TRUE(reads(quiet + member, "12"));
    EXPECT_FALSE(reads(quiet + member, "{}"));
  }
}

TEST(response_format, what_is_wrong_is_refused_by_its_name) {
  struct expected {
    std::string value;
    std::string param;
    std::string says;
  };
  for (
      auto const& [value, param, says] : std::vector<expected>{
          {R"("json")", "response_format", "object"},
          {R"({"type":"json"})", "response_format.type", "json_schema"},
          {R"({"type":"json_schema"})", "response_format.json_schema", "schema"},
          {R"({"type":"json_schema","json_schema":{"name":"n"}})",
           "response_format.json_schema.schema", "schema"},
          {R"({"type":"json_schema","json_schema":{"schema":{"minimum":3}}})",
           "response_format.json_schema.schema", "`minimum`"},
          {R"({"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"secret name":{"multipleOf":3}}}}})",
           "response_format.json_schema.schema", "`multipleOf`"},
          {R"({"type":"json_schema","json_schema":{"schema":{"$ref":"#"}}})",
           "response_format.json_schema.schema", "$ref"},
          {R"({"type":"json_object","schema":3})", "response_format.schema", "schema"},
          {R"({"type":"json_object","grammar":"x"})", "response_format.grammar", "members"}}) {
    auto const what = refusal_of([&] { static_cast<void>(chat("\"response_format\":" + value)); });
    EXPECT_EQ(what.status, 400) << value;
    EXPECT_EQ(what.param, param) << value;
    EXPECT_NE(what.message.find(says), std::string::npos) << what.message;
    EXPECT_EQ(what.message.find("secret"), std::string::npos) << what.message;
    EXPECT_TRUE(is_sentence(what.message)) << what.message;
  }
  auto const both = refusal_of([] {
    static_cast<void>(chat(
        R"("response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f"}}])"));
  });
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(both.param, "response_format");
}

TEST(logprobs_fields, have_the_shapes_of_both_endpoints) {
  auto const of_chat = [](std::string const& member) {
    return chat(member).generation.request.top_logprobs;
  };
  EXPECT_EQ(of_chat(R"("n":1)"), std::nullopt);
  EXPECT_EQ(of_chat(R"("logprobs":false)"), std::nullopt);
  EXPECT_EQ(of_chat(R"("logprobs":true)"), 0);
  EXPECT_EQ(of_chat(R"("logprobs":true,"top_logprobs":20)"), 20);
  auto const of_text = [](std::string const& member) {
    return completion(member).generation.request.top_logprobs;
  };
  EXPECT_EQ(of_text(R"("n":1)"), std::nullopt);
  EXPECT_EQ(of_text(R"("logprobs":false)"), std::nullopt);
  EXPECT_EQ(of_text(R"("logprobs":0)"), 0);
  EXPECT_EQ(of_text(R"("logprobs":5)"), 5);
  // W11: never beyond what the API allows, so never beyond the vocabulary.
  for (std::string const member :
       {R"("logprobs":true,"top_logprobs":21)", R"("logprobs":true,"top_logprobs":300000)",
        R"("logprobs":true,"top_logprobs":-1)", R"("top_logprobs":1)"}) {
    EXPECT_EQ(refusal_of([&] { static_cast<void>(chat(member)); }).param, "top_logprobs") << member;
  }
  for (std::string const member : {R"("logprobs":1)", R"("logprobs":"yes")"})
    EXPECT_EQ(refusal_of([&] { static_cast<void>(chat(member)); }).param, "logprobs") << member;
  for (std::string const member :
       {R"("logprobs":true)", R"("logprobs":21)", R"("logprobs":300000)"})
    EXPECT_EQ(refusal_of([&] { static_cast<void>(completion(member)); }).param, "logprobs")
        << member;
}

TEST(thinking_budget, has_three_names_that_may_agree) {
  auto const budget = [](std::string const& member) {
    return chat(member).generation.request.thinking_budget;
  };
  EXPECT_EQ(budget(R"("n":1)"), std::nullopt);
  EXPECT_EQ(budget(R"("thinking_budget":0)"), 0);
  EXPECT_EQ(budget(R"("thinking_token_budget":7)"), 7);
  EXPECT_EQ(budget(R"("chat_template_kwargs":{"thinking_budget":9})"), 9);
  EXPECT_EQ(budget(R"("thinking_budget":4,"thinking_token_budget":4)"), 4);
  auto const differ = refusal_of(
      [&] { static_cast<void>(budget(R"("thinking_budget":4,"thinking_token_budget":5)")); });
  EXPECT_EQ(differ.param, "thinking_token_budget");
  EXPECT_TRUE(is_sentence(differ.message)) << differ.message;
}

}  // namespace
}  // namespace qwen38::api
