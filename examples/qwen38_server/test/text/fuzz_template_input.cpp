// SPDX-License-Identifier: Apache-2.0
// Fuzz target over conversations, written as the cases of golden/chat_template.json. Links with
// libFuzzer, or with fuzz_corpus_replay.cpp. Run in this folder.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"
#include "text/chat_template.hpp"
#include "text/utf8.hpp"

namespace {

using nlohmann::ordered_json;
using qwen38::text::chat_format;
using qwen38::text::chat_options;
using qwen38::text::message;
using qwen38::text::prompt_segment;
using qwen38::text::special_policy;

void require(bool holds) {
  if (!holds) std::abort();
}

ordered_json const& member(ordered_json const& object, char const* key) {
  static ordered_json const none;
  return object.is_object() && object.contains(key) ? object.at(key) : none;
}

/// A string as it is; of anything else its JSON text, for the target is to see odd texts too.
std::string text_of(ordered_json const& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

message read_message(ordered_json const& wire) {
  message out;
  out.role = qwen38::text::parse_chat_role(text_of(member(wire, "role")))
                 .value_or(qwen38::text::chat_role::user);
  ordered_json const& content = member(wire, "content");
  if (content.is_array()) {
    for (ordered_json const& part : content) out.content += text_of(member(part, "text"));
  } else {
    out.content = text_of(content);
  }
  if (ordered_json const& reasoning = member(wire, "reasoning_content"); reasoning.is_string())
    out.reasoning_content = reasoning.get<std::string>();
  if (ordered_json const& calls = member(wire, "tool_calls"); calls.is_array()) {
    for (ordered_json const& call : calls) {
      ordered_json const& function = member(call, "function");
      out.tool_calls.push_back(
          {text_of(member(function, "name")), text_of(member(function, "arguments"))});
    }
  }
  return out;
}

chat_options read_options(ordered_json const& wire, chat_format format) {
  chat_options out = qwen38::text::default_chat_options(format);
  auto const flag = [&](char const* key, bool& value) {
    if (ordered_json const& given = member(wire, key); given.is_boolean())
      value = given.get<bool>();
  };
  flag("enable_thinking", out.enable_thinking);
  flag("preserve_thinking", out.preserve_thinking);
  flag("add_generation_prompt", out.add_generation_prompt);
  if (ordered_json const& effort = member(wire, "reasoning_effort"); effort.is_string())
    out.reasoning_effort = effort.get<std::string>();
  return out;
}

void check(std::vector<message> const& messages, ordered_json const& tools,
           chat_options const& options) {
  auto const& source = qwen38::text::testing::tiny();
  std::string prompt;
  std::size_t control_tokens = 0;  // in the template's own text
  bool previous = true;
  for (prompt_segment const& segment : qwen38::text::render_segments(messages, tools, options)) {
    require(!segment.text.empty() && segment.from_client != previous);
    previous = segment.from_client;
    prompt += segment.text;
    if (segment.from_client) continue;
    auto const ids = source.encode(segment.text);
    control_tokens += static_cast<std::size_t>(std::count_if(
        ids.begin(), ids.end(), [&](std::int32_t id) { return source.is_special(id); }));
  }
  require(prompt == qwen38::text::repair_utf8(prompt));
  require(prompt == qwen38::text::render(messages, tools, options));
  require(prompt.starts_with("<|im_start|>") || prompt.starts_with("\n<tool_response>"));

  // A client's text makes no control token, whatever stands in it.
  auto const ids = qwen38::text::encode_chat(source, messages, tools, options);
  require(static_cast<std::size_t>(std::count_if(ids.begin(), ids.end(), [&](std::int32_t id) {
            return source.is_special(id);
          })) == control_tokens);
  require(qwen38::text::encode_chat(source, messages, tools, options, special_policy::parse) ==
          source.encode(prompt));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  ordered_json const wire = ordered_json::parse(data, data + size, nullptr, false);
  std::vector<message> messages;
  if (ordered_json const& list = member(wire, "messages"); list.is_array()) {
    for (ordered_json const& one : list) messages.push_back(read_message(one));
  }
  for (chat_format const format : {chat_format::qwen38, chat_format::qwen36}) {
    chat_options const options = read_options(member(wire, "options"), format);
    for (auto const& conversation : {messages, qwen38::text::gather_system_messages(messages)}) {
      try {
        check(conversation, member(wire, "tools"), options);
      } catch (qwen38::error const& failure) {
        require(*failure.what() != '\0' && failure.kind() == qwen38::error_kind::invalid_argument);
      }
    }
  }
  return 0;
}
