// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

// JSON Schema by its definition, for the keywords that the grammars serve and on values in memory.
namespace qwen38::text::testing {

using json = nlohmann::ordered_json;

inline std::size_t characters(std::string const& utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(
      utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

inline bool has_type(json const& value, std::string const& type) {
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
  }
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  return type == "array" && value.is_array();
}

inline bool fulfils(json const& value, json const& schema, json const& document) {
  if (schema.is_boolean()) return schema.get<bool>();
  auto const all = [&](json const& list, auto const& holds) {
    return std::all_of(list.begin(), list.end(), holds);
  };
  auto const against = [&](json const& one) { return fulfils(value, one, document); };
  if (schema.contains("$ref")) {
    auto const pointer = schema["$ref"].get<std::string>().substr(1);
    if (!against(document.at(json::json_pointer(pointer)))) return false;
  }
  if (schema.contains("type")) {
    json const types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(),
                     [&](json const& type) { return has_type(value, type); })) {
      return false;
    }
  }
  if (schema.contains("enum") && std::ranges::count(schema["enum"], value) == 0) return false;
  if (schema.contains("const") && schema["const"] != value) return false;
  for (char const* const name : {"anyOf", "oneOf"}) {
    if (schema.contains(name) && std::none_of(schema[name].begin(), schema[name].end(), against)) {
      return false;
    }
  }
  if (schema.contains("allOf") && !all(schema["allOf"], against)) return false;
  if (value.is_string()) {
    auto const& text = value.get_ref<std::string const&>();
    if (schema.contains("minLength") && characters(text) < schema["minLength"]) return false;
    if (schema.contains("maxLength") && characters(text) > schema["maxLength"]) return false;
    if (schema.contains("pattern") &&
        !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
      return false;
    }
  }
  if (value.is_array()) {
    if (schema.contains("minItems") && value.size() < schema["minItems"]) return false;
    if (schema.contains("maxItems") && value.size() > schema["maxItems"]) return false;
    if (schema.contains("items") &&
        !all(value, [&](json const& one) { return fulfils(one, schema["items"], document); })) {
      return false;
    }
  }
  if (value.is_object()) {
    json const properties = schema.value("properties", json::object());
    for (auto const& [name, member] : value.items()) {
      if (properties.contains(name)) {
        if (!fulfils(member, properties[name], document)) return false;
      } else if (schema.contains("additionalProperties") &&
                 !fulfils(member, schema["additionalProperties"], document)) {
        return false;
      }
    }
    if (schema.contains("required") && !all(schema["required"], [&](json const& name) {
          return value.contains(name.get<std::string>());
        })) {
      return false;
    }
  }
  return true;
}

}  // namespace qwen38::text::testing
