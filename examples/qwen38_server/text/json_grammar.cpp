// SPDX-License-Identifier: Apache-2.0
#include "text/json_grammar.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "text/json_schema.hpp"
#include "text/regex_grammar.hpp"

namespace qwen38::text {
namespace {

using node = byte_grammar::node;
using rule = byte_grammar::rule;
using json = nlohmann::ordered_json;

constexpr int most_blanks = 40;  // behind a newline
constexpr int most_digits = 18;
constexpr int most_exponent_digits = 2;

/// JSON text, compact, with its strings spelled in this form. Outside of strings JSON has no `<`.
std::string compact(json const& value, json_form form) {
  std::string out = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (form == json_form::plain) return out;
  for (auto at = out.find('<'); at != std::string::npos; at = out.find('<', at)) {
    out.replace(at, 1, "\\u003c");
  }
  return out;
}

}  // namespace

/// The rules of one document's references, and which leads to which before a byte is read.
struct json_grammar::document_rules {
  json const& root;
  std::map<std::string, rule> made;
  std::map<std::string, std::set<std::string>> leads_to;
  std::string inside;  // the reference whose schema is being read

  [[nodiscard]] bool leads_back(std::string const& from, std::string const& wanted,
                                std::set<std::string>& seen) const {
    auto const found = leads_to.find(from);
    if (found == leads_to.end()) return false;
    for (std::string const& next : found->second) {
      if (next == wanted) return true;
      if (seen.insert(next).second && leads_back(next, wanted, seen)) return true;
    }
    return false;
  }
};

json_grammar::json_grammar(byte_grammar& grammar, json_form form)
    : grammar_(grammar), form_(form), blanks_(grammar.add_rule()) {
  grammar_.add_empty(blanks_.start, blanks_.end);
  grammar_.add_byte(blanks_.start, ' ', blanks_.end);
  node at = grammar_.literal(blanks_.start, "\n");
  for (int i = 0; i < most_blanks; ++i) {
    grammar_.add_empty(at, blanks_.end);
    node const next = i + 1 < most_blanks ? grammar_.add_node() : blanks_.end;
    grammar_.add_any_of(at, " \t", next);
    at = next;
  }
}

void json_grammar::add_blanks(node from, node to) {
  grammar_.add_call(from, blanks_, to);
}

rule const& json_grammar::any_string() {
  if (string_) return *string_;
  char_ = grammar_.add_rule();
  add_json_char(grammar_, char_->start, form_, char_->end);
  string_ = grammar_.add_rule();
  node const inside = grammar_.literal(string_->start, "\"");
  add_json_char(grammar_, inside, form_, inside);
  grammar_.add_byte(inside, '"', string_->end);
  return *string_;
}

rule const& json_grammar::any_value() {
  if (value_) return *value_;
  value_ = grammar_.add_rule();
  auto const [from, to] = *value_;
  any_string();
  for (std::string_view const word : {"true", "false", "null"})
    grammar_.add_literal(from, word, to);
  number(false, from, to);
  grammar_.add_call(from, *string_, to);
  node const open = grammar_.literal(from, "[");
  node const first = grammar_.add_node();
  node const next = grammar_.add_node();
  add_blanks(open, first);
  grammar_.add_byte(first, ']', to);
  node const element = grammar_.add_node();
  grammar_.add_empty(first, element);
  grammar_.add_call(element, *value_, next);
  add_blanks(grammar_.literal(next, ","), element);
  node const end = grammar_.add_node();
  add_blanks(next, end);
  grammar_.add_byte(end, ']', to);
  add_object(from, to);
  return *value_;
}

/// Members: at `first` none has been read, at `next` one has just been.
void json_grammar::add_members(node first, node next, rule const& name, rule const& value,
                               node end) {
  node const member = grammar_.add_node();
  grammar_.add_empty(first, member);
  add_blanks(grammar_.literal(next, ","), member);
  node const colon = grammar_.add_node();
  grammar_.add_call(member, name, colon);
  node const before = grammar_.add_node();
  add_blanks(grammar_.literal(colon, ":"), before);
  grammar_.add_call(before, value, next);
  grammar_.add_empty(next, end);
}

void json_grammar::add_object(node from, node to) {
  rule const value = any_value();
  node const first = grammar_.add_node();
  node const next = grammar_.add_node();
  node const end = grammar_.add_node();
  node const closing = grammar_.add_node();
  add_blanks(grammar_.literal(from, "{"), first);
  add_members(first, next, any_string(), value, end);
  grammar_.add_empty(first, closing);
  add_blanks(end, closing);
  grammar_.add_byte(closing, '}', to);
}

void json_grammar::add_value(json const& schema, json const& document, node from, node to) {
  document_rules rules{document, {}, {}, "#"};
  value(schema, rules, true, from, to);
  for (auto const& [pointer, direct] : rules.leads_to) {
    std::set<std::string> seen;
    if (rules.leads_back(pointer, pointer, seen)) {
      refuse_schema("$ref: expected no schema that is itself again.");
    }
  }
}

rule json_grammar::rule_of(json const& schema, document_rules& document) {
  rule const made = grammar_.add_rule();
  value(schema, document, false, made.start, made.end);
  return made;
}

/// direct: nothing of the schema of document.inside has been read before.
void json_grammar::value(json const& schema, document_rules& document, bool direct, node from,
                         node to) {
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) refuse_schema("expected a schema that some value fulfils, got false.");
    grammar_.add_call(from, any_value(), to);
    return;
  }
  if (!schema.is_object()) refuse_schema("expected a schema: an object or true.");
  check_keywords(schema);
  auto const word = whole_word(schema);
  if (word == "$ref") {
    reference(reference_of(schema), document, direct, from, to);
  } else if (word == "allOf") {
    value(only_of_all(schema), document, direct, from, to);
  } else if (word == "anyOf" || word == "oneOf") {
    for (json const& one : list_of(schema, word)) value(one, document, direct, from, to);
  } else if (word == "enum" || word == "const") {
    bool const several = word == "enum";
    auto const types = types_of(schema);
    bool some = false;
    auto const add = [&](json const& one) {
      auto const is = [&](std::string const& type) { return fits_type(one, type); };
      if (!types.empty() && std::ranges::none_of(types, is)) return;
      grammar_.add_literal(from, compact(one, form_), to);
      some = true;
    };
    if (several) {
      for (json const& one : list_of(schema, word)) add(one);
    } else {
      add(schema.at("const"));
    }
    if (!some) refuse_schema(std::string(word) + ": expected a value of the type given.");
  } else {
    auto const types = types_of(schema);
    if (types.empty()) grammar_.add_call(from, any_value(), to);
    for (std::string const& type : types) one_type(type, schema, document, from, to);
  }
}

