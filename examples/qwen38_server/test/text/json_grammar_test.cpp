// SPDX-License-Identifier: Apache-2.0
#include "text/json_grammar.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "grammar_support.hpp"
#include "schema_validator.hpp"
#include "support/error.hpp"
#include "text/answer_grammar.hpp"
#include "text/regex_grammar.hpp"

namespace qwen38::text {
namespace {

using testing::reader;
using json = nlohmann::ordered_json;

reader object_reader() {
  return reader(make_json_grammar(nullptr, false));
}

reader schema_reader(std::string const& schema) {
  json const parsed = json::parse(schema);
  return reader(make_json_grammar(&parsed, false));
}

std::string refused(std::string const& schema) {
  json const parsed = json::parse(schema);
  try {
    static_cast<void>(make_json_grammar(&parsed, false));
  } catch (error const& what) {
    return what.what();
  }
  return "";
}

TEST(json_grammar, reads_objects_and_nothing_else) {
  auto any = object_reader();
  for (char const* const text :
       {"{}", R"({"a":1})", R"({"a": -1.5e+3, "b": [true, false, null, "x"], "c": {"d": {}}})",
        "{\n  \"a\": 0,\n  \"b\": [\n    1,\n    2\n  ]\n}",
        R"({"é\n\"\\\/\u00e9\ud83d\ude00":"😀"})", R"({"a":[]})", R"({"a":[[[]]]})", "{ }"}) {
    ASSERT_TRUE(json::accept(text)) << text;
    EXPECT_TRUE(any.reads(text)) << text;
  }
  for (char const* const text : {"",
                                 "[]",
                                 "1",
                                 "{",
                                 R"({"a":1,})",
                                 R"({"a"})",
                                 R"({a:1})",
                                 R"({"a":01})",
                                 R"({"a":1.})",
                                 R"({"a":.5})",
                                 R"({"a":+1})",
                                 R"({"a":tru})",
                                 R"({"a":'x'})",
                                 "{\"a\":\"\n\"}",
                                 R"({"a":"\x"})",
                                 R"({"a":"\ud83d"})",
                                 R"({"a":"\ude00"})",
                                 R"({"a":"\ud83d\u0041"})",
                                 R"({"a":"\ud83d\ud83d"})",
                                 R"({"a":[1,]})",
                                 "{} ",
                                 "{}{}",
                                 " {}",
                                 "{\"a\":\"\xC0\x80\"}",
                                 "{\"a\":\"\xED\xA0\x80\"}",
                                 "{\"a\":\"\xF4\x90\x80\x80\"}",
                                 "{\"a\":\"\xE2\x82\"}",
                                 "{\"a\":\"\x80\"}"}) {
    EXPECT_FALSE(any.reads(text)) << text;
  }
}

// A model that likes blanks must come to an end.
TEST(json_grammar, blanks_are_bounded) {
  auto any = object_reader();
  EXPECT_TRUE(any.begins("{\n" + std::string(40, ' ')));
  EXPECT_FALSE(any.begins("{\n" + std::string(41, ' ')));
  EXPECT_FALSE(any.begins("{  "));
  EXPECT_FALSE(any.begins("{\n\n"));
  EXPECT_FALSE(any.begins("{\"a\" "));
  EXPECT_FALSE(any.begins("{\"a\":" + std::string(19, '1')));
  EXPECT_FALSE(any.begins("{\"a\":1e100"));
}

TEST(json_grammar, members_come_in_order_and_the_required_ones_at_least) {
  auto record =
      schema_reader(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},
      "c":{"type":"boolean"}},"required":["b"],"additionalProperties":false})");
  for (char const* const text : {R"({"a":1,"b":"x","c":true})", R"({"b":"x"})",
                                 R"({"a": 1, "b": "x"})", R"({"b":"","c":false})"}) {
    EXPECT_TRUE(record.reads(text)) << text;
  }
  for (char const* const text : {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","b":"x"})",
                                 R"({"b":"x","d":1})", R"({,"b":"x"})", R"({"a":1.5,"b":"x"})"}) {
    EXPECT_FALSE(record.reads(text)) << text;
  }
}

