// SPDX-License-Identifier: Apache-2.0
// Every field that asks for something this server cannot do: its neutral values pass, the others
// are refused by its name, alike on both endpoints but for what chats alone have.
#include "api/unserved_fields.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/chat_completions.hpp"
#include "api/completions.hpp"
#include "test/api/api_fixture.hpp"

namespace qwen38::api {
namespace {

refusal read(bool chat, std::string const& member) {
  return refusal_of([&] {
    auto const body = chat ? R"({"messages":[{"role":"user","content":"hi"}],)" + member + "}"
                           : R"({"prompt":"x",)" + member + "}";
    auto const parsed = parse_json(body, "The request body");
    if (chat) {
      (void)parse_chat_request(parsed, served_settings(), served_limits());
    } else {
      (void)parse_completion_request(parsed, served_settings(), served_limits());
    }
  });
}

struct unserved {
  std::string name;
  std::vector<std::string> neutral;  // besides null
  std::vector<std::string> refused;
  std::string param = {};  // where it is not the name
};

std::string const tool = R"({"type":"function","function":{"name":"f"}})";

std::vector<unserved> const fields = {
    {"n", {"1", "1.0"}, {"2", "0", "-1", "1000000000", "\"2\"", "true", "[1]"}},
    {"best_of", {"1"}, {"2", "0", "\"2\""}},
    {"use_beam_search", {"false"}, {"true", "1"}},
    {"logprobs", {"false"}, {"-1", "21", "300000", "\"x\"", "{}"}},
    {"top_logprobs", {"0"}, {"1", "21", "-1", "300000", "\"5\""}},
    {"prompt_logprobs", {}, {"0", "1", "true"}},
    {"n_probs", {"0"}, {"1", "\"0\""}},
    {"logit_bias", {"{}", R"({"5":0,"6":0.0})"}, {R"({"5":1})", R"({"5":"0"})", "[]", "1"}},
    {"echo", {"false"}, {"true", "0"}},
    {"suffix", {"\"\""}, {"\"end\"", "1"}},
    {"store", {"false"}, {"true", "\"no\""}},
    {"service_tier", {"\"auto\"", "\"default\""}, {"\"flex\"", "\"priority\"", "1"}},
    {"verbosity", {"\"medium\""}, {"\"low\"", "\"high\"", "2"}},
    {"prediction", {}, {"{}", R"({"type":"content","content":"x"})"}},
    {"web_search_options", {}, {"{}", R"({"search_context_size":"low"})"}},
    {"audio", {}, {"{}", R"({"voice":"x","format":"wav"})"}},
    {"modalities", {"[]", "[\"text\"]"}, {"[\"audio\"]", "[\"text\",\"audio\"]", "\"text\""}},
    {"mm_processor_kwargs", {"{}"}, {R"({"fps":1})"}},
    {"documents", {"[]"}, {R"([{"text":"x"}])"}},
    {"response_format", {"{}", R"({"type":"text"})"}, {"\"text\""}},
    {"response_format", {}, {R"({"type":"grammar"})", R"({"type":1})"}, "response_format.type"},
    {"structured_outputs", {}, {R"({"json":{}})"}},
    {"guided_json", {}, {"{}", R"({"type":"object"})", "\"{}\""}},
    {"guided_regex", {"\"\""}, {"\"a+\""}},
    {"guided_choice", {"[]"}, {"[\"a\"]"}},
    {"guided_grammar", {"\"\""}, {"\"root ::= x\""}},
    {"grammar", {"\"\""}, {"\"root ::= x\""}},
    {"json_schema", {}, {"{}"}},
    {"tools", {"[]"}, {"1", "\"f\""}},
    {"tool_choice", {"\"none\"", "\"auto\""}, {"\"required\"", "\"x\"", "1"}},
    {"functions", {"[]"}, {R"([{"name":"f"}])"}},
    {"function_call", {"\"none\"", "\"auto\""}, {R"({"name":"f"})"}},
    {"parallel_tool_calls", {"true", "false"}, {"1"}},
    {"stream_options", {"{}"}, {"true", "[]"}},
    {"stream_options",
     {R"({"continuous_usage_stats":false})", R"({"continuous_usage_stats":null})"},
     {R"({"continuous_usage_stats":true})", R"({"continuous_usage_stats":{}})"},
     "stream_options.continuous_usage_stats"},
    {"stream_options", {}, {R"({"a very odd name":true})"}},
    {"speculative", {"{}"}, {R"({"depth":3})"}, "speculative.depth"},
    {"add_generation_prompt", {"true"}, {"false"}},
    {"continue_final_message", {"false"}, {"true"}},
    {"chat_template", {}, {"\"{{ messages }}\""}},
    {"truncate_prompt_tokens", {}, {"-1", "100"}},
    {"allowed_token_ids", {}, {"[]", "[1]"}},
    {"bad_words", {"[]"}, {"[\"x\"]"}},
    {"logits_processors", {"[]"}, {"[\"x\"]"}},
    {"typical_p", {"1"}, {"0.5", "\"1\""}},
    {"tfs_z", {"1", "1.0"}, {"0.5"}},
    {"top_a", {"0"}, {"0.5"}},
    {"mirostat", {"0"}, {"2"}},
    {"dynatemp_range", {"0"}, {"0.5"}},
    {"dry_multiplier", {"0", "0.0"}, {"0.8"}},
    {"xtc_probability", {"0"}, {"0.5"}},
    {"n_predict", {}, {"100", "-1"}},
    {"include_stop_str_in_output", {"false"}, {"true"}},
    {"skip_special_tokens", {"true"}, {"false"}},
    {"return_token_ids", {"false"}, {"true"}},
    {"return_tokens_as_token_ids", {"false"}, {"true"}},
    {"include_reasoning", {"true"}, {"false"}},
    {"reasoning", {}, {R"({"effort":"high"})"}},
    {"thinking", {}, {R"({"type":"disabled"})", "true"}},
    {"thinking_budget", {}, {"-1", "\"9\"", "0.5"}},
    {"thinking_token_budget", {}, {"-1"}},
    {"priority", {"0"}, {"1", "-1"}},
    {"cache_salt", {"\"\""}, {"\"mine\""}},
};

TEST(unserved_fields, neutral_values_pass_and_others_are_refused_by_name_on_both_endpoints) {
  for (auto const& field : fields) {
    for (bool const chat : {true, false}) {
      auto const member = [&](std::string const& value) {
        return '"' + field.name + "\":" + value;
      };
      auto neutral = field.neutral;
      neutral.emplace_back("null");
      for (auto const& value : neutral) {
        auto const result = read(chat, member(value));
        EXPECT_EQ(result.status, 200) << chat << ' ' << member(value) << ": " << result.message;
      }
      for (auto const& value : field.refused) {
        auto const result = read(chat, member(value));
        EXPECT_EQ(result.status, 400) << chat << ' ' << member(value);
        EXPECT_EQ(result.param, field.param.empty() ? field.name : field.param) << member(value);
        EXPECT_TRUE(is_sentence(result.message)) << result.message;
        EXPECT_TRUE(result.message.starts_with(field.name)) << result.message;
      }
    }
  }
}

// Only a chat has a template, reasoning and calls.
TEST(unserved_fields, of_a_completion_that_chats_serve) {
  for (auto const& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"tools", "[" + tool + "]"},
           {"tool_choice", tool},
           {"top_logprobs", "2"},
           {"thinking_budget", "0"},
           {"thinking_token_budget", "5"},
           {"response_format.type", R"({"type":"json_object"})"}}) {
    auto const member = '"' + name.substr(0, name.find('.')) + "\":" + value;
    auto const refused = read(false, member);
    EXPECT_EQ(refused.status, 400) << member;
    EXPECT_EQ(refused.param, name);
    EXPECT_TRUE(is_sentence(refused.message)) << refused.message;
  }
}

