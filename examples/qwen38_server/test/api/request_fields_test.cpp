// SPDX-License-Identifier: Apache-2.0
#include "api/request_fields.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "api/chat_completions.hpp"
#include "api/completions.hpp"
#include "test/api/api_fixture.hpp"

namespace qwen38::api {
namespace {

refusal read_chat(std::string const& body) {
  return refusal_of([&] {
    (void)parse_chat_request(parse_json(body, "The request body"), served_settings(),
                             served_limits());
  });
}

refusal read_completion(std::string const& body) {
  return refusal_of([&] {
    (void)parse_completion_request(parse_json(body, "The request body"), served_settings(),
                                   served_limits());
  });
}

std::vector<std::string> const numbers = {"-1",
                                          "0",
                                          "1",
                                          "2",
                                          "15",
                                          "16",
                                          "20",
                                          "21",
                                          "0.5",
                                          "3.0",
                                          "260",
                                          "261",
                                          "2147483647",
                                          "2147483648",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "-9223372036854775808",
                                          "1e308",
                                          "-1e308",
                                          "1e-320"};
std::vector<std::string> const others = {"\"1\"", "true", "false", "[]", "{}", "\"\""};

struct numeric_field {
  std::string name;  // its path in an error
  std::string body;  // with @ for the value
  std::set<std::string> accepted;
};

std::string with(std::string const& pattern, std::string const& value) {
  auto const at = pattern.find('@');
  return pattern.substr(0, at) + value + pattern.substr(at + 1);
}

std::string chat_with(std::string const& member) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + member + "}";
}

std::set<std::string> const positive_int32 = {"1",  "2",   "15",  "16",  "20",
                                              "21", "3.0", "260", "261", "2147483647"};
std::set<std::string> with_also(std::set<std::string> base, std::set<std::string> const& more) {
  base.insert(more.begin(), more.end());
  return base;
}

std::vector<numeric_field> chat_fields() {
  std::set<std::string> const unit = {"0", "1", "0.5", "1e-320"};
  std::set<std::string> const two = {"-1", "0", "1", "2", "0.5", "1e-320"};
  std::set<std::string> const hundred = {"0",  "1",  "2",   "15",  "16",
                                         "20", "21", "0.5", "3.0", "1e-320"};
  auto positive_hundred = hundred;
  positive_hundred.erase("0");
  positive_hundred.erase("1e-320");
  std::set<std::string> const bits = {"-1",
                                      "0",
                                      "1",
                                      "2",
                                      "15",
                                      "16",
                                      "20",
                                      "21",
                                      "3.0",
                                      "260",
                                      "261",
                                      "2147483647",
                                      "2147483648",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "18446744073709551615",
                                      "-9223372036854775808"};
  std::set<std::string> const ids = {"0", "1", "2", "15", "16", "20", "21", "3.0", "260"};
  return {
      {"max_tokens", "\"max_tokens\":@", positive_int32},
      {"max_completion_tokens", "\"max_completion_tokens\":@", positive_int32},
      {"min_tokens", "\"max_tokens\":2147483647,\"min_tokens\":@",
       with_also(positive_int32, {"0"})},
      {"n", "\"n\":@", {"1"}},
      {"top_k", "\"top_k\":@", with_also(positive_int32, {"0", "-1"})},
      {"top_logprobs", "\"top_logprobs\":@", {"0"}},
      {"temperature", "\"temperature\":@", hundred},
      {"top_p", "\"top_p\":@", unit},
      {"min_p", "\"min_p\":@", unit},
      {"presence_penalty", "\"presence_penalty\":@", two},
      {"frequency_penalty", "\"frequency_penalty\":@", two},
      {"repetition_penalty", "\"repetition_penalty\":@", positive_hundred},
      {"seed", "\"seed\":@", bits},
      {"speculative.k", "\"speculative\":{\"k\":@}", {"0", "1", "2", "15", "3.0"}},
      {"stop_token_ids[1]", "\"stop_token_ids\":[0,@]", ids},
  };
}

TEST(request_fields, every_numeric_field_refuses_what_is_out_of_its_range) {
  for (auto const& field : chat_fields()) {
    for (auto const& value : numbers) {
      auto const result = read_chat(chat_with(with(field.body, value)));
      if (field.accepted.count(value) > 0) {
        EXPECT_EQ(result.status, 200) << field.name << " = " << value << ": " << result.message;
        continue;
      }
      EXPECT_EQ(result.status, 400) << field.name << " = " << value;
      EXPECT_EQ(result.param, field.name) << value;
      EXPECT_TRUE(is_sentence(result.message)) << result.message;
      EXPECT_NE(result.message.find(field.name), std::string::npos) << result.message;
    }
    for (auto const& value : others) {
      auto const result = read_chat(chat_with(with(field.body, value)));
      EXPECT_EQ(result.status, 400) << field.name << " = " << value;
      EXPECT_EQ(result.param, field.name) << value;
      EXPECT_NE(result.message.find("expected"), std::string::npos) << result.message;
    }
  }
}

TEST(request_fields, null_is_the_same_as_absent) {
  for (auto const& field : chat_fields()) {
    if (field.name == "stop_token_ids[1]") continue;
    EXPECT_EQ(read_chat(chat_with(with(field.body, "null"))).status, 200) << field.name;
  }
}

TEST(request_fields, message_says_what_was_expected_and_what_was_there) {
  EXPECT_EQ(read_chat(chat_with("\"max_tokens\":-1")).message,
            "max_tokens: expected an integer from 1 to 2147483647, got -1.");
  EXPECT_EQ(read_chat(chat_with("\"top_p\":1.5")).message,
            "top_p: expected a number from 0 to 1, got 1.5.");
  EXPECT_EQ(read_chat(chat_with("\"stream\":\"yes\"")).message,
            "stream: expected true or false, got a string.");
  EXPECT_EQ(read_chat(chat_with("\"speculative\":3")).message,
            "speculative: expected an object, got 3.");
  EXPECT_EQ(read_chat("[1]").message, "The request body must be a JSON object, got an array.");
}

TEST(request_fields, numbers_of_completions_are_checked_too) {
  auto const body = [](std::string const& member) { return R"({"prompt":"x",)" + member + "}"; };
  for (auto const& value : numbers) {
    auto const best = read_completion(body("\"best_of\":" + value));
    EXPECT_EQ(best.status, value == "1" ? 200 : 400) << value;
    auto const logprobs = read_completion(body("\"logprobs\":" + value));
    bool const few = std::set<std::string>{"0", "1", "2", "15", "16", "20", "3.0"}.count(value) > 0;
    EXPECT_EQ(logprobs.status, few ? 200 : 400) << value;
    bool const is_id =
        std::set<std::string>{"0", "1", "2", "15", "16", "20", "21", "3.0", "260"}.count(value) > 0;
    auto const prompt = read_completion("{\"prompt\":[7," + value + "]}");
    EXPECT_EQ(prompt.status, is_id ? 200 : 400) << value;
    if (!is_id) {
      EXPECT_EQ(prompt.param, "prompt[1]");
    }
  }
}

TEST(request_fields, values_that_ask_for_nothing_pass) {
  for (std::string const member :
       {"\"frequency_penalty\":0",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
        "\"none\"",
        "\"stream_options\":{}", "\"stop\":null", "\"stop\":[]", "\"model\":\"demo\"",
        "\"model\":\"qwen3.8-demo\"", "\"reasoning_effort\":\"\"", "\"speculative\":{}"}) {
    auto const result = read_chat(chat_with(member));
    EXPECT_EQ(result.status, 200) << member << ": " << result.message;
  }
  auto const result = read_completion(R"({"prompt":"x","ignore_eos":true,"min_tokens":5})");
  EXPECT_EQ(result.status, 200) << result.message;
}

TEST(request_fields, what_is_wrong_is_refused_by_its_name) {
  std::vector<std::pair<std::string, std::string>> const chat = {
      {"\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"none\"", "tools[0].function"},
      {"\"reasoning_effort\":\"extreme\"", "reasoning_effort"},
      {"\"chat_template_kwargs\":{\"reasoning_effort\":\"extreme\"}",
       "chat_template_kwargs.reasoning_effort"},
      {"\"chat_template_kwargs\":{\"enable_thinking\":\"no\"}",
       "chat_template_kwargs.enable_thinking"},
      {"\"chat_template_kwargs\":[]", "chat_template_kwargs"},
      {"\"reasoning_effort\":\"none\",\"enable_thinking\":true", "reasoning_effort"},
      {"\"stop\":\"\"", "stop"},
      {"\"stop\":[\"a\",\"\"]", "stop[1]"},
      {"\"stop\":[1]", "stop[0]"},
      {"\"stop\":7", "stop"},
      {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\","
       "\"13\",\"14\",\"15\","
       "\"16\",\"17\"]",
       "stop"},
      {"\"max_tokens\":5,\"max_completion_tokens\":6", "max_completion_tokens"},
      {"\"max_tokens\":5,\"min_tokens\":6", "min_tokens"},
      {"\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage"},
      {"\"ignore_eos\":1", "ignore_eos"},
      {"\"model\":7", "model"},
  };
  for (auto const& [member, name] : chat) {
    auto const result = read_chat(chat_with(member));
    EXPECT_EQ(result.status, 400) << member;
    EXPECT_EQ(result.param, name) << member;
    EXPECT_TRUE(is_sentence(result.message)) << result.message;
  }
  std::vector<std::pair<std::string, std::string>> const text = {
      {R"({"prompt":["a","b"]})", "prompt"},
      {R"({"prompt":[[1],[2]]})", "prompt"},
      {R"({"prompt":[1,"b"]})", "prompt[1]"},
      {R"({"prompt":[{}]})", "prompt[0]"},
      {R"({"prompt":""})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":[[]]})", "prompt"},
      {R"({"prompt":[""]})", "prompt"},
      {R"({"prompt":null})", "prompt"},
      {R"({"prompt":{}})", "prompt"},
      {R"({})", "prompt"},
  };
  for (auto const& [body, name] : text) {
    auto const result = read_completion(body);
    EXPECT_EQ(result.status, 400) << body;
    EXPECT_EQ(result.param, name) << body;
    EXPECT_TRUE(is_sentence(result.message)) << result.message;
  }
}

