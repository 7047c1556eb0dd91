// SPDX-License-Identifier: Apache-2.0
#include "text/json_schema.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "support/error.hpp"

namespace qwen38::text {
namespace {

using json = nlohmann::ordered_json;
using names = std::span<std::string_view const>;

constexpr std::int64_t most_repeats = 100'000;

constexpr auto annotations = std::to_array<std::string_view>(
    {"title", "description", "default", "example", "examples", "deprecated", "readOnly",
     "writeOnly", "$schema", "$id", "$comment", "$defs", "definitions", "$anchor"});
constexpr auto object_words =
    std::to_array<std::string_view>({"properties", "required", "additionalProperties"});
constexpr auto array_words = std::to_array<std::string_view>({"items", "minItems", "maxItems"});
constexpr auto string_words =
    std::to_array<std::string_view>({"minLength", "maxLength", "pattern", "format"});
constexpr auto whole_words =  // of which one stands for all of the schema
    std::to_array<std::string_view>({"$ref", "allOf", "anyOf", "oneOf", "const", "enum"});

bool holds(names words, std::string_view name) {
  return std::ranges::find(words, name) != words.end();
}

/// Names of a schema are a client's words: shown only where they are short and plain.
std::string shown(std::string_view name) {
  bool const plain = !name.empty() && name.size() <= 32 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$';
  });
  return plain ? '`' + std::string(name) + '`' : std::string("with this name");
}

[[noreturn]] void refuse_keyword(std::string_view name) {
  throw error(error_kind::unsupported, "the keyword " + shown(name) + " is not supported.");
}

std::int64_t count(json const& schema, std::string_view name, std::int64_t otherwise) {
  auto const* const given = find_keyword(schema, name);
  if (given == nullptr) return otherwise;
  if (!given->is_number_integer() || *given < 0 || *given > most_repeats) {
    refuse_schema(std::string(name) + ": expected an integer from 0 to " +
                  std::to_string(most_repeats) + '.');
  }
  return given->get<std::int64_t>();
}

}  // namespace

void refuse_schema(std::string const& sentence) {
  throw error(error_kind::invalid_argument, sentence);
}

void refuse_together(std::string_view one, std::string_view other) {
  throw error(error_kind::unsupported,
              "the keyword " + shown(one) + " beside " + shown(other) + " is not supported.");
}

void check_keywords(json const& schema) {
  for (auto const& member : schema.items()) {
    auto const& name = member.key();
    bool const known = name == "type" || name.starts_with("x-") || holds(annotations, name) ||
                       holds(object_words, name) || holds(array_words, name) ||
                       holds(string_words, name) || holds(whole_words, name);
    if (!known) refuse_keyword(name);
  }
}

std::string_view whole_word(json const& schema) {
  std::string_view found;
  for (auto const word : whole_words) {
    if (!schema.contains(word)) continue;
    if (!found.empty()) refuse_together(found, word);
    found = word;
  }
  if (found.empty()) return found;
  bool const values = found == "enum" || found == "const";
  for (auto const& member : schema.items()) {
    auto const& name = member.key();
    if (name == found || name.starts_with("x-") || holds(annotations, name)) continue;
    if (name == "type" && (values || found == "anyOf" || found == "oneOf")) continue;
    refuse_together(name, found);
  }
  return found;
}

json const* find_keyword(json const& schema, std::string_view name) {
  auto const at = schema.find(name);
  return at == schema.end() ? nullptr : &*at;
}

schema_counts read_counts(json const& schema, std::string_view least, std::string_view most) {
  schema_counts const out{count(schema, least, 0), count(schema, most, -1)};
  if (out.most >= 0 && out.most < out.least) {
    refuse_schema(std::string(most) + ": expected at least " + std::string(least) + '.');
  }
  return out;
}

std::string_view format_pattern(std::string_view format) {
  if (format == "date") return "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$";
  if (format == "time") {
    return "^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?"
           "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
  }
  if (format == "date-time") {
    return "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:"
           "[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
  }
  if (format == "uuid") {
    return "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";
  }
  throw error(error_kind::unsupported,
              "format: only `date`, `time`, `date-time` and `uuid` are "
              "supported.");
}

bool fits_type(json const& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  }
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  return value.is_array();
}

std::vector<std::string> types_of(json const& schema) {
  std::vector<std::string> out;
  auto const add = [&](json const& name) {
    constexpr auto known = std::to_array<std::string_view>(
        {"string", "number", "integer", "boolean", "null", "object", "array"});
    if (!name.is_string() || !holds(known, name.get_ref<std::string const&>())) {
      refuse_schema("type: expected the name of a JSON type or an array of them.");
    }
    out.push_back(name.get<std::string>());
  };
  auto const* const given = find_keyword(schema, "type");
  if (given != nullptr && given->is_array()) {
    for (json const& name : *given) add(name);
    if (out.empty()) refuse_schema("type: expected the name of a JSON type or an array of them.");
  } else if (given != nullptr) {
    add(*given);
  } else {
    auto const has = [&](names words) {
      return std::ranges::any_of(words, [&](auto word) { return schema.contains(word); });
    };
    if (has(object_words)) out.emplace_back("object");
    if (has(array_words)) out.emplace_back("array");
    if (has(string_words)) out.emplace_back("string");
    if (out.size() > 1)
      refuse_schema("type: expected one, since its keywords belong to several types.");
  }
  return out;
}

json const& schema_at(std::string const& pointer, json const& document) {
  if (!pointer.starts_with('#')) {
    throw error(error_kind::unsupported,
                "$ref: only references within the schema are supported, which begin with #.");
  }
  try {
    return document.at(json::json_pointer(pointer.substr(1)));
  } catch (json::exception const&) {
    refuse_schema("$ref: expected the place of a schema in this schema.");
  }
}

std::string const& reference_of(json const& schema) {
  json const& given = schema.at("$ref");
  if (!given.is_string()) refuse_schema("$ref: expected a string.");
  return given.get_ref<std::string const&>();
}

json const& list_of(json const& schema, std::string_view name) {
  json const& list = *find_keyword(schema, name);
  if (!list.is_array() || list.empty()) {
    refuse_schema(std::string(name) + ": expected an array of at least one element.");
  }
  return list;
}

json const& only_of_all(json const& schema) {
  json const& list = list_of(schema, "allOf");
  if (list.size() > 1) {
    throw error(error_kind::unsupported,
                "the keyword `allOf` with several schemas is not supported.");
  }
  return list.front();
}

json const& resolve_schema(json const& schema, json const& document) {
  json const* at = &schema;
  for (int steps = 0; steps < 64; ++steps) {
    if (!at->is_object()) return *at;
    if (at->contains("$ref")) {
      at = &schema_at(reference_of(*at), document);
    } else if (at->contains("allOf") && at->at("allOf").is_array() && at->at("allOf").size() == 1) {
      at = &at->at("allOf").front();
    } else {
      return *at;
    }
  }
  refuse_schema("$ref: expected no schema that is itself again.");
}

}  // namespace qwen38::text
