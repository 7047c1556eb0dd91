// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_grammar.hpp"
#include "text/json_chars.hpp"

namespace qwen38::text {

/// Writes JSON values, free or held to a schema, into a grammar.
///
/// JSON: as RFC 8259 with well-formed UTF-8. Blanks may stand after {, [, `,` and `:` and before }
/// and ], where each is nothing, one space, or one newline with up to 40 spaces and tabs; so no
/// answer can go on with blanks for ever. Numbers have at most 18 digits before the point, 18 after
/// it and 2 in the exponent.
///
/// JSON Schema: type (one or several), properties, required, additionalProperties, items, minItems,
/// maxItems, minLength, maxLength, pattern (see add_regex), format (date, time, date-time, uuid,
/// by their shape), enum, const, anyOf, oneOf, allOf of one schema, and $ref within the schema.
/// Titles, descriptions, defaults, examples and names that begin with `x-` say nothing about
/// values; any other keyword is refused by name. What is read always fulfils the schema, but for
/// oneOf, which is read as anyOf: the two are the same where no value fulfils two of its schemas.
/// Not all that fulfils it is read: members come in the order of `properties`, others after them,
/// and only where additionalProperties asks for them or no properties are listed; values of enum
/// and const are compact; without a type, the other keywords imply one.
class json_grammar {
 public:
  explicit json_grammar(byte_grammar& grammar, json_form form = json_form::plain);

  /// Reads blanks or nothing.
  void add_blanks(byte_grammar::node from, byte_grammar::node to);
  /// Reads an object with any members.
  void add_object(byte_grammar::node from, byte_grammar::node to);
  /// Reads a value that fulfils `schema`; `document` is where its $refs point into. Throws
  /// qwen38::error: unsupported for a keyword that is not served, by its name; invalid_argument for
  /// a broken schema or one that unrolls to too many states.
  void add_value(nlohmann::ordered_json const& schema, nlohmann::ordered_json const& document,
                 byte_grammar::node from, byte_grammar::node to);

 private:
  using node = byte_grammar::node;
  using json = nlohmann::ordered_json;

  struct document_rules;
  byte_grammar::rule const& any_value();
  byte_grammar::rule const& any_string();
  void add_members(node first, node next, byte_grammar::rule const& name,
                   byte_grammar::rule const& value, node end);
  void value(json const& schema, document_rules& document, bool direct, node from, node to);
  void one_type(std::string_view type, json const& schema, document_rules& document, node from,
                node to);
  void object(json const& schema, document_rules& document, node from, node to);
  void array(json const& schema, document_rules& document, node from, node to);
  void string(json const& schema, node from, node to);
  void number(bool integer, node from, node to);
  void reference(std::string const& pointer, document_rules& document, bool direct, node from,
                 node to);
  byte_grammar::rule rule_of(json const& schema, document_rules& document);

  byte_grammar& grammar_;
  json_form form_;
  byte_grammar::rule blanks_;
  std::optional<byte_grammar::rule> char_;
  std::optional<byte_grammar::rule> string_;
  std::optional<byte_grammar::rule> value_;
};

}  // namespace qwen38::text