void json_grammar::one_type(std::string_view type, json const& schema, document_rules& document,
                            node from, node to) {
  if (type == "object") return object(schema, document, from, to);
  if (type == "array") return array(schema, document, from, to);
  if (type == "string") return string(schema, from, to);
  if (type == "boolean") {
    grammar_.add_literal(from, "true", to);
    grammar_.add_literal(from, "false", to);
  } else if (type == "null") {
    grammar_.add_literal(from, "null", to);
  } else {
    number(type == "integer", from, to);
  }
}

void json_grammar::reference(std::string const& pointer, document_rules& document, bool direct,
                             node from, node to) {
  if (direct) document.leads_to[document.inside].insert(pointer);
  auto const known = document.made.find(pointer);
  if (known != document.made.end()) {
    grammar_.add_call(from, known->second, to);
    return;
  }
  json const& schema = schema_at(pointer, document.root);
  rule const made = grammar_.add_rule();
  document.made[pointer] = made;
  std::string outer = pointer;
  outer.swap(document.inside);
  value(schema, document, true, made.start, made.end);
  outer.swap(document.inside);
  grammar_.add_call(from, made, to);
}

void json_grammar::object(json const& schema, document_rules& document, node from, node to) {
  static json const none = json::object();
  auto const* const listed = find_keyword(schema, "properties");
  if (listed != nullptr && !listed->is_object()) refuse_schema("properties: expected an object.");
  json const& properties = listed != nullptr ? *listed : none;
  std::set<std::string> required;
  if (auto const* const list = find_keyword(schema, "required")) {
    if (!list->is_array()) refuse_schema("required: expected an array of names.");
    for (json const& name : *list) {
      if (!name.is_string() || !properties.contains(name.get_ref<std::string const&>())) {
        refuse_schema("required: expected names that are in properties.");
      }
      required.insert(name.get<std::string>());
    }
  }
  auto const* const given = find_keyword(schema, "additionalProperties");
  bool const others =
      given != nullptr ? !(given->is_boolean() && !given->get<bool>()) : properties.empty();

  node first = grammar_.add_node();  // no member has been read
  node next = grammar_.add_node();   // one has just been
  add_blanks(grammar_.literal(from, "{"), first);
  for (auto const& [name, of] : properties.items()) {
    node const member = grammar_.add_node();
    node const read = grammar_.add_node();
    grammar_.add_empty(first, member);
    add_blanks(grammar_.literal(next, ","), member);
    node const before = grammar_.add_node();
    add_blanks(grammar_.literal(member, quoted_json(name, form_) + ':'), before);
    value(of, document, false, before, read);
    node const skipped = grammar_.add_node();
    if (!required.contains(name)) {
      grammar_.add_empty(first, skipped);
      grammar_.add_empty(next, read);
    }
    first = skipped;
    next = read;
  }
  node const end = grammar_.add_node();
  node const closing = grammar_.add_node();
  grammar_.add_empty(first, closing);
  if (others) {
    rule const name = grammar_.add_rule();
    std::vector<std::string> taken;
    for (auto const& member : properties.items()) taken.push_back(member.key());
    add_other_name(grammar_, name.start, taken, form_, name.end);
    bool const any = given == nullptr || given->is_boolean();
    add_members(first, next, name, any ? any_value() : rule_of(*given, document), end);
  } else {
    grammar_.add_empty(next, end);
  }
  add_blanks(end, closing);
  grammar_.add_byte(closing, '}', to);
}