TEST(request_fields, another_model_is_not_found_unless_any_name_will_do) {
  auto const result = read_chat(chat_with("\"model\":\"gpt-4\""));
  EXPECT_EQ(result.status, 404);
  EXPECT_EQ(result.param, "model");
  auto any = served_settings();
  any.accept_any_model = true;
  EXPECT_NO_THROW((void)parse_chat_request(parse_json(chat_with("\"model\":\"gpt-4\""), "b"), any,
                                           served_limits()));
}

TEST(request_fields, drafts_need_a_model_that_drafts) {
  model_limits const plain{4096, test::byte_vocab_size, false};
  auto const parse = [&](std::string const& member) {
    return parse_chat_request(parse_json(chat_with(member), "b"), served_settings(), plain);
  };
  EXPECT_EQ(parse("\"n\":1").generation.request.draft_tokens, 0);  // not the default of 3
  EXPECT_EQ(parse("\"speculative\":{\"k\":0}").generation.request.draft_tokens, 0);
  EXPECT_EQ(refusal_of([&] { (void)parse("\"speculative\":{\"k\":1}"); }).param, "speculative.k");
  engine::request const chosen = parse("\"speculative\":{\"k\":\"auto\"}").generation.request;
  EXPECT_EQ(chosen.draft_tokens, 0);
  EXPECT_FALSE(chosen.chooses_depth);
}

TEST(request_fields, a_depth_is_a_number_or_auto) {
  auto served = served_settings();
  model_limits const limits{4096, test::byte_vocab_size, true};
  auto const parse = [&](std::string const& k) {
    auto const body = "\"speculative\":{\"k\":" + k + "}";
    return parse_chat_request(parse_json(chat_with(body), "b"), served, limits).generation.request;
  };
  EXPECT_EQ(parse("\"auto\"").draft_tokens, engine::max_draft_tokens);
  EXPECT_TRUE(parse("\"auto\"").chooses_depth);
  for (auto const* const word : {"\"Auto\"", "\"\"", "\"7\"", "16", "-1", "true", "[]"}) {
    auto const what = refusal_of([&] { (void)parse(word); });
    EXPECT_EQ(what.param, "speculative.k") << word;
    EXPECT_NE(what.message.find("`auto`"), std::string::npos) << what.message;
  }
  served.defaults.draft_tokens = engine::max_draft_tokens;
  served.defaults.chooses_depth = true;
  EXPECT_TRUE(parse("null").chooses_depth);
  EXPECT_EQ(parse("3").draft_tokens, 3);
  EXPECT_FALSE(parse("3").chooses_depth);
}

}  // namespace
}  // namespace qwen38::api
