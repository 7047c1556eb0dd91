// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace qwen38::text {

/// Types of JSON that a schema lets a value have.
struct json_types {
  bool string = false;
  bool integer = false;
  bool number = false;  ///< integers too
  bool boolean = false;
  bool null = false;
  bool object = false;
  bool array = false;

  bool operator==(json_types const&) const = default;
  /// Nothing but a string will do.
  [[nodiscard]] bool only_string() const noexcept {
    json_types text;
    text.string = true;
    return *this == text;
  }
};

/// Of `schema`, through $ref, anyOf, oneOf, allOf, enum, const and lists of types; all where it
/// says nothing or cannot be followed.
[[nodiscard]] json_types types_in_schema(nlohmann::ordered_json const& schema,
                                         nlohmann::ordered_json const& document);

/// The JSON text of a parameter that the model wrote as `text`. Where only a string will do, it is
/// that string. Else text that is JSON of a type in `types`, blanks around it aside, is that JSON
/// as it stands; True, False and None count as true, false and null. All else is a string, whatever
/// the types: a value is never lost.
[[nodiscard]] std::string parameter_json(std::string_view text, json_types const& types);

/// What the parser of calls needs to know of one function.
struct tool_signature {
  std::map<std::string, json_types, std::less<>> parameters;
  json_types others;  ///< of parameters that the schema does not list
};

/// By name.
using tool_signatures = std::map<std::string, tool_signature, std::less<>>;

/// parameters: the JSON schema of the arguments; anything but an object says nothing.
[[nodiscard]] tool_signature read_tool_signature(nlohmann::ordered_json const& parameters);

}  // namespace qwen38::text
