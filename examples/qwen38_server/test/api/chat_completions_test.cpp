// SPDX-License-Identifier: Apache-2.0
#include "api/chat_completions.hpp"

#include <gtest/gtest.h>

#include <string>

#include "test/api/api_fixture.hpp"

namespace qwen38::api {
namespace {

chat_request parse(std::string const& body) {
  return parse_chat_request(parse_json(body, "The request body"), served_settings(),
                            served_limits());
}

chat_request parse_messages(std::string const& messages) {
  return parse(R"({"messages":)" + messages + "}");
}

chat_request parse_with(std::string const& member) {
  return parse(R"({"messages":[{"role":"user","content":"hi"}],)" + member + "}");
}

std::string prompt_of(chat_request const& chat) {
  return text::render(chat.messages, nullptr, chat.options);
}

TEST(chat_request, says_nothing_and_gets_the_defaults) {
  auto const chat = parse_messages(R"([{"role":"user","content":"hi"}])");
  auto const& request = chat.generation.request;
  EXPECT_FALSE(chat.generation.stream);
  EXPECT_FALSE(chat.generation.include_usage);
  EXPECT_FALSE(chat.generation.max_tokens_given);
  EXPECT_EQ(request.max_tokens, 100);
  EXPECT_EQ(request.min_tokens, 0);
  EXPECT_EQ(request.draft_tokens, 3);
  EXPECT_EQ(request.sampling.temperature, 1.0F);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.sampling.top_p, 0.95F);
  EXPECT_EQ(request.stop_ids, (std::vector<std::int32_t>{test::im_end_id, test::endoftext_id}));
  EXPECT_TRUE(request.stop_strings.empty());
  EXPECT_TRUE(request.split_reasoning);
  EXPECT_TRUE(request.starts_in_reasoning);
  EXPECT_EQ(chat.options.reasoning_effort, "xhigh");
}

TEST(chat_request, every_field_reaches_the_engine_request) {
  auto const chat =
      parse_with(R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"presence_penalty":1.5,
    "frequency_penalty":-0.5,"repetition_penalty":1.25,"seed":-2,"stop":["a","b"],"max_completion_tokens":9,
    "min_tokens":2,"stop_token_ids":[5],"speculative":{"k":7},"stream":true,"stream_options":{"include_usage":true})");
  auto const& request = chat.generation.request;
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_p, 0.25F);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.min_p, 0.125F);
  EXPECT_EQ(request.sampling.presence_penalty, 1.5F);
  EXPECT_EQ(request.sampling.frequency_penalty, -0.5F);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX - 1);
  EXPECT_EQ(request.stop_strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_TRUE(chat.generation.max_tokens_given);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_EQ(request.stop_ids, (std::vector<std::int32_t>{test::im_end_id, test::endoftext_id, 5}));
  EXPECT_EQ(request.draft_tokens, 7);
  EXPECT_TRUE(chat.generation.stream);
  EXPECT_TRUE(chat.generation.include_usage);
}

