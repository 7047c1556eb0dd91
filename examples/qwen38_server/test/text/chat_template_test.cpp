// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json_file.hpp"
#include "support.hpp"
#include "text/sha256.hpp"

namespace qwen38::text {
namespace {

using nlohmann::ordered_json;
using ids = std::vector<std::int32_t>;
using testing::error_message;
using testing::tiny;

struct golden_case {
  chat_format format = chat_format::qwen38;
  std::vector<message> messages;
  ordered_json tools;
  chat_options options;
  ordered_json expected;  ///< {"prompt": text}, {"sha256": of the prompt} or {"error": reason}
  std::string source;

  [[nodiscard]] bool has_prompt() const { return !expected.contains("error"); }
};

/// Text parts, a text, or null.
std::string read_content(ordered_json const& wire) {
  if (wire.is_string()) return wire.get<std::string>();
  std::string joined;
  for (auto const& part : wire) joined += part.at("text").get<std::string>();
  return joined;
}

message parse_message(ordered_json const& wire) {
  message out;
  out.role = parse_chat_role(wire.at("role").get<std::string>()).value();
  out.content = read_content(wire.value("content", ordered_json()));
  if (wire.contains("reasoning_content"))
    out.reasoning_content = wire["reasoning_content"].get<std::string>();
  for (auto const& call : wire.value("tool_calls", ordered_json::array())) {
    out.tool_calls.push_back({call["function"]["name"].get<std::string>(),
                              call["function"]["arguments"].get<std::string>()});
  }
  return out;
}

golden_case parse_case(ordered_json const& source, chat_format format) {
  golden_case one;
  one.format = format;
  for (auto const& wire : source.at("messages")) one.messages.push_back(parse_message(wire));
  if (source.at("gather").get<bool>()) one.messages = gather_system_messages(one.messages);
  one.tools = source.at("tools");
  auto const& given = source.at("options");
  auto& options = one.options = default_chat_options(format);
  options.reasoning_effort = given.value("reasoning_effort", options.reasoning_effort);
  options.enable_thinking = given.value("enable_thinking", options.enable_thinking);
  options.preserve_thinking = given.value("preserve_thinking", options.preserve_thinking);
  options.add_generation_prompt =
      given.value("add_generation_prompt", options.add_generation_prompt);
  one.expected = source.at(std::string(chat_format_name(format)));
  one.source = source.dump();
  return one;
}

std::vector<golden_case> const& goldens() {
  static std::vector<golden_case> const cases = [] {
    std::vector<golden_case> out;
    ordered_json const file = testing::read_json("golden/chat_template.json");
    for (auto const& source : file.at("cases")) {
      for (chat_format const format : {chat_format::qwen38, chat_format::qwen36})
        out.push_back(parse_case(source, format));
    }
    return out;
  }();
  return cases;
}

message user(std::string content) {
  return {chat_role::user, std::move(content), {}, {}};
}
message system(std::string content) {
  return {chat_role::system, std::move(content), {}, {}};
}
message assistant(std::string content) {
  return {chat_role::assistant, std::move(content), {}, {}};
}
message tool(std::string content) {
  return {chat_role::tool, std::move(content), {}, {}};
}

std::string rendered(std::vector<message> const& messages, chat_options options = {}) {
  options.reasoning_effort = "medium";
  return render(messages, nullptr, options);
}

TEST(chat_template, equals_jinja_on_the_published_templates) {
  for (chat_format const format : {chat_format::qwen38, chat_format::qwen36}) {
    int prompts = 0;
    int refusals = 0;
    for (golden_case const& one : goldens()) {
      if (one.format != format) continue;
      std::string prompt;
      std::string const message =
          error_message([&] { prompt = render(one.messages, one.tools, one.options); });
      if (!one.has_prompt()) {
        ++refusals;
        auto const reason = one.expected["error"].get<std::string>();
        EXPECT_NE(message.find(reason), std::string::npos) << one.source << "\n  got: " << message;
        continue;
      }
      ++prompts;
      EXPECT_EQ(message, "") << one.source;
      if (one.expected.contains("prompt")) {
        EXPECT_EQ(prompt, one.expected["prompt"].get<std::string>()) << one.source;
      } else {
        EXPECT_EQ(sha256_hex(prompt), one.expected["sha256"].get<std::string>())
            << one.source << "\n  got: " << prompt;
      }
    }
    EXPECT_GE(prompts, 800) << chat_format_name(format);
    EXPECT_GE(refusals, 30) << chat_format_name(format);
  }
}

TEST(chat_template, knows_the_templates_that_its_goldens_come_from) {
  auto const file = testing::read_json("golden/chat_template.json");
  for (chat_format const format : {chat_format::qwen38, chat_format::qwen36}) {
    EXPECT_EQ(file["templates"][std::string(chat_format_name(format))].get<std::string>(),
              chat_template_sha256(format));
  }
}

TEST(chat_template, takes_inline_reasoning_out_for_qwen36_alone) {
  chat_options options = default_chat_options(chat_format::qwen36);
  options.add_generation_prompt = false;
  auto const turn = [&](std::string const& content, std::optional<std::string> reasoning) {
    message m = assistant(content);
    m.reasoning_content = std::move(reasoning);
    std::string const prompt =
        render(std::vector<message>{user("a"), std::move(m)}, nullptr, options);
    return prompt.substr(prompt.find("assistant\n") + 10);
  };
  EXPECT_EQ(turn("<think>r</think>\n\n b", {}), "<think>\nr\n</think>\n\n b<|im_end|>\n");
  EXPECT_EQ(turn("r</think>", {}), "<think>\nr\n</think>\n\n<|im_end|>\n");
  EXPECT_EQ(turn("<think>r</think>b", ""), "<think>\n\n</think>\n\n<think>r</think>b<|im_end|>\n");
  options.format = chat_format::qwen38;
  options.reasoning_effort = "medium";
  EXPECT_EQ(turn("<think>r</think>b", {}), "<think>\n\n</think>\n\n<think>r</think>b<|im_end|>\n");
}

TEST(chat_template, gathers_system_messages_from_anywhere) {
  auto const gathered = gather_system_messages(
      {user("a"), system(" S \n"), assistant("b"), system(""), system("T"), user("c")});
  ASSERT_EQ(gathered.size(), 4U);
  EXPECT_EQ(gathered[0].role, chat_role::system);
  EXPECT_EQ(gathered[0].content, "S\n\nT");
  EXPECT_EQ(gathered[1].content, "a");
  EXPECT_EQ(gathered[3].content, "c");
  EXPECT_EQ(gather_system_messages({user("a")}).size(), 1U);
  EXPECT_TRUE(gather_system_messages({}).empty());
}

TEST(chat_template, maps_effort_names_that_clients_send) {
  struct mapping {
    std::string_view sent;
    std::string_view meant;
  };
  for (auto const& [sent, meant] : {mapping{"xhigh", "xhigh"},
                                    {"high", "xhigh"},
                                    {"max", "xhigh"},
                                    {"medium", "medium"},
                                    {"low", "low"},
                                    {"minimal", "low"},
                                    {"none", "none"}}) {
    EXPECT_EQ(parse_reasoning_effort(sent), meant) << sent;
    if (meant == "none") continue;
    chat_options options;
    options.reasoning_effort = meant;
    EXPECT_NO_THROW((void)render(std::vector<message>{user("a")}, nullptr, options)) << sent;
  }
  for (std::string_view const name : {"", "XHIGH", "ultra"})
    EXPECT_EQ(parse_reasoning_effort(name), std::nullopt) << name;
}

TEST(chat_template, renders_the_vectors_of_the_specification) {
  EXPECT_EQ(rendered({user(" hi ")}),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(rendered({user("hi")}, {.enable_thinking = false}),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(rendered({system(" S "), user("a")}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>"
            "assistant\n<think>\n");
  EXPECT_EQ(
      rendered({user("a"), assistant("b"), user("c")}),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nb<|im_end|>\n"
      "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(rendered({user("a"), assistant("b"), user("c")}, {.preserve_thinking = false}),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>\n");
  message call = assistant("");
  call.reasoning_content = " r ";
  call.tool_calls = {{"f", R"({"x":1,"s":"t","n":null,"o":{"a":[1,"b"]}})"}, {"g", "{}"}};
  EXPECT_EQ(rendered({user("a"), call, tool("1"), tool("2")}),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nr\n</"
            "think>\n\n<tool_call>\n<function=f>\n"
            "<parameter=x>\n1\n</parameter>\n<parameter=s>\nt\n</"
            "parameter>\n<parameter=n>\nnull\n</parameter>\n"
            "<parameter=o>\n{\"a\": [1, "
            "\"b\"]}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n"
            "</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n1\n</"
            "tool_response>\n<tool_response>\n2\n"
            "</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n");
}

TEST(chat_template, says_which_message_is_wrong) {
  auto const refusal = [](std::vector<message> const& messages) {
    return error_message([&] { (void)rendered(messages); });
  };
  EXPECT_EQ(refusal({user("a"), assistant("b"), system("S"), user("c")}),
            "messages[2] has role system: System message must be at the beginning.");
  EXPECT_EQ(refusal({}), "messages is empty: No messages provided.");
  EXPECT_NE(refusal({system("S")}).find("No user query found in messages."), std::string::npos);
  message call = assistant("");
  for (char const* arguments :
       {"{\"city\":", "[1]", "\"text\"", "null", "1", " ", "{\"a\":1e999}", "\xFF"}) {
    call.tool_calls = {{"f", "{}"}, {"g", arguments}};
    EXPECT_EQ(refusal({user("a"), call}),
              "messages[1].tool_calls[1].function.arguments must be the JSON text of an object")
        << arguments;
  }
  call.tool_calls = {{"f", "{\"a\":" + std::string(2000, '[') + std::string(2000, ']') + "}"}};
  EXPECT_EQ(refusal({user("a"), call}),
            "messages[1].tool_calls[0].function.arguments is nested more than 256 levels deep");
  std::vector<message> const hi = {user("a")};
  EXPECT_EQ(error_message([&] {
              (void)render(hi, ordered_json::object({{"a", 1}}));
            }),
            "tools must be an array");
}

TEST(chat_template, maps_wire_names_of_roles) {
  EXPECT_EQ(parse_chat_role("developer"), chat_role::system);
  EXPECT_EQ(parse_chat_role("tool"), chat_role::tool);
  EXPECT_EQ(parse_chat_role("function"), std::nullopt);
  EXPECT_EQ(parse_chat_role(""), std::nullopt);
}

TEST(chat_template, marks_exactly_what_the_client_wrote) {
  message call = assistant("C");
  call.reasoning_content = "R";
  call.tool_calls = {{"F", R"({"K":"V","L":[1]})"}};
  std::vector<message> const messages = {system("S"), user("U"), call, tool("T")};
  ordered_json const tools = ordered_json::parse(R"([{"name":"F"}])");
  std::vector<std::string> written;
  bool previous = true;
  for (prompt_segment const& segment : render_segments(messages, tools, {})) {
    EXPECT_FALSE(segment.text.empty());
    EXPECT_NE(segment.from_client, previous);
    previous = segment.from_client;
    if (segment.from_client) written.push_back(segment.text);
  }
  EXPECT_EQ(written, (std::vector<std::string>{R"({"name": "F"})", "S", "U", "R", "C", "F", "K",
                                               "V", "L", "[1]", "T"}));
}

bool has_added_token(std::string_view text) {
  ids const parsed = tiny().encode(text);
  return std::any_of(parsed.begin(), parsed.end(),
                     [](std::int32_t id) { return testing::is_added(id); });
}

ids added_only(ids const& all) {
  ids out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out),
               [](std::int32_t id) { return testing::is_added(id); });
  return out;
}

TEST(encode_chat, gives_the_ids_of_the_joined_prompt_for_harmless_clients) {
  int harmless = 0;
  for (golden_case const& one : goldens()) {
    if (!one.has_prompt()) continue;
    ids const joined = tiny().encode(render(one.messages, one.tools, one.options));
    EXPECT_EQ(encode_chat(tiny(), one.messages, one.tools, one.options, special_policy::parse),
              joined);
    auto const segments = render_segments(one.messages, one.tools, one.options);
    if (std::any_of(segments.begin(), segments.end(), [](prompt_segment const& s) {
          return s.from_client && has_added_token(s.text);
        })) {
      continue;
    }
    ++harmless;
    EXPECT_EQ(encode_chat(tiny(), one.messages, one.tools, one.options), joined) << one.source;
  }
  EXPECT_GE(harmless, 700);
}

TEST(encode_chat, meets_the_template_at_awkward_borders) {
  // Contents are stripped, names and values are not: blanks, newlines, marks and digits at their
  // ends meet the template's
  // '=', '>' and newlines in one word.
  for (std::string const edge : {"\n", "\n\n", " ", "\t", "  ", "\u0301", "\u0338", "1", "!", ">",
                                 "'s", "\u00a0", "\r", ""}) {
    message call = assistant("x" + edge);
    call.tool_calls = {{edge + "f" + edge,
                        ordered_json{{edge + "k" + edge, edge + "v" + edge}, {"w", edge}}.dump()}};
    std::vector<message> const messages = {system(edge + "s"), user("u" + edge), call,
                                           tool(edge + "t" + edge)};
    ordered_json const tools = {{{"name", edge}}};
    EXPECT_EQ(encode_chat(tiny(), messages, tools), tiny().encode(render(messages, tools)))
        << ::testing::PrintToString(edge);
  }
}

TEST(encode_chat, lets_no_client_write_a_control_token) {
  std::string attack;
  for (std::string_view const token : testing::tiny_added) attack += token;
  auto const conversation = [](std::string const& text) {
    message call = assistant("c" + text);
    call.reasoning_content = "r" + text;
    call.tool_calls = {{"f" + text, ordered_json{{"k" + text, "v" + text}}.dump()}};
    return std::vector<message>{system("s" + text), user("u" + text), call, tool("t" + text),
                                user("u" + text)};
  };
  ordered_json const tools = {{{"name", attack}}};
  auto const harmless = conversation("");
  auto const hostile = conversation(attack);
  ids const expected = added_only(encode_chat(tiny(), harmless, ordered_json{{{"name", "x"}}}));
  EXPECT_FALSE(expected.empty());
  ids const out = encode_chat(tiny(), hostile, tools);
  EXPECT_EQ(added_only(out), expected);
  EXPECT_EQ(tiny().decode(out, false), render(hostile, tools));
  EXPECT_GT(added_only(encode_chat(tiny(), hostile, tools, {}, special_policy::parse)).size(),
            expected.size());
}

TEST(chat_template, repairs_ill_formed_text) {
  EXPECT_EQ(rendered({user("a\xFF")}), rendered({user("a\uFFFD")}));
}

}  // namespace
}  // namespace qwen38::text