void json_grammar::array(json const& schema, document_rules& document, node from, node to) {
  auto const [least, most] = read_counts(schema, "minItems", "maxItems");
  auto const* const items = find_keyword(schema, "items");
  rule const element = items != nullptr ? rule_of(*items, document) : any_value();
  node const closing = grammar_.add_node();
  node at = grammar_.add_node();
  add_blanks(grammar_.literal(from, "["), at);
  node const end = grammar_.add_node();
  add_blanks(end, closing);
  grammar_.add_byte(closing, ']', to);
  std::int64_t const copies = std::max<std::int64_t>(most >= 0 ? most : least, 1);
  if (least == 0) grammar_.add_empty(at, closing);
  if (most == 0) return;
  for (std::int64_t i = 1; i <= copies; ++i) {
    node const read = grammar_.add_node();
    grammar_.add_call(at, element, read);
    if (i >= least) grammar_.add_empty(read, end);
    if (i < copies) {
      at = grammar_.add_node();
      add_blanks(grammar_.literal(read, ","), at);
    } else if (most < 0) {
      add_blanks(grammar_.literal(read, ","), at);
    }
  }
}

void json_grammar::string(json const& schema, node from, node to) {
  auto const [least, most] = read_counts(schema, "minLength", "maxLength");
  auto const* const pattern = find_keyword(schema, "pattern");
  auto const* const format = find_keyword(schema, "format");
  bool const counted = schema.contains("minLength") || schema.contains("maxLength");
  if (pattern != nullptr && format != nullptr) refuse_together("pattern", "format");
  if (counted && pattern != nullptr) refuse_together("pattern", "minLength or maxLength");
  if (counted && format != nullptr) refuse_together("format", "minLength or maxLength");
  if (pattern != nullptr || format != nullptr) {
    json const& given = pattern != nullptr ? *pattern : *format;
    if (!given.is_string()) {
      refuse_schema(std::string(pattern != nullptr ? "pattern" : "format") +
                    ": expected a string.");
    }
    auto const& text = given.get_ref<std::string const&>();
    node const inside = grammar_.literal(from, "\"");
    node const end = grammar_.add_node();
    add_regex(grammar_, inside, pattern != nullptr ? text : format_pattern(text), form_, end);
    grammar_.add_byte(end, '"', to);
    return;
  }
  rule const any = any_string();
  if (least == 0 && most < 0) {
    grammar_.add_call(from, any, to);
    return;
  }
  node at = grammar_.literal(from, "\"");
  for (std::int64_t i = 0; i < std::max(least, most); ++i) {
    if (i >= least) grammar_.add_byte(at, '"', to);
    node const read = grammar_.add_node();
    grammar_.add_call(at, *char_, read);
    at = read;
  }
  if (most < 0) grammar_.add_call(at, *char_, at);
  grammar_.add_byte(at, '"', to);
}

void json_grammar::number(bool integer, node from, node to) {
  auto const digits = [&](node at, int least, int most, node end) {
    for (int i = 0; i < most; ++i) {
      if (i >= least) grammar_.add_empty(at, end);
      node const next = i + 1 < most ? grammar_.add_node() : end;
      grammar_.add_bytes(at, '0', '9', next);
      at = next;
    }
    if (most == 0) grammar_.add_empty(at, end);
  };
  node const start = grammar_.add_node();  // behind the sign
  grammar_.add_empty(from, start);
  grammar_.add_byte(from, '-', start);
  node const whole = grammar_.add_node();
  grammar_.add_byte(start, '0', whole);
  node const more = grammar_.add_node();
  grammar_.add_bytes(start, '1', '9', more);
  digits(more, 0, most_digits - 1, whole);
  grammar_.add_empty(whole, to);
  if (integer) return;
  node const fraction = grammar_.add_node();
  digits(grammar_.literal(whole, "."), 1, most_digits, fraction);
  grammar_.add_empty(fraction, to);
  for (node const at : {whole, fraction}) {
    node const exponent = grammar_.add_node();
    grammar_.add_any_of(at, "eE", exponent);
    node const signed_one = grammar_.add_node();
    grammar_.add_empty(exponent, signed_one);
    grammar_.add_any_of(exponent, "+-", signed_one);
    digits(signed_one, 1, most_exponent_digits, to);
  }
}

}  // namespace qwen38::text
