// SPDX-License-Identifier: Apache-2.0
#include "api/chat_tools.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/errors.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t most_tools = 512;
constexpr std::size_t most_name_bytes = 128;

[[noreturn]] void refuse_value(std::string const& path, std::string const& sentence) {
  throw field_error(error_kind::invalid_argument, path, path + ": " + sentence);
}

struct read_tool {
  std::string path;
  text::tool_form form;
  text::tool_signature signature;
  bool strict = false;
};

read_tool read_one(json const& given, std::string const& path) {
  request_fields const tool(given, path);
  if (tool.string("type").value_or("") != "function") {
    tool.refuse("type", tool.path_of("type") + ": only `function` is served.");
  }
  auto const* const function = tool.object("function");
  if (function == nullptr) refuse_value(tool.path_of("function"), "expected an object, got none.");
  request_fields const fields(*function, tool.path_of("function"));
  read_tool out;
  out.form.name = fields.string("name").value_or("");
  bool const plain = std::ranges::all_of(
      out.form.name, [](char c) { return c > ' ' && c != 0x7F && c != '<' && c != '>'; });
  if (out.form.name.empty() || out.form.name.size() > most_name_bytes || !plain) {
    refuse_value(fields.path_of("name"),
                 "expected 1 to " + std::to_string(most_name_bytes) +
                     " printable ASCII characters without blanks, < and >.");
  }
  static_cast<void>(fields.string("description"));
  out.path = fields.path_of("parameters");
  out.form.schema = fields.object("parameters");
  out.strict = fields.boolean("strict").value_or(false);
  out.signature = text::read_tool_signature(out.form.schema != nullptr ? *out.form.schema : json());
  if (!out.strict) {
    out.form.schema = nullptr;
  } else if (out.form.schema == nullptr) {
    refuse_value(out.path, "expected a schema, since the function is strict.");
  }
  return out;
}

enum class choice { none, automatic, required };

struct read_choice {
  choice what = choice::automatic;
  std::optional<std::string> name;
};

read_choice read_tool_choice(request_fields const& body) {
  auto const* const given = body.find("tool_choice");
  if (given == nullptr) return {};
  auto const path = body.path_of("tool_choice");
  if (given->is_string()) {
    if (*given == "none") return {choice::none, {}};
    if (*given == "auto") return {choice::automatic, {}};
    if (*given == "required") return {choice::required, {}};
  }
  if (!given->is_object()) fail_field(path, "none, auto, required or an object", *given);
  request_fields const fields(*given, path);
  if (fields.string("type").value_or("") != "function") {
    fields.refuse("type", fields.path_of("type") + ": only `function` is served.");
  }
  auto const* const function = fields.object("function");
  if (function == nullptr) {
    refuse_value(fields.path_of("function"), "expected an object, got none.");
  }
  return {choice::required,
          request_fields(*function, fields.path_of("function")).string("name").value_or("")};
}

/// What the text layer says of a schema, with the place of the schema in front.
[[noreturn]] void rethrow(error const& cause, std::string const& path) {
  throw field_error(cause.kind(), path, path + ": " + cause.what());
}

std::shared_ptr<text::byte_grammar const> make_grammar(std::vector<read_tool> const& tools,
                                                       text::tool_grammar_options const& options) {
  std::vector<text::tool_form> forms;
  for (read_tool const& tool : tools) {
    forms.push_back(tool.form);
    if (tool.form.schema == nullptr) continue;
    try {  // alone, to know whose it is
      static_cast<void>(text::make_tool_grammar({tool.form}, options));
    } catch (error const& cause) {
      rethrow(cause, tool.path);
    }
  }
  try {
    return std::make_shared<text::byte_grammar const>(text::make_tool_grammar(forms, options));
  } catch (error const& cause) {
    rethrow(cause, "tools");
  }
}

}  // namespace

chat_tools read_chat_tools(request_fields const& body, bool starts_in_reasoning) {
  auto const* const list = body.array("tools", most_tools);
  auto const chosen = read_tool_choice(body);
  bool const parallel = body.boolean("parallel_tool_calls").value_or(true);
  chat_tools out;
  std::vector<read_tool> tools;
  text::tool_signatures signatures;
  bool strict = false;
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    auto const path = "tools[" + std::to_string(i) + ']';
    auto tool = read_one((*list)[i], path);
    if (!signatures.emplace(tool.form.name, tool.signature).second) {
      refuse_value(path + ".function.name", "expected a name that no tool before it has.");
    }
    strict = strict || tool.strict;
    if (!chosen.name || *chosen.name == tool.form.name) tools.push_back(std::move(tool));
  }
  if (chosen.what == choice::none) return out;
  if (signatures.empty()) {
    if (chosen.what == choice::required) {
      refuse_value("tool_choice", "expected tools to choose from.");
    }
    return out;
  }
  if (tools.empty()) refuse_value("tool_choice.function.name", "expected the name of a tool.");
  out.rendered = *list;
  out.signatures = std::make_shared<text::tool_signatures const>(std::move(signatures));
  bool const required = chosen.what == choice::required;
  if (required || strict || !parallel) {
    out.grammar = make_grammar(tools, {starts_in_reasoning, required, parallel});
  }
  return out;
}

}  // namespace qwen38::api
