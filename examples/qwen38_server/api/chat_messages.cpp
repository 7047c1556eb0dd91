// SPDX-License-Identifier: Apache-2.0
#include "api/chat_messages.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "api/errors.hpp"
#include "api/json_body.hpp"
#include "api/request_fields.hpp"
#include "api/unserved_fields.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t any_number = SIZE_MAX;  // the body's own limits hold

[[noreturn]] void refuse_value(std::string const& path, std::string const& sentence) {
  throw field_error(error_kind::invalid_argument, path, path + ": " + sentence);
}

std::string element(std::string const& path, std::size_t index) {
  return path + '[' + std::to_string(index) + ']';
}

std::string read_content(request_fields const& message) {
  auto const* const content = message.find("content");
  auto const path = message.path_of("content");
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) fail_field(path, "a string or an array of text parts", *content);
  std::string out;
  for (std::size_t i = 0; i < content->size(); ++i) {
    request_fields const part((*content)[i], element(path, i));
    auto const type = part.string("type").value_or("text");
    if (type != "text") {
      part.refuse("type", part.path_of("type") + ": only parts of type `text` are served, got " +
                              quoted_word(type) + '.');
    }
    auto const text = part.string("text");
    if (!text) refuse_value(part.path_of("text"), "expected a string, got none.");
    out += *text;
  }
  return out;
}

/// The JSON text of an object, or "" for no parameters.
std::string read_arguments(request_fields const& function) {
  auto const* const arguments = function.find("arguments");
  auto const path = function.path_of("arguments");
  if (arguments == nullptr) return {};
  if (arguments->is_object())
    return arguments->dump(-1, ' ', false, json::error_handler_t::replace);
  if (!arguments->is_string()) fail_field(path, "the JSON text of an object", *arguments);
  auto text = arguments->get<std::string>();
  if (text.empty()) return text;
  json parsed;
  try {
    parsed = parse_json(text, path);
  } catch (error const& cause) {
    throw field_error(cause.kind(), path, cause.what());
  }
  if (!parsed.is_object()) fail_field(path, "the JSON text of an object", parsed);
  return text;
}

std::vector<text::tool_call> read_tool_calls(request_fields const& message) {
  std::vector<text::tool_call> out;
  auto const* const calls = message.array("tool_calls", any_number);
  if (calls == nullptr) return out;
  for (std::size_t i = 0; i < calls->size(); ++i) {
    request_fields const call((*calls)[i], element(message.path_of("tool_calls"), i));
    auto const* const function = call.object("function");
    if (function == nullptr)
      refuse_value(call.path_of("function"), "expected an object, got none.");
    request_fields const fields(*function, call.path_of("function"));
    auto name = fields.string("name");
    if (!name || name->empty()) {
      refuse_value(fields.path_of("name"), "expected a function's name, got none.");
    }
    out.push_back({std::move(*name), read_arguments(fields)});
  }
  return out;
}

text::message read_message(request_fields const& fields) {
  auto const name = fields.string("role");
  auto const role = name ? text::parse_chat_role(*name) : std::nullopt;
  if (!role) {
    refuse_value(fields.path_of("role"),
                 "expected system, developer, user, assistant or tool, got " +
                     (name ? quoted_word(*name) : std::string("none")) + '.');
  }
  refuse_unserved_message_fields(fields);
  text::message out;
  out.role = *role;
  out.content = read_content(fields);
  if (*role == text::chat_role::assistant) {
    out.reasoning_content = fields.string("reasoning_content");
    if (!out.reasoning_content) out.reasoning_content = fields.string("reasoning");
    out.tool_calls = read_tool_calls(fields);
  } else if (auto const* const calls = fields.array("tool_calls", any_number);
             calls != nullptr && !calls->empty()) {
    refuse_value(fields.path_of("tool_calls"), "expected only in a message of the assistant.");
  }
  return out;
}

}  // namespace

std::vector<text::message> read_chat_messages(json const& body) {
  request_fields const fields(body);
  auto const* const list = fields.array("messages", any_number);
  if (list == nullptr || list->empty()) {
    refuse_value("messages", "expected an array of at least one message.");
  }
  std::vector<text::message> out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    out.push_back(read_message(request_fields((*list)[i], element("messages", i))));
  }
  return text::gather_system_messages(std::move(out));
}

}  // namespace qwen38::api