TEST(chat_request, ignore_eos_leaves_only_the_stop_ids_asked_for) {
  auto const chat = parse_with(R"("ignore_eos":true,"stop_token_ids":[5,6],"top_k":-1)");
  EXPECT_EQ(chat.generation.request.stop_ids, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(chat.generation.request.sampling.top_k, 0);
}

TEST(chat_request, seed_is_random_unless_given_or_configured) {
  auto const seed = [](std::string const& member) {
    return parse_with(member).generation.request.sampling.seed;
  };
  EXPECT_NE(seed("\"n\":1"), seed("\"n\":1"));
  EXPECT_EQ(seed("\"seed\":18446744073709551615"), UINT64_MAX);
  auto fixed = served_settings();
  fixed.defaults.seed = 42;
  auto const chat = parse_chat_request(
      parse_json(R"({"messages":[{"role":"user","content":"x"}]})", "b"), fixed, served_limits());
  EXPECT_EQ(chat.generation.request.sampling.seed, 42U);
}

TEST(chat_request, both_names_of_the_token_limit_may_agree) {
  EXPECT_EQ(parse_with(R"("max_tokens":5,"max_completion_tokens":5)").generation.request.max_tokens,
            5);
  EXPECT_EQ(parse_with(R"("max_tokens":5.0)").generation.request.max_tokens, 5);
}

TEST(chat_request, efforts_have_the_names_that_clients_send) {
  struct expected {
    std::string name;
    std::string effort;
    bool thinking;
  };
  for (auto const& want : {expected{"xhigh", "xhigh", true},
                           {"high", "xhigh", true},
                           {"max", "xhigh", true},
                           {"medium", "medium", true},
                           {"low", "low", true},
                           {"minimal", "low", true},
                           {"none", "xhigh", false},
                           {"", "xhigh", true}}) {
    for (std::string const& member :
         {"\"reasoning_effort\":\"" + want.name + "\"",
          "\"chat_template_kwargs\":{\"reasoning_effort\":\"" + want.name + "\"}"}) {
      auto const chat = parse_with(member);
      EXPECT_EQ(chat.options.reasoning_effort, want.effort) << member;
      EXPECT_EQ(chat.options.enable_thinking, want.thinking) << member;
      EXPECT_EQ(chat.generation.request.starts_in_reasoning, want.thinking) << member;
      EXPECT_TRUE(chat.generation.request.split_reasoning) << member;
      EXPECT_NO_THROW((void)prompt_of(chat)) << member;
    }
  }
}

TEST(chat_request, template_arguments_win_over_top_level_fields) {
  auto const chat = parse_with(
      R"("enable_thinking":true,"preserve_thinking":true,"reasoning_effort":"low",
         "chat_template_kwargs":{"enable_thinking":false,"preserve_thinking":false,"reasoning_effort":"medium"})");
  EXPECT_FALSE(chat.options.enable_thinking);
  EXPECT_FALSE(chat.options.preserve_thinking);
  EXPECT_EQ(chat.options.reasoning_effort, "medium");
  EXPECT_FALSE(parse_with(R"("enable_thinking":false)").options.enable_thinking);
  EXPECT_FALSE(
      parse_with(R"("enable_thinking":false,"reasoning_effort":"high")").options.enable_thinking);
}

TEST(chat_request, asking_for_an_effort_switches_thinking_on_where_the_default_is_off) {
  auto quiet = served_settings();
  quiet.defaults.enable_thinking = false;
  auto const thinking = [&](std::string const& member) {
    return parse_chat_request(
               parse_json(R"({"messages":[{"role":"user","content":"x"}],)" + member + "}", "b"),
               quiet, served_limits())
        .options.enable_thinking;
  };
  EXPECT_FALSE(thinking("\"n\":1"));
  EXPECT_TRUE(thinking("\"reasoning_effort\":\"low\""));
  EXPECT_TRUE(thinking("\"enable_thinking\":true"));
  EXPECT_FALSE(thinking("\"reasoning_effort\":\"low\",\"enable_thinking\":false"));
}

TEST(chat_request, system_and_developer_messages_anywhere_join_at_the_front) {
  std::string const system = "<|im_start|>system\n";
  auto const prompt = [](std::string const& messages) {
    return prompt_of(parse(R"({"reasoning_effort":"medium","messages":)" + messages + "}"));
  };
  EXPECT_EQ(prompt(R"([{"role":"developer","content":"A"},{"role":"user","content":"u"}])"),
            "<|im_start|>system\nA<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>"
            "assistant\n<think>\n");
  EXPECT_EQ(
      prompt(
          R"([{"role":"system","content":"A"},{"role":"system","content":"B"},{"role":"user","content":"u"}])"),
      "<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>"
      "assistant\n<think>\n");
  EXPECT_EQ(
      prompt(R"([{"role":"user","content":"u"},{"role":"assistant","content":"a"},
                       {"role":"system","content":"late"},{"role":"user","content":"v"}])"),
      "<|im_start|>system\nlate<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n<"
      "think>\n\n"
      "</think>\n\na<|im_end|>\n<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(
      prompt(
          R"([{"role":"system","content":""},{"role":"user","content":"u"},{"role":"developer","content":"B"}])"),
      "<|im_start|>system\nB<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n<"
      "think>\n");
}

TEST(chat_request, a_conversation_without_a_user_is_refused_by_the_template_not_by_a_500) {
  auto const result =
      refusal_of([] { (void)prompt_of(parse_messages(R"([{"role":"system","content":"A"}])")); });
  EXPECT_EQ(result.status, 400);
}

TEST(chat_request, contents_are_text_parts_of_text_or_null) {
  auto const chat = parse_messages(R"([
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":null,"reasoning_content":"r"},
    {"role":"assistant"},
    {"role":"user","content":""},
    {"role":"user","content":[]}])");
  ASSERT_EQ(chat.messages.size(), 5U);
  EXPECT_EQ(chat.messages[0].content, "ab");
  EXPECT_EQ(chat.messages[1].content, "");
  EXPECT_EQ(chat.messages[1].reasoning_content, "r");
  EXPECT_EQ(chat.messages[3].content, "");
  EXPECT_NO_THROW((void)prompt_of(chat));
}

