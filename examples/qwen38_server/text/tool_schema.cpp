// SPDX-License-Identifier: Apache-2.0
#include "text/tool_schema.hpp"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "text/json_escape.hpp"
#include "text/json_schema.hpp"

namespace qwen38::text {
namespace {

using json = nlohmann::ordered_json;

constexpr int most_steps = 16;  // of references and alternatives inside one another
constexpr json_types all_types{true, true, true, true, true, true, true};

json_types joined(json_types const& a, json_types const& b) {
  return {a.string || b.string,   a.integer || b.integer, a.number || b.number,
          a.boolean || b.boolean, a.null || b.null,       a.object || b.object,
          a.array || b.array};
}

json_types common(json_types const& a, json_types const& b) {
  return {a.string && b.string,   a.integer && b.integer, a.number && b.number,
          a.boolean && b.boolean, a.null && b.null,       a.object && b.object,
          a.array && b.array};
}

json_types named(json const& name) {
  json_types out;
  if (name == "string") out.string = true;
  if (name == "integer") out.integer = true;
  if (name == "number") out.number = out.integer = true;
  if (name == "boolean") out.boolean = true;
  if (name == "null") out.null = true;
  if (name == "object") out.object = true;
  if (name == "array") out.array = true;
  return out == json_types{} ? all_types : out;
}

json_types type_of(json const& value) {
  if (value.is_string()) return named("string");
  if (value.is_number_integer()) return named("integer");
  if (value.is_number()) return named("number");
  if (value.is_boolean()) return named("boolean");
  if (value.is_null()) return named("null");
  return named(value.is_object() ? "object" : "array");
}

template <class Read>
json_types any_in(json const& list, Read const& read) {
  json_types out;
  for (json const& one : list) out = joined(out, read(one));
  return out;
}

json_types types_in(json const& given, json const& document, int steps) {
  if (steps > most_steps) return all_types;
  json const* schema = &given;
  try {
    schema = &resolve_schema(given, document);
  } catch (error const&) {
    return all_types;
  }
  if (!schema->is_object()) return all_types;
  json_types out = all_types;
  auto const list = [&](char const* name) -> json const* {
    auto const at = schema->find(name);
    return at != schema->end() && at->is_array() && !at->empty() ? &*at : nullptr;
  };
  auto const follow = [&](json const& one) { return types_in(one, document, steps + 1); };
  if (auto const type = schema->find("type"); type != schema->end()) {
    out = common(out, type->is_array() ? any_in(*type, named) : named(*type));
  }
  for (char const* const name : {"anyOf", "oneOf"}) {
    if (auto const* const alternatives = list(name))
      out = common(out, any_in(*alternatives, follow));
  }
  if (auto const* const parts = list("allOf")) {
    for (json const& part : *parts) out = common(out, follow(part));
  }
  if (auto const* const values = list("enum")) out = common(out, any_in(*values, type_of));
  if (schema->contains("const")) out = common(out, type_of(schema->at("const")));
  if (schema->contains("properties")) out = common(out, named("object"));
  if (schema->contains("items")) out = common(out, named("array"));
  return out == json_types{} ? all_types : out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  auto const begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// `text` is JSON of a type that is wanted; it is not a string.
bool is_wanted(std::string_view text, json_types const& types) {
  switch (text.front()) {
    case '{': return types.object;
    case '[': return types.array;
    case 't':
    case 'f': return types.boolean;
    case 'n': return types.null;
    case '"': return false;  // a string with quotes is a string: the model writes them raw
    default: break;
  }
  if (types.number) return true;
  double const value = std::strtod(std::string(text).c_str(), nullptr);
  return types.integer && std::trunc(value) == value;
}

}  // namespace

json_types types_in_schema(json const& schema, json const& document) {
  return types_in(schema, document, 0);
}

std::string parameter_json(std::string_view text, json_types const& types) {
  std::string_view value = trimmed(text);
  if (!types.only_string() && !value.empty()) {
    if (types.boolean && value == "True") return "true";
    if (types.boolean && value == "False") return "false";
    if (types.null && value == "None") return "null";
    // accept() builds nothing, so depth costs nothing; a zero byte would be its end of input.
    bool const is_json = value.find('\0') == std::string_view::npos && json::accept(value);
    if (is_json && is_wanted(value, types)) return std::string(value);
  }
  std::string out = "\"";
  append_json_escaped(out, text);
  return out + '"';
}

tool_signature read_tool_signature(json const& parameters) {
  tool_signature out;
  out.others = all_types;
  if (!parameters.is_object()) return out;
  json const* schema = &parameters;
  try {
    schema = &resolve_schema(parameters, parameters);
  } catch (error const&) {
    return out;
  }
  if (!schema->is_object()) return out;
  auto const properties = schema->find("properties");
  if (properties != schema->end() && properties->is_object()) {
    for (auto const& [name, of] : properties->items()) {
      out.parameters.emplace(name, types_in_schema(of, parameters));
    }
  }
  auto const others = schema->find("additionalProperties");
  if (others != schema->end()) out.others = types_in_schema(*others, parameters);
  return out;
}

}  // namespace qwen38::text
