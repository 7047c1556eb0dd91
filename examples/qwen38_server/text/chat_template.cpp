// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/error.hpp"
#include "text/python_json.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

using nlohmann::ordered_json;

// Sentences that the model was trained on.
constexpr std::string_view xhigh_effort =
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
    "assumptions, "
    "consider plausible alternatives, and prioritize correctness, consistency, and clarity in the "
    "final "
    "answer.";
constexpr std::string_view low_effort =
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the "
    "conclusion "
    "without unnecessary elaboration.";
constexpr std::string_view tools_begin =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view tools_end =
    "\n</tools>\n\n"
    "If you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</"
    "parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
    "multiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block "
    "must be "
    "nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the "
    "function "
    "call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current "
    "knowledge "
    "and do not tell the user about function calls\n"
    "</IMPORTANT>";

[[noreturn]] void refuse(std::string const& sentence) {
  throw error(error_kind::invalid_argument, sentence);
}

std::string at(std::size_t index) {
  return "messages[" + std::to_string(index) + "]";
}

std::string trimmed(std::string const& text) {
  std::string const valid = repair_utf8(text);
  return std::string(strip(valid));
}

bool is_wrapped_tool_response(std::string_view content) {
  return content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
}

struct answer {
  std::string reasoning;
  std::string content;
};

/// Qwen3.6 takes reasoning out of a content that holds </think>: what stands between the last
/// <think> before the first </think> and that; the content goes on after the last </think>.
answer split_inline_reasoning(std::string const& content) {
  constexpr std::string_view open = "<think>";
  constexpr std::string_view close = "</think>";
  auto const first = content.find(close);
  if (first == std::string::npos) return {"", content};
  std::string_view reasoning = std::string_view(content).substr(0, first);
  if (auto const begin = reasoning.rfind(open); begin != std::string_view::npos)
    reasoning.remove_prefix(begin + open.size());
  std::string_view rest = std::string_view(content).substr(content.rfind(close) + close.size());
  rest.remove_prefix(std::min(rest.find_first_not_of('\n'), rest.size()));
  return {std::string(strip(reasoning)), std::string(rest)};
}

class renderer {
 public:
  renderer(std::span<message const> messages, ordered_json const& tools,
           chat_options const& options)
      : messages_(messages), tools_(tools), options_(options) {}

  std::vector<prompt_segment> run() {
    if (messages_.empty()) refuse("messages is empty: No messages provided.");
    system_block();
    find_last_query();
    for (index_ = 0; index_ < messages_.size(); ++index_) turn();
    if (options_.add_generation_prompt) {
      fixed("<|im_start|>assistant\n<think>\n");
      if (!options_.enable_thinking) fixed("\n</think>\n\n");
    }
    return std::move(segments_);
  }