TEST(json_grammar, other_members_come_last_and_never_under_a_name_of_the_schema) {
  auto open = schema_reader(R"({"properties":{"ab":{"type":"integer"},"é":{"type":"integer"}},
      "additionalProperties":{"type":"boolean"}})");
  for (char const* const text : {"{}", R"({"ab":1,"abc":true})", R"({"a":true,"":false})",
                                 R"({"é":2,"è":true})", R"({"b":true,"éé":false,"日本":true})"}) {
    EXPECT_TRUE(open.reads(text)) << text;
  }
  for (char const* const text : {R"({"ab":true})", R"({"abc":1})", R"({"abc":true,"ab":1})",
                                 R"({"é":true})", R"({"\u0061b":true})", "{\"\xC3\":true}"}) {
    EXPECT_FALSE(open.reads(text)) << text;
  }
  EXPECT_TRUE(schema_reader(R"({"type":"object"})").reads(R"({"x":[1]})"));
  EXPECT_FALSE(schema_reader(R"({"properties":{"a":{}}})").reads(R"({"x":1})"));
  EXPECT_TRUE(
      schema_reader(R"({"properties":{"a":{}},"additionalProperties":true})").reads(R"({"x":1})"));
}

TEST(json_grammar, counts_items_and_characters) {
  for (int least = 0; least <= 3; ++least) {
    for (int most = least; most <= 4; ++most) {
      auto const bounds = [&](char const* what) {
        return std::string("\"min") + what + "\":" + std::to_string(least) + ",\"max" + what +
               "\":" + std::to_string(most);
      };
      auto list = schema_reader("{\"items\":{\"type\":\"integer\"}," + bounds("Items") + "}");
      auto text = schema_reader("{\"type\":\"string\"," + bounds("Length") + "}");
      std::string items;
      std::string chars;
      for (int count = 0; count <= 6; ++count) {
        bool const fits = least <= count && count <= most;
        EXPECT_EQ(list.reads('[' + items + ']'), fits) << least << ' ' << most << ' ' << items;
        EXPECT_EQ(text.reads('"' + chars + '"'), fits) << least << ' ' << most << ' ' << chars;
        items += items.empty() ? "1" : ", 2";
        chars += count % 3 == 0 ? "é" : count % 3 == 1 ? "\\n" : "\\ud83d\\ude00";
      }
    }
  }
  EXPECT_TRUE(schema_reader(R"({"type":"array","minItems":2})").reads("[1,2,3]"));
  EXPECT_FALSE(schema_reader(R"({"type":"array","minItems":2})").reads("[1]"));
  EXPECT_TRUE(schema_reader(R"({"type":"string","minLength":2})").reads("\"abc\""));
  EXPECT_FALSE(schema_reader(R"({"type":"string","minLength":2})").reads("\"a\""));
}

TEST(json_grammar, follows_references_into_recursion) {
  auto tree =
      schema_reader(R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
      "value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
      "required":["value","next"],"additionalProperties":false}}})");
  EXPECT_TRUE(tree.reads(R"({"value":1,"next":{"value":2,"next":null}})"));
  EXPECT_FALSE(tree.reads(R"({"value":1,"next":{"value":2}})"));
  auto whole = schema_reader(R"({"type":"array","items":{"$ref":"#"}})");
  EXPECT_TRUE(whole.reads("[[],[[]]]"));
  EXPECT_FALSE(whole.reads("[1]"));
}

TEST(json_grammar, alternatives_constants_and_several_types) {
  auto mixed =
      schema_reader(R"({"anyOf":[{"type":["integer","null"]},{"enum":["a","b\"",[1,{"c":2}],true]},
      {"const":"x"},{"allOf":[{"type":"boolean"}]}]})");
  for (char const* const text :
       {"12", "null", "\"a\"", R"("b\"")", R"([1,{"c":2}])", "true", "false", "\"x\""})
    EXPECT_TRUE(mixed.reads(text)) << text;
  for (char const* const text : {"1.5", "\"c\"", "[1]", "\"\""})
    EXPECT_FALSE(mixed.reads(text)) << text;
  EXPECT_TRUE(schema_reader("true").reads(R"([1,{"a":null}])"));
  EXPECT_TRUE(schema_reader("{}").reads("3"));
  EXPECT_TRUE(schema_reader(R"({"type":"integer","enum":[1,"a"]})").reads("1"));
  EXPECT_FALSE(schema_reader(R"({"type":"integer","enum":[1,"a"]})").reads("\"a\""));
}

TEST(json_grammar, formats) {
  auto const format = [](std::string const& name) {
    return schema_reader("{\"type\":\"string\",\"format\":\"" + name + "\"}");
  };
  EXPECT_TRUE(format("date").reads("\"2024-12-31\""));
  EXPECT_FALSE(format("date").reads("\"2024-13-31\""));
  EXPECT_TRUE(format("time").reads("\"23:59:59Z\""));
  EXPECT_TRUE(format("date-time").reads("\"2024-02-29T10:00:00.5+01:00\""));
  EXPECT_FALSE(format("date-time").reads("\"2024-02-29 10:00:00\""));
  EXPECT_TRUE(format("uuid").reads("\"123e4567-e89b-12d3-a456-426614174000\""));
}