TEST(chat_request, reasoning_of_history_has_two_names) {
  auto const chat = parse_messages(R"([{"role":"user","content":"u"},
    {"role":"assistant","content":"a","reasoning":"why"},
    {"role":"assistant","content":"a","reasoning":"no","reasoning_content":"yes"}])");
  EXPECT_EQ(chat.messages[1].reasoning_content, "why");
  EXPECT_EQ(chat.messages[2].reasoning_content, "yes");
}

TEST(chat_request, tool_history_takes_arguments_as_text_or_object) {
  auto const chat = parse_messages(R"([{"role":"user","content":"u"},
    {"role":"assistant","content":null,"tool_calls":[
      {"id":"1","type":"function","function":{"name":"f","arguments":"{\"city\":\"Paris\",\"n\":1}"}},
      {"id":"2","type":"function","function":{"name":"g","arguments":"{}"}},
      {"id":"3","type":"function","function":{"name":"h","arguments":""}},
      {"id":"4","type":"function","function":{"name":"i","arguments":{"z":1,"a":"x"}}},
      {"id":"5","type":"function","function":{"name":"j"}}]},
    {"role":"tool","tool_call_id":"1","content":"sunny"}])");
  ASSERT_EQ(chat.messages[1].tool_calls.size(), 5U);
  auto const prompt = prompt_of(chat);
  EXPECT_NE(
      prompt.find(
          "<function=f>\n<parameter=city>\nParis\n</parameter>\n<parameter=n>\n1\n</parameter>\n"),
      std::string::npos);
  EXPECT_NE(prompt.find("<function=g>\n</function>"), std::string::npos);
  EXPECT_NE(prompt.find("<function=h>\n</function>"), std::string::npos);
  EXPECT_NE(prompt.find("<parameter=z>\n1\n</parameter>\n<parameter=a>\nx\n"), std::string::npos);
  EXPECT_NE(prompt.find("<tool_response>\nsunny\n</tool_response>"), std::string::npos);
}

TEST(chat_request, broken_messages_are_refused_by_their_path) {
  std::string const deep(100, '[');
  struct bad {
    std::string messages;
    std::string param;
  };
  auto const call = [](std::string const& function) {
    return R"([{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"function":)" +
           function + "}]}]";
  };
  for (
      auto const& [messages, param] :
      {bad{"[]", "messages"},
       {"null", "messages"},
       {"{}", "messages"},
       {"\"hi\"", "messages"},
       {"[1]", "messages[0]"},
       {"[null]", "messages[0]"},
       {R"([{"content":"x"}])", "messages[0].role"},
       {R"([{"role":7,"content":"x"}])", "messages[0].role"},
       {R"([{"role":"function","content":"x"}])", "messages[0].role"},
       {R"([{"role":"user","content":7}])", "messages[0].content"},
       {R"([{"role":"user","content":{"text":"x"}}])", "messages[0].content"},
       {R"([{"role":"user","content":["x"]}])", "messages[0].content[0]"},
       {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
       {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}])",
        "messages[0].content[1].type"},
       {R"([{"role":"user","content":[{"type":"input_audio"}]}])", "messages[0].content[0].type"},
       {R"([{"role":"assistant","content":"x","reasoning_content":[]}])",
        "messages[0].reasoning_content"},
       {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls"},
       {R"([{"role":"assistant","tool_calls":["f"]}])", "messages[0].tool_calls[0]"},
       {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls[0].function"},
       {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
        "messages[0].tool_calls[0].function.name"},
       {call(R"({"name":"f","arguments":"{"})"), "messages[1].tool_calls[0].function.arguments"},
       {call(R"({"name":"f","arguments":"[1]"})"), "messages[1].tool_calls[0].function.arguments"},
       {call(R"({"name":"f","arguments":[1]})"), "messages[1].tool_calls[0].function.arguments"},
       {call(R"({"name":"f","arguments":7})"), "messages[1].tool_calls[0].function.arguments"},
       {call(R"({"name":"f","arguments":")" + deep + "\"}"),
        "messages[1].tool_calls[0].function.arguments"}}) {
    auto const result = refusal_of([&] { (void)parse_messages(messages); });
    EXPECT_EQ(result.status, 400) << messages;
    EXPECT_EQ(result.param, param) << messages;
    EXPECT_TRUE(is_sentence(result.message)) << result.message;
  }
}

}  // namespace
}  // namespace qwen38::api
