// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_parser.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "grammar_support.hpp"
#include "schema_validator.hpp"
#include "stream_support.hpp"
#include "text/answer_grammar.hpp"
#include "tool_support.hpp"

namespace qwen38::text {
namespace {

using testing::known_tools;
using testing::parsed;
using json = nlohmann::ordered_json;

std::string call(std::string const& name, std::string const& parameters) {
  return "<tool_call>\n<function=" + name + ">\n" + parameters + "</function>\n</tool_call>";
}
std::string parameter(std::string const& key, std::string const& value) {
  return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
}

TEST(tool_calls, text_and_calls_of_every_kind) {
  EXPECT_EQ(parsed(""), "");
  EXPECT_EQ(parsed("Just text, a < b, <b>bold</b> \n"), "text Just text, a < b, <b>bold</b> \n|");
  EXPECT_EQ(parsed(call("weather", parameter("city", "Paris"))),
            R"(call 0 weather|args 0 {"city": "Paris"}|)");
  EXPECT_EQ(parsed(call("bash", "")), "call 0 bash|args 0 {}|");
  EXPECT_EQ(parsed("I look.\n\n" +
                   call("weather", parameter("city", "Paris") + parameter("days", "3")) + "\n"),
            R"(text I look.|call 0 weather|args 0 {"city": "Paris", "days": 3}|)");
}

// W25, T9, T15: two calls, also of one function, keep their arguments apart and have indices of
// their own.
TEST(tool_calls, w25_t9_t15_parallel_calls_stay_apart) {
  EXPECT_EQ(parsed(call("bash", parameter("command", "ls")) + "\n" +
                   call("bash", parameter("command", "pwd"))),
            R"(call 0 bash|args 0 {"command": "ls"}|call 1 bash|args 1 {"command": "pwd"}|)");
  EXPECT_EQ(
      parsed(call("typed", parameter("i", "1")) + call("bash", "") + " between " +
             call("typed", "")),
      R"(call 0 typed|args 0 {"i": 1}|call 1 bash|args 1 {}|text  between|call 2 typed|args 2 {}|)");
}

// T6: nothing of a call without a function is lost, and the next call is one.
TEST(tool_calls, t6_a_malformed_call_is_text_and_the_next_one_a_call) {
  std::string const bad =
      "<tool_call>\n<function=get_weather\n<parameter=city>Dallas</parameter>\n</function>\n</"
      "tool_call>";
  EXPECT_EQ(parsed(bad + "\n" + call("bash", parameter("command", "ls"))),
            "text " + bad + R"(|call 0 bash|args 0 {"command": "ls"}|)");
  EXPECT_EQ(parsed(bad), "text " + bad + "|");
  EXPECT_EQ(parsed("<tool_call>{\"name\":\"bash\"}</tool_call>"),
            "text <tool_call>{\"name\":\"bash\"}</tool_call>|");
  EXPECT_EQ(parsed("<tool_call>\n<function=>\n"), "text <tool_call>\n<function=>\n|");
  EXPECT_EQ(parsed("a <tool_call"), "text a <tool_call|");
  EXPECT_EQ(parsed("a <tool_call>\n<func"), "text a <tool_call>\n<func|");
  EXPECT_EQ(parsed("<tool_call>\n<tool_call>\n<function=bash>\n</function>"),
            "text <tool_call>|call 0 bash|args 0 {}|");
}

// T17: a call that the model breaks off by itself is closed, so that its arguments are JSON.
TEST(tool_calls, t17_a_call_that_ends_early_is_closed) {
  EXPECT_EQ(parsed("<tool_call>\n<function=bash>\n<parameter=command>\nls"),
            R"(call 0 bash|args 0 {"command": "ls"}|)");
  EXPECT_EQ(parsed("<tool_call>\n<function=bash>\n<parameter=command>\nls\n</para"),
            R"(call 0 bash|args 0 {"command": "ls"}|)");
  EXPECT_EQ(parsed("<tool_call>\n<function=bash>\n"), R"(call 0 bash|args 0 {}|)");
  EXPECT_EQ(parsed("<tool_call>\n<function=typed>\n<parameter=i>\n4"),
            R"(call 0 typed|args 0 {"i": 4}|)");
}

// Cut off by the limit: half a call must not look like a whole one.
TEST(tool_calls, what_the_limit_cuts_off_stays_cut_off) {
  EXPECT_EQ(parsed("<tool_call>\n<function=bash>\n<parameter=command>\nrm -rf /tm", false),
            R"(call 0 bash|args 0 {"command": "rm -rf /tm|)");
  EXPECT_EQ(parsed("<tool_call>\n<function=typed>\n<parameter=i>\n4", false),
            R"(call 0 typed|args 0 {"i": |)");
  EXPECT_EQ(parsed("<tool_call>\n<function=bash>\n", false), "call 0 bash|");
  EXPECT_EQ(parsed(call("bash", ""), false), "call 0 bash|args 0 {}|");
  for (auto const& [text, cut] : std::vector<std::pair<std::string, bool>>{
           {"<tool_call>\n<function=bash>\n", true}, {call("bash", ""), false}, {"x", false}}) {
    tool_call_parser one(known_tools());
    std::vector<tool_event> events;
    one.push(text, events);
    one.finish(false, events);
    EXPECT_EQ(one.is_cut(), cut) << text;
  }
}

TEST(tool_calls, tags_that_are_missing) {
  EXPECT_EQ(parsed("<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>"),
            R"(call 0 bash|args 0 {"command": "ls"}|)");
  EXPECT_EQ(parsed("<function=unknown>\n</function>"), "text <function=unknown>\n</function>|");
  EXPECT_EQ(
      parsed(call("weather", "<parameter=city>\nDallas\n<parameter=days>\n2\n</parameter>\n")),
      R"(call 0 weather|args 0 {"city": "Dallas", "days": 2}|)");
  EXPECT_EQ(parsed(call("weather", "<parameter=city>\nDallas\n")),
            R"(call 0 weather|args 0 {"city": "Dallas"}|)");
  EXPECT_EQ(
      parsed(
          "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</tool_call>done"),
      R"(call 0 bash|args 0 {"command": "ls"}|text done|)");
  EXPECT_EQ(
      parsed(
          "<tool_call>\n<function=bash>\n</function>\n<function=typed>\n</function>\n</tool_call>"),
      "call 0 bash|args 0 {}|call 1 typed|args 1 {}|");
  EXPECT_EQ(
      parsed(
          "<tool_call><function=weather><parameter=city>Paris</parameter></function></tool_call>"),
      R"(call 0 weather|args 0 {"city": "Paris"}|)");
  EXPECT_EQ(parsed(call("not_listed", parameter("x", "text"))),
            R"(call 0 not_listed|args 0 {"x": "text"}|)");
}

TEST(tool_calls, what_fits_nowhere_is_text) {
  EXPECT_EQ(parsed("<tool_call>\n<function=bash>\nhello\n</function>\n</tool_call>"),
            "call 0 bash|text hello|args 0 {}|");
  EXPECT_EQ(
      parsed(call("weather", parameter("city", "a") + parameter("city", "b"))),
      "call 0 weather|args 0 {\"city\": \"a\"|text <parameter=city>\nb\n</parameter>|args 0 }|");
}

TEST(tool_calls, values_keep_all_but_one_newline_at_each_end) {
  EXPECT_EQ(parsed(call("bash", parameter("command", "\n  a\n\nb  \n"))),
            R"(call 0 bash|args 0 {"command": "\n  a\n\nb  \n"}|)");
  EXPECT_EQ(parsed(call("bash", parameter("command", ""))),
            R"(call 0 bash|args 0 {"command": ""}|)");
  EXPECT_EQ(parsed(call("bash", "<parameter=command>\n</parameter>\n")),
            R"(call 0 bash|args 0 {"command": ""}|)");
  EXPECT_EQ(
      parsed(
          call("bash", parameter("command", "a \"b\" \\ \t</div> <tool_call> </function> \x01 é"))),
      R"(call 0 bash|args 0 {"command": "a \"b\" \\ \t</div> <tool_call> </function> \u0001 é"}|)");
}

// T10, T11: types come from the schema, wherever in it they stand; what does not parse stays text.
TEST(tool_calls, t10_t11_values_have_the_types_of_the_schema) {
  auto const value = [](std::string const& key, std::string const& text) {
    auto const events = testing::parse_pieces(
        known_tools(), std::vector<std::string_view>{call("typed", parameter(key, text))});
    auto const arguments = json::parse(events.at(1).text);
    return arguments.at(key).dump();
  };
  EXPECT_EQ(value("i", "42"), "42");
  EXPECT_EQ(value("i", " -7 "), "-7");
  EXPECT_EQ(value("i", "3.5"), "\"3.5\"");
  EXPECT_EQ(value("i", "forty"), "\"forty\"");
  EXPECT_EQ(value("n", "1e3"), "1000.0");
  EXPECT_EQ(value("b", "true"), "true");
  EXPECT_EQ(value("b", "False"), "false");
  EXPECT_EQ(value("b", "yes"), "\"yes\"");
  EXPECT_EQ(value("z", "None"), "null");
  EXPECT_EQ(value("o", "{\"a\": [1, {}]}"), R"({"a":[1,{}]})");
  EXPECT_EQ(value("o", "{'a': 1}"), "\"{'a': 1}\"");
  EXPECT_EQ(value("o", "[1]"), "\"[1]\"");
  EXPECT_EQ(value("l", R"([{"question":"x","multiSelect":false,"answer":null}])"),
            R"([{"question":"x","multiSelect":false,"answer":null}])");
  EXPECT_EQ(value("s", "42"), "\"42\"");
  EXPECT_EQ(value("s", "null"), "\"null\"");
  EXPECT_EQ(value("e", "true"), "\"true\"");
  EXPECT_EQ(value("opt", "null"), "null");
  EXPECT_EQ(value("opt", "5"), "\"5\"");
  EXPECT_EQ(value("any", "5"), "5");
  EXPECT_EQ(value("any", "\"quoted\""), R"("\"quoted\"")");
  EXPECT_EQ(value("any", std::string(3000, '[')), '"' + std::string(3000, '[') + '"');
}

TEST(tool_types, are_found_wherever_the_schema_hides_them) {
  auto const types = [](std::string const& schema) {
    json const document =
        json::parse(R"({"$defs":{"n":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"}}})");
    return types_in_schema(json::parse(schema), document);
  };
  json_types const integer = types(R"({"type":"integer"})");
  EXPECT_EQ(parameter_json("5", integer), "5");
  EXPECT_EQ(types(R"({"$ref":"#/$defs/n"})"), integer);
  EXPECT_EQ(types(R"({"allOf":[{"$ref":"#/$defs/n"}],"description":"d"})"), integer);
  EXPECT_EQ(types(R"({"const":4})"), integer);
  json_types maybe = integer;
  maybe.null = true;
  for (char const* const schema :
       {R"({"type":["integer","null"]})", R"({"anyOf":[{"type":"integer"},{"type":"null"}]})",
        R"({"oneOf":[{"$ref":"#/$defs/n"},{"type":"null"}]})", R"({"enum":[1,null]})",
        R"({"anyOf":[{"anyOf":[{"$ref":"#/$defs/n"}]},{"const":null}]})"}) {
    EXPECT_EQ(types(schema), maybe) << schema;
  }
  EXPECT_TRUE(types(R"({"enum":["a"]})").only_string());
  for (char const* const schema :
       {"{}", "true", R"({"$ref":"#/$defs/loop"})", R"({"$ref":"http://x"})",
        R"({"type":"string","enum":[1]})", R"({"type":7})"}) {
    EXPECT_TRUE(types(schema).object && types(schema).string) << schema;
  }
}

// T13: a string flows as it is written; only what may be the beginning of its end is held.
TEST(tool_calls, t13_strings_flow_while_they_are_written) {
  tool_call_parser parser(known_tools());
  std::vector<tool_event> events;
  parser.push("<tool_call>\n<function=write_file>\n<parameter=content>\n", events);
  EXPECT_EQ(testing::shown(events), R"(call 0 write_file|args 0 {"content": "|)");
  for (int i = 0; i < 1000; ++i) {
    events.clear();
    parser.push("line \"" + std::to_string(i) + "\"", events);
    ASSERT_EQ(testing::shown(events), "args 0 line \\\"" + std::to_string(i) + "\\\"|");
  }
  events.clear();
  parser.push("\n</para", events);
  EXPECT_TRUE(events.empty());
  parser.push("graph>", events);
  EXPECT_EQ(testing::shown(events), "args 0 \\n</paragraph>|");
}

std::vector<std::string> const& texts() {
  static std::vector<std::string> const all = [] {
    std::vector<std::string> out;
    std::ifstream file("corpus/tool_calls.jsonl");
    for (std::string line; std::getline(file, line);) out.push_back(json::parse(line).at("text"));
    return out;
  }();
  return all;
}

// T7, T14: however an answer is cut, its events are the same.
TEST(tool_calls, t7_t14_do_not_depend_on_the_cuts) {
  ASSERT_GE(texts().size(), 40U);
  for (std::string const& text : texts()) {
    for (bool const complete : {true, false}) {
      auto const whole =
          testing::parse_pieces(known_tools(), std::vector<std::string_view>{text}, complete);
      auto const check = [&](std::vector<std::string_view> const& pieces) {
        ASSERT_EQ(testing::parse_pieces(known_tools(), pieces, complete), whole)
            << "complete " << complete << ", cut after " << pieces[0].size() << " and "
            << pieces[1].size() << " bytes more: " << text;
      };
      if (text.size() <= 160) {
        testing::for_each_cut(text, check);
        continue;
      }
      std::string_view const view = text;
      for (std::size_t at = 0; at <= text.size(); ++at)
        check({view.substr(0, at), view.substr(at)});
      std::vector<std::string_view> bytes;
      for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(view.substr(i, 1));
      check(bytes);
    }
  }
}

// Nothing of what is written is lost: every letter of an answer is in some event or part of a tag.
TEST(tool_calls, arguments_of_whole_calls_are_json_objects) {
  for (std::string const& text : texts()) {
    std::vector<std::string> arguments;
    for (auto const& event :
         testing::parse_pieces(known_tools(), std::vector<std::string_view>{text})) {
      if (event.what == tool_event::kind::call) arguments.emplace_back();
      if (event.what == tool_event::kind::arguments)
        arguments.at(static_cast<std::size_t>(event.index)) += event.text;
    }
    for (auto const& one : arguments) {
      auto const value = json::parse(one, nullptr, false);
      EXPECT_TRUE(value.is_object()) << one << " of " << text;
    }
  }
}

json const strict_schema = json::parse(
    R"({"type":"object","properties":{"name":{"type":"string"},"unit":{"enum":["c","f"]},
    "days":{"type":"integer"},"where":{"$ref":"#/$defs/p"},"note":{"type":["string","null"]}},
    "required":["name","days"],"additionalProperties":false,
    "$defs":{"p":{"type":"object","properties":{"tag":{"type":"string"},"x":{"type":"number"}},"required":["x"]}}})");

// What the grammar lets through is what the parser reads, with arguments that fulfil the schema.
TEST(answer_grammar, calls_that_it_reads_are_parsed_and_fulfil_their_schema) {
  auto const tools = testing::signatures_of({{"get", strict_schema.dump()}, {"free", "{}"}});
  for (bool const required : {true, false}) {
    for (bool const parallel : {true, false}) {
      for (bool const reasoning : {true, false}) {
        testing::reader answers(make_tool_grammar({{"get", &strict_schema}, {"free", nullptr}},
                                                  {reasoning, required, parallel}));
        int calls = 0;
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
          std::mt19937_64 random(seed);
          auto const made = answers.random_text(random, 2000, reasoning ? "why</think>\n" : "");
          if (!made) continue;
          auto const body = reasoning ? made->substr(made->find("</think>") + 8) : *made;
          ASSERT_EQ(reasoning, made->find("</think>") != std::string::npos) << *made;
          int in_answer = 0;
          std::vector<std::pair<std::string, std::string>> found;
          for (auto const& event :
               testing::parse_pieces(tools, std::vector<std::string_view>{body})) {
            if (event.what == tool_event::kind::call) found.emplace_back(event.text, "");
            if (event.what == tool_event::kind::arguments) found.back().second += event.text;
            if (event.what == tool_event::kind::content && required)
              ADD_FAILURE() << "seed " << seed << ": text in " << *made;
          }
          for (auto const& [name, arguments] : found) {
            auto const value = json::parse(arguments, nullptr, false);
            ASSERT_TRUE(value.is_object()) << "seed " << seed << ": " << *made;
            if (name == "get") {
              ASSERT_TRUE(testing::fulfils(value, strict_schema, strict_schema))
                  << arguments << " of " << *made;
            } else {
              ASSERT_EQ(name, "free");
            }
            ++in_answer;
          }
          if (required) {
            ASSERT_GE(in_answer, 1) << *made;
          }
          if (!parallel) {
            ASSERT_LE(in_answer, 1) << *made;
          }
          calls += in_answer;
        }
        if (required) {
          EXPECT_GE(calls, 3) << parallel << reasoning;
        }
      }
    }
  }
}

TEST(answer_grammar, reads_the_format_of_the_template) {
  testing::reader answers(make_tool_grammar({{"get", &strict_schema}}, {true, true, true}));
  std::string const one =
      "<tool_call>\n<function=get>\n<parameter=name>\nA\n\n<b>\n</parameter>\n<parameter=days>\n3\n"
      "</parameter>\n<parameter=where>\n{\"tag\": \"\\u003c\", \"x\": "
      "1}\n</parameter>\n</function>\n</tool_call>";
  EXPECT_TRUE(answers.reads("I call it.</think>\n\n" + one));
  EXPECT_TRUE(answers.reads("</think>\n\n" + one + "\n" + one));
  EXPECT_FALSE(answers.begins("</think>\n\nText"));
  EXPECT_FALSE(answers.begins("</think>\n\n<tool_call>\n<function=other"));
  EXPECT_FALSE(answers.begins("</think>\n\n<tool_call>\n<function=get>\n<parameter=days>"));
  EXPECT_FALSE(
      answers.begins("</think>\n\n<tool_call>\n<function=get>\n<parameter=name>\nA\n</"
                     "parameter>\n<parameter=days>\nx"));
  EXPECT_FALSE(answers.begins(
      "</think>\n\n<tool_call>\n<function=get>\n<parameter=name>\nA\n</parameter>\n</function>"));
  testing::reader text(make_tool_grammar({{"get", nullptr}}, {false, false, false}));
  EXPECT_TRUE(text.reads(""));
  EXPECT_TRUE(text.reads("Some <b> text"));
  EXPECT_TRUE(
      text.reads("Look:\n<tool_call>\n<function=get>\n<parameter=a>\nb\n</parameter>\n</"
                 "function>\n</tool_call>"));
  EXPECT_FALSE(text.begins("<tool_call>\n<function=get>\n</function>\n</tool_call>\n"));
  EXPECT_FALSE(text.begins("<function="));
}

}  // namespace
}  // namespace qwen38::text