TEST(json_grammar, refuses_each_keyword_that_it_does_not_serve_by_name) {
  for (std::string const word :
       {"minimum", "maximum", "exclusiveMinimum", "multipleOf", "uniqueItems", "contains",
        "prefixItems", "patternProperties", "propertyNames", "minProperties", "maxProperties", "if",
        "then", "not", "dependentRequired", "unevaluatedProperties", "nullable", "contentEncoding",
        "typo"}) {
    for (std::string const& schema :
         {"{\"" + word + "\":1}", "{\"properties\":{\"a\":{\"items\":{\"" + word + "\":1}}}}",
          "{\"anyOf\":[{\"type\":\"null\"},{\"" + word + "\":1}]}"}) {
      EXPECT_EQ(refused(schema), "the keyword `" + word + "` is not supported.") << schema;
    }
  }
  for (
      auto const& [schema, says] : std::vector<std::pair<std::string, std::string>>{
          {R"({"a very odd one":1})", "with this name"},
          {R"({"allOf":[{},{}]})", "allOf"},
          {R"({"$ref":"#/nowhere"})", "$ref"},
          {R"({"$ref":"http://x/y"})", "$ref"},
          {R"({"$ref":"#"})", "$ref"},
          {R"({"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}}})",
           "$ref"},
          {R"({"type":"thing"})", "type"},
          {R"({"type":[]})", "type"},
          {R"({"type":3})", "type"},
          {R"({"required":["a"]})", "required"},
          {R"({"properties":[]})", "properties"},
          {R"({"enum":[]})", "enum"},
          {R"({"type":"string","enum":[1]})", "enum"},
          {R"({"type":"array","minItems":-1})", "minItems"},
          {R"({"type":"array","minItems":3,"maxItems":2})", "maxItems"},
          {R"({"type":"string","maxLength":1e9})", "maxLength"},
          {R"({"type":"string","pattern":"a","maxLength":3})", "pattern"},
          {R"({"type":"string","format":"email"})", "format"},
          {R"x({"type":"string","pattern":"(?=a)"})x", "pattern"},
          {R"({"anyOf":[{}],"minItems":1})", "minItems"},
          {R"({"minItems":1,"minLength":1})", "type"},
          {"false", "false"},
          {"[]", "schema"},
          {R"({"type":"array","minItems":90000,"items":{"type":"array","minItems":90000,"items":{"type":"string","maxLength":90000}}})",
           "states"}}) {
    auto const sentence = refused(schema);
    EXPECT_NE(sentence.find(says), std::string::npos) << schema << " -> " << sentence;
    EXPECT_TRUE(sentence.ends_with('.')) << sentence;
  }
}

TEST(json_grammar, annotations_say_nothing) {
  EXPECT_EQ(
      refused(R"({"title":"t","description":"d","default":1,"examples":[1],"$schema":"s","$id":"i",
      "$comment":"c","deprecated":true,"readOnly":false,"x-order":3,"type":"integer"})"),
      "");
}

std::vector<std::string> const schemas = {
    R"({"type":"object"})",
    R"({"type":"object","properties":{"id":{"type":"string","maxLength":5},"n":{"type":["integer","null"]},
        "tags":{"type":"array","items":{"enum":["a","b"]},"minItems":1,"maxItems":3}},"required":["id","tags"],
        "additionalProperties":false})",
    R"({"type":"array","items":{"type":"object","properties":{"k":{"type":"number"}},
        "additionalProperties":{"type":"boolean"}},"maxItems":3})",
    R"({"$ref":"#/$defs/list","$defs":{"list":{"anyOf":[{"type":"null"},{"type":"object","properties":
        {"head":{"type":"string","pattern":"^[a-c]{1,3}$"},"tail":{"$ref":"#/$defs/list"}},"required":["head","tail"]}]}}})",
    R"({"oneOf":[{"const":{"a":[1,"<"]}},{"type":"string","minLength":2,"maxLength":4},{"type":"integer"}]})",
    R"({"type":"string","pattern":"^x+y?$|^z"})",
};

// Whatever a grammar reads is JSON that fulfils its schema, whichever way through it is taken.
TEST(json_grammar, every_text_that_it_reads_fulfils_the_schema) {
  for (std::string const& schema : schemas) {
    json const parsed = json::parse(schema);
    for (bool const tags : {false, true}) {
      byte_grammar grammar;
      json_grammar(grammar, tags ? json_form::inside_tags : json_form::plain)
          .add_value(parsed, parsed, grammar.root().start, grammar.root().end);
      reader all(std::move(grammar));
      int ended = 0;
      for (std::uint64_t seed = 0; seed < 150; ++seed) {
        std::mt19937_64 random(seed);
        auto const text = all.random_text(random, 400);
        if (!text) continue;
        ++ended;
        ASSERT_TRUE(json::accept(*text)) << schema << " seed " << seed << ": " << *text;
        ASSERT_TRUE(testing::fulfils(json::parse(*text), parsed, parsed))
            << schema << " seed " << seed << ": " << *text;
        if (tags) {
          ASSERT_EQ(text->find('<'), std::string::npos) << *text;
        }
      }
      EXPECT_GT(ended, 40) << schema;
    }
  }
}