 private:
  void fixed(std::string_view text) { append(text, false); }
  void client(std::string_view text) { append(text, true); }
  void append(std::string_view text, bool from_client) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().from_client != from_client)
      segments_.push_back({"", from_client});
    segments_.back().text += text;
  }

  [[nodiscard]] bool is_qwen36() const { return options_.format == chat_format::qwen36; }

  [[nodiscard]] std::string_view effort() const {
    if (is_qwen36()) return {};
    if (!options_.enable_thinking || options_.reasoning_effort == "medium") return {};
    if (options_.reasoning_effort == "xhigh") return xhigh_effort;
    if (options_.reasoning_effort == "low") return low_effort;
    refuse("Unexpected reasoning effort " + options_.reasoning_effort +
           ". Supported types are xhigh (default), medium, and low.");
  }

  /// Effort, tools and system content, joined by blank lines; nothing at all if there is none of
  /// them, but Qwen3.6 prints an empty block for an empty system message.
  void system_block() {
    std::string_view const instructions = effort();
    if (!tools_.is_null() && !tools_.is_array()) refuse("tools must be an array");
    bool const has_tools = tools_.is_array() && !tools_.empty();
    bool const has_system = messages_[0].role == chat_role::system;
    std::string const content = has_system ? trimmed(messages_[0].content) : std::string();
    if (instructions.empty() && !has_tools && content.empty() && !(has_system && is_qwen36()))
      return;

    fixed("<|im_start|>system\n");
    fixed(instructions);
    if (has_tools) {
      if (!instructions.empty()) fixed("\n\n");
      fixed(tools_begin);
      for (std::size_t i = 0; i < tools_.size(); ++i) {
        fixed("\n");
        client(repair_utf8(python_json(tools_[i], "tools[" + std::to_string(i) + "]")));
      }
      fixed(tools_end);
    }
    if (!content.empty()) {
      if (!instructions.empty() || has_tools) fixed("\n\n");
      client(content);
    }
    fixed("<|im_end|>\n");
  }

  void find_last_query() {
    for (std::size_t i = messages_.size(); i-- > 0;) {
      if (messages_[i].role == chat_role::user &&
          !is_wrapped_tool_response(trimmed(messages_[i].content))) {
        last_query_ = i;
        return;
      }
    }
    refuse(
        "messages has no message of role user other than wrapped tool responses: No user query "
        "found in messages.");
  }

  void turn() {
    message const& m = messages_[index_];
    switch (m.role) {
      case chat_role::system:
        if (index_ > 0)
          refuse(at(index_) + " has role system: System message must be at the beginning.");
        return;
      case chat_role::user:
        fixed("<|im_start|>user\n");
        client(trimmed(m.content));
        fixed("<|im_end|>\n");
        return;
      case chat_role::assistant: assistant(m); return;
      case chat_role::tool: tool_response(m); return;
    }
    refuse(at(index_) + " has no known role: Unexpected message role.");
  }

  void assistant(message const& m) {
    auto const [reasoning, content] =
        is_qwen36() && !m.reasoning_content
            ? split_inline_reasoning(trimmed(m.content))
            : answer{trimmed(m.reasoning_content.value_or("")), trimmed(m.content)};
    fixed("<|im_start|>assistant\n");
    if (options_.preserve_thinking || index_ > last_query_) {
      fixed("<think>\n");
      client(reasoning);
      fixed("\n</think>\n\n");
    }
    client(content);
    for (std::size_t k = 0; k < m.tool_calls.size(); ++k) {
      if (k > 0) {
        fixed("\n");
      } else if (!content.empty()) {
        fixed("\n\n");
      }
      call(m.tool_calls[k], k);
    }
    fixed("<|im_end|>\n");
  }

  void call(tool_call const& call, std::size_t k) {
    fixed("<tool_call>\n<function=");
    client(repair_utf8(call.name));
    fixed(">\n");
    if (!call.arguments.empty()) {
      std::string const where =
          at(index_) + ".tool_calls[" + std::to_string(k) + "].function.arguments";
      ordered_json const arguments = parse_arguments(call.arguments, where);
      for (auto const& [name, value] : arguments.items()) {
        fixed("<parameter=");
        client(name);
        fixed(">\n");
        client(value.is_string() ? value.get_ref<std::string const&>() : python_json(value, where));
        fixed("\n</parameter>\n");
      }
    }
    fixed("</function>\n</tool_call>");
  }

  static ordered_json parse_arguments(std::string const& text, std::string const& where) {
    ordered_json arguments = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!arguments.is_object()) refuse(where + " must be the JSON text of an object");
    return arguments;
  }

  /// A run of tool messages shares one user block.
  void tool_response(message const& m) {
    auto const is_tool = [&](std::size_t i) { return messages_[i].role == chat_role::tool; };
    if (index_ > 0 && !is_tool(index_ - 1)) fixed("<|im_start|>user");
    fixed("\n<tool_response>\n");
    client(trimmed(m.content));
    fixed("\n</tool_response>");
    if (index_ + 1 == messages_.size() || !is_tool(index_ + 1)) fixed("<|im_end|>\n");
  }

  std::span<message const> messages_;
  ordered_json const& tools_;
  chat_options const& options_;
  std::vector<prompt_segment> segments_;
  std::size_t index_ = 0;
  std::size_t last_query_ = 0;
};

}  // namespace

std::optional<chat_role> parse_chat_role(std::string_view name) {
  if (name == "system" || name == "developer") return chat_role::system;
  if (name == "user") return chat_role::user;
  if (name == "assistant") return chat_role::assistant;
  if (name == "tool") return chat_role::tool;
  return std::nullopt;
}

chat_options default_chat_options(chat_format format) {
  chat_options out;
  out.format = format;
  out.preserve_thinking = format == chat_format::qwen38;
  return out;
}

std::optional<std::string_view> parse_reasoning_effort(std::string_view name) {
  if (name == "xhigh" || name == "high" || name == "max") return "xhigh";
  if (name == "medium") return "medium";
  if (name == "low" || name == "minimal") return "low";
  if (name == "none") return "none";
  return std::nullopt;
}

std::vector<message> gather_system_messages(std::vector<message> messages) {
  auto const is_system = [](message const& m) { return m.role == chat_role::system; };
  if (std::none_of(messages.begin(), messages.end(), is_system)) return messages;
  message system;
  system.role = chat_role::system;
  std::vector<message> out(1);
  for (message& m : messages) {
    if (!is_system(m)) {
      out.push_back(std::move(m));
      continue;
    }
    std::string const content = trimmed(m.content);
    if (content.empty()) continue;
    if (!system.content.empty()) system.content += "\n\n";
    system.content += content;
  }
  out[0] = std::move(system);
  return out;
}

std::vector<prompt_segment> render_segments(std::span<message const> messages,
                                            ordered_json const& tools,
                                            chat_options const& options) {
  return renderer(messages, tools, options).run();
}

std::string render(std::span<message const> messages, ordered_json const& tools,
                   chat_options const& options) {
  std::string prompt;
  for (prompt_segment const& segment : render_segments(messages, tools, options))
    prompt += segment.text;
  return prompt;
}

std::vector<std::int32_t> encode_chat(tokenizer const& source, std::span<message const> messages,
                                      ordered_json const& tools, chat_options const& options,
                                      special_policy client_text) {
  std::vector<prompt_segment> const segments = render_segments(messages, tools, options);
  std::vector<text_piece> pieces;
  pieces.reserve(segments.size());
  for (prompt_segment const& segment : segments) {
    pieces.push_back({segment.text, segment.from_client ? client_text : special_policy::parse});
  }
  return source.encode(pieces);
}

}  // namespace qwen38::text
