// SPDX-License-Identifier: Apache-2.0
#include "text/answer_grammar.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "support/error.hpp"
#include "text/json_grammar.hpp"
#include "text/json_schema.hpp"
#include "text/tool_schema.hpp"

namespace qwen38::text {
namespace {

using node = byte_grammar::node;
using tag = byte_grammar::tag;
using json = nlohmann::ordered_json;

constexpr std::string_view call_tag = "<tool_call>";
constexpr std::string_view function_tag = "<function=";
constexpr std::string_view parameter_tag = "<parameter=";
constexpr std::string_view parameter_end = "\n</parameter>\n";
constexpr int most_name_bytes = 64;

/// Any text, then the end of a parameter. What the parser would read as another end is not read.
void add_free_value(byte_grammar& grammar, node from, node to) {
  node const end = grammar.add_node();
  grammar.add_byte(end, '\n', to);
  auto const tags = std::to_array<tag>(
      {{"\n</parameter>", end}, {"</parameter>", -1}, {"\n<parameter=", -1}, {"</tool_call>", -1}});
  grammar.add_until(from, tags);
}

/// Parameters of any name, up to the function's end.
void add_free_parameters(byte_grammar& grammar, node at) {
  node const name = grammar.literal(at, parameter_tag);
  node const name_end = grammar.add_node();
  node letter = name;
  for (int i = 0; i < most_name_bytes; ++i) {
    node const next = grammar.add_node();
    grammar.add_bytes(letter, '!', '<' - 1, next);
    grammar.add_byte(letter, '=', next);
    grammar.add_bytes(letter, '>' + 1, '~', next);
    grammar.add_empty(next, name_end);
    letter = next;
  }
  add_free_value(grammar, grammar.literal(name_end, ">\n"), at);
}

/// One parameter's value and its end.
void add_typed_value(byte_grammar& grammar, json_grammar& values, json const& given,
                     json const& document, node from, node to) {
  json const& schema = resolve_schema(given, document);
  auto const types = types_in_schema(schema, document);
  node const end = grammar.add_node();
  if (!types.string) {
    values.add_value(schema, document, from, end);
    grammar.add_literal(end, parameter_end, to);
    return;
  }
  if (!schema.is_object()) {
    add_free_value(grammar, from, to);
    return;
  }
  for (char const* const word : {"minLength", "maxLength", "pattern", "format"}) {
    if (!schema.contains(word)) continue;
    throw error(error_kind::unsupported, "the keyword `" + std::string(word) +
                                             "` of a parameter that is a string is not supported.");
  }
  auto const add = [&](json const& value) {
    grammar.add_literal(from, value.is_string() ? value.get<std::string>() : value.dump(), end);
  };
  if (schema.contains("const")) {
    add(schema.at("const"));
  } else if (schema.contains("enum")) {
    for (json const& value : schema.at("enum")) add(value);
  } else {
    add_free_value(grammar, from, to);
    return;
  }
  grammar.add_literal(end, parameter_end, to);
}

/// Parameters in the order of the schema, up to the function's end.
node add_typed_parameters(byte_grammar& grammar, json_grammar& values, json const& given, node at) {
  json const& schema = resolve_schema(given, given);
  if (!schema.is_object()) {
    throw error(error_kind::invalid_argument, "expected the schema of an object.");
  }
  // Reads the schema as JSON would, for its complaints.
  byte_grammar unused;
  json_grammar(unused).add_value(given, given, unused.root().start, unused.root().end);
  if (!schema.contains("properties")) return at;
  json const& required = schema.contains("required") ? schema.at("required") : json::array();
  for (auto const& [name, of] : schema.at("properties").items()) {
    if (name.empty() || name.find_first_of("<>\n") != std::string::npos) {
      throw error(error_kind::unsupported,
                  "a parameter's name with a bracket or a line break is not supported.");
    }
    node const next = grammar.add_node();
    node const value = grammar.literal(at, std::string(parameter_tag) + name + ">\n");
    add_typed_value(grammar, values, of, given, value, next);
    if (std::find(required.begin(), required.end(), json(name)) == required.end())
      grammar.add_empty(at, next);
    at = next;
  }
  return at;
}

/// The node behind the reasoning, if there is any.
node after_reasoning(byte_grammar& grammar, bool starts_in_reasoning) {
  node const start = grammar.root().start;
  if (!starts_in_reasoning) return start;
  node const answer = grammar.add_node();
  node after = grammar.add_node();
  grammar.add_until(start, std::to_array<tag>({{"</think>", after}, {call_tag, -1}}));
  for (int i = 0; i < 2; ++i) {
    grammar.add_empty(after, answer);
    node const next = i == 0 ? grammar.add_node() : answer;
    grammar.add_byte(after, '\n', next);
    after = next;
  }
  return answer;
}

}  // namespace

byte_grammar make_json_grammar(json const* schema, bool starts_in_reasoning) {
  byte_grammar grammar;
  json_grammar values(grammar);
  node const begin = after_reasoning(grammar, starts_in_reasoning);
  if (schema == nullptr) {
    values.add_object(begin, grammar.root().end);
  } else {
    values.add_value(*schema, *schema, begin, grammar.root().end);
  }
  return grammar;
}

byte_grammar make_tool_grammar(std::vector<tool_form> const& tools,
                               tool_grammar_options const& options) {
  byte_grammar grammar;
  json_grammar values(grammar, json_form::inside_tags);
  node const end = grammar.root().end;
  node const begin = after_reasoning(grammar, options.starts_in_reasoning);
  node const open = grammar.add_node();  // behind <tool_call>
  if (options.required) {
    grammar.add_literal(begin, call_tag, open);
  } else {
    grammar.add_until(begin, std::to_array<tag>({{call_tag, open}, {function_tag, -1}}), end);
  }
  node const closing = grammar.add_node();  // in front of </function>
  node const name = grammar.literal(open, std::string("\n").append(function_tag));
  for (tool_form const& tool : tools) {
    node at = grammar.literal(name, tool.name + ">\n");
    if (tool.schema == nullptr) {
      add_free_parameters(grammar, at);
    } else {
      at = add_typed_parameters(grammar, values, *tool.schema, at);
    }
    grammar.add_empty(at, closing);
  }
  node const closed = grammar.literal(closing, "</function>\n</tool_call>");
  grammar.add_empty(closed, end);
  if (options.parallel) grammar.add_literal(closed, std::string("\n").append(call_tag), open);
  return grammar;
}

}  // namespace qwen38::text