TEST(answer_grammar, json_comes_behind_the_reasoning_and_at_most_two_newlines) {
  reader answer(make_json_grammar(nullptr, true));
  for (char const* const text :
       {"</think>{}", "so </thin </think>\n\n{}", "a {\"b\" \xFF</think>\n{\"a\":1}"})
    EXPECT_TRUE(answer.reads(text)) << text;
  for (char const* const text :
       {"{}", "why", "why</think>", "why</think>\n\n\n{}", "why</think> {}",
        "why<tool_call></think>{}", "why</think>{}</think>"}) {
    EXPECT_FALSE(answer.reads(text)) << text;
  }
}

bool regex_reads(std::string const& pattern, std::string const& text) {
  byte_grammar grammar;
  add_regex(grammar, grammar.root().start, pattern, json_form::plain, grammar.root().end);
  return reader(std::move(grammar)).reads(text);
}

// Against the standard library's ECMAScript, on all short texts over a few characters.
TEST(regex_grammar, agrees_with_the_standard_library) {
  std::vector<std::string> texts = {""};
  for (std::size_t i = 0; i < texts.size() && texts[i].size() < 4; ++i) {
    for (char const c : std::string("ab1-")) texts.push_back(texts[i] + c);
  }
  for (std::string const pattern : {"a",
                                    "^a",
                                    "a$",
                                    "^a$",
                                    "^$",
                                    "",
                                    "^a*b+1?$",
                                    "^(a|b)*$",
                                    "^(?:ab|1){1,2}$",
                                    "a|^b$",
                                    "^[ab]{2}$",
                                    "^[^a]*$",
                                    "^[a-b1\\-]+$",
                                    "^\\d$",
                                    "^\\w+$",
                                    "^\\W$",
                                    "^a{2,}$",
                                    "^a{0}$",
                                    "^a{1,2}b$",
                                    "^.$",
                                    "^..?$",
                                    "^(a(b(1)?)?)?$",
                                    "^(a*)*b$",
                                    "^\\-+$",
                                    "^(|a)b$",
                                    "1.1",
                                    "^a\\S?$",
                                    "^[\\d-]+$"}) {
    std::regex const known(pattern);
    for (std::string const& text : texts) {
      ASSERT_EQ(regex_reads(pattern, text), std::regex_search(text, known))
          << pattern << " on '" << text << "'";
    }
  }
}

TEST(regex_grammar, reads_json_spellings_and_whole_characters) {
  EXPECT_TRUE(regex_reads("^\"$", "\\\""));
  EXPECT_TRUE(regex_reads("^\\\\$", "\\\\"));
  EXPECT_TRUE(regex_reads("^\\n$", "\\n"));
  EXPECT_TRUE(regex_reads("^.$", "é"));
  EXPECT_TRUE(regex_reads("^[^a]{2}$", "é😀"));
  EXPECT_TRUE(regex_reads("^é+$", "éé"));
  EXPECT_FALSE(regex_reads("^.$", "\""));
  EXPECT_FALSE(regex_reads("^.$", "\xC3"));
}

TEST(regex_grammar, says_what_it_does_not_serve_and_where) {
  auto const why = [](std::string const& pattern) -> std::string {
    try {
      static_cast<void>(regex_reads(pattern, ""));
    } catch (error const& what) {
      return what.what();
    }
    return "";
  };
  for (std::string const pattern : {"(?=a)", "(?<n>a)", "\\1", "\\b", "\\p{L}", "a*?", "a++", "a^b",
                                    "a$b", "(a$)", "[é]", "a{2000}", "\\u0041"}) {
    EXPECT_TRUE(why(pattern).starts_with("pattern: ") &&
                why(pattern).ends_with(" is not supported."))
        << pattern << ": " << why(pattern);
  }
  for (std::string const pattern :
       {"(", ")", "[", "[a", "*", "a**", "a{", "a{2,1}", "\\", "[b-a]", "a{x}"}) {
    EXPECT_TRUE(why(pattern).starts_with("pattern: ") && why(pattern).ends_with('.'))
        << pattern << ": " << why(pattern);
  }
}

}  // namespace
}  // namespace qwen38::text