TEST(unserved_fields, fields_without_a_meaning_here_pass_whatever_they_hold) {
  for (std::string const member :
       {R"("user":"u")", R"("metadata":{"a":"b"})", R"("prompt_cache_key":"k")",
        R"("prompt_cache_retention":"24h")", R"("safety_identifier":"s")", R"("request_id":"r")",
        R"("never_heard_of":{"deep":[1,2,{}]})"}) {
    for (bool const chat : {true, false}) {
      auto const result = read(chat, member);
      EXPECT_EQ(result.status, 200) << chat << ' ' << member << ": " << result.message;
    }
  }
}

TEST(unserved_fields, names_that_a_client_made_up_are_not_echoed) {
  auto const result = read(true, R"("stream_options":{"a very odd name":true})");
  EXPECT_EQ(result.message.find("odd"), std::string::npos) << result.message;
}

TEST(unserved_fields, of_a_message) {
  auto const with = [](std::string const& member) {
    return refusal_of([&] {
      (void)parse_chat_request(
          parse_json(
              R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a",)" +
                  member + R"(},{"role":"user","content":"v"}]})",
              "The request body"),
          served_settings(), served_limits());
    });
  };
  for (std::string const member :
       {R"("function_call":null)", R"("audio":null)", R"("prefix":false)", R"("refusal":null)",
        R"("name":"n")", R"("tool_calls":[])", R"("annotations":[])"}) {
    EXPECT_EQ(with(member).status, 200) << member << with(member).message;
  }
  EXPECT_EQ(with(R"("function_call":{"name":"f","arguments":"{}"})").param,
            "messages[1].function_call");
  EXPECT_EQ(with(R"("audio":{"id":"x"})").param, "messages[1].audio");
  EXPECT_EQ(with(R"("prefix":true)").param, "messages[1].prefix");
}

}  // namespace
}  // namespace qwen38::api
