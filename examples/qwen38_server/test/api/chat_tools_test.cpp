// SPDX-License-Identifier: Apache-2.0
#include "api/chat_tools.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "api/answer_reader.hpp"
#include "api/handler.hpp"
#include "test/api/api_fixture.hpp"
#include "test/support/recording_sink.hpp"
#include "test/support/scripted_service.hpp"
#include "test/text/grammar_support.hpp"
#include "text/answer_grammar.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

std::string const weather =
    R"({"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object",
       "properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}})";
std::string const clock = R"({"type":"function","function":{"name":"clock"}})";
std::string const strict =
    R"({"type":"function","function":{"name":"add","strict":true,"parameters":{"type":"object",
       "properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}})";

chat_tools read(std::string const& members, bool reasoning = false) {
  auto const body = parse_json("{" + members + "}", "b");
  return read_chat_tools(request_fields(body), reasoning);
}
refusal refused(std::string const& members) {
  return refusal_of([&] { static_cast<void>(read(members)); });
}
bool reads(chat_tools const& tools, std::string const& text) {
  return text::testing::reader(*tools.grammar).reads(text);
}

std::string const city_call =
    "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</"
    "tool_call>";
std::string const clock_call = "<tool_call>\n<function=clock>\n</function>\n</tool_call>";

TEST(chat_tools, choice_decides_what_the_answer_may_be) {
  auto const both = "\"tools\":[" + weather + "," + clock + "]";
  auto const free = read(both);
  EXPECT_EQ(free.rendered.size(), 2U);
  EXPECT_EQ(free.signatures->size(), 2U);
  EXPECT_EQ(free.grammar, nullptr);
  EXPECT_EQ(read(both + R"(,"tool_choice":"auto","parallel_tool_calls":true)").grammar, nullptr);

  auto const none = read(both + R"(,"tool_choice":"none")");
  EXPECT_TRUE(none.rendered.is_null());
  EXPECT_EQ(none.signatures, nullptr);
  EXPECT_EQ(none.grammar, nullptr);

  auto const required = read(both + R"(,"tool_choice":"required")");
  EXPECT_TRUE(reads(required, city_call));
  EXPECT_TRUE(reads(required, clock_call + "\n" + city_call));
  EXPECT_FALSE(reads(required, "text"));
  EXPECT_FALSE(reads(required, ""));

  auto const named =
      read(both + R"(,"tool_choice":{"type":"function","function":{"name":"clock"}})");
  EXPECT_EQ(named.rendered.size(), 2U);
  EXPECT_TRUE(reads(named, clock_call));
  EXPECT_FALSE(reads(named, city_call));

  auto const single = read(both + R"(,"parallel_tool_calls":false)");
  EXPECT_TRUE(reads(single, "Some text " + clock_call));
  EXPECT_TRUE(reads(single, "text"));
  EXPECT_FALSE(reads(single, clock_call + "\n" + clock_call));

  auto const thinking = read(both + R"(,"tool_choice":"required")", true);
  EXPECT_TRUE(text::testing::reader(*thinking.grammar).reads("why</think>\n\n" + clock_call));
  EXPECT_FALSE(text::testing::reader(*thinking.grammar).reads(clock_call));
}

TEST(chat_tools, a_strict_function_is_held_to_its_schema) {
  auto const one = read("\"tools\":[" + strict + "]");
  ASSERT_NE(one.grammar, nullptr);
  std::string const head = "<tool_call>\n<function=add>\n";
  std::string const tail = "</function>\n</tool_call>";
  EXPECT_TRUE(reads(one, "text"));
  EXPECT_TRUE(reads(one, head + "<parameter=a>\n5\n</parameter>\n" + tail));
  EXPECT_FALSE(reads(one, head + "<parameter=a>\nfive\n</parameter>\n" + tail));
  EXPECT_FALSE(reads(one, head + tail));
}

TEST(chat_tools, what_is_wrong_is_refused_by_its_name) {
  struct expected {
    std::string members;
    std::string param;
  };
  for (
      auto const& [members, param] : std::vector<expected>{
          {R"("tools":{})", "tools"},
          {R"("tools":[1])", "tools[0]"},
          {R"("tools":[{}])", "tools[0].type"},
          {R"("tools":[{"type":"web_search"}])", "tools[0].type"},
          {R"("tools":[{"type":"function"}])", "tools[0].function"},
          {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
          {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
          {R"("tools":[{"type":"function","function":{"name":"a>"}}])", "tools[0].function.name"},
          {R"("tools":[{"type":"function","function":{"name":"é"}}])", "tools[0].function.name"},
          {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" + std::string(129, 'a') +
               "\"}}]",
           "tools[0].function.name"},
          {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])",
           "tools[0].function.parameters"},
          {R"("tools":[{"type":"function","function":{"name":"f","strict":1}}])",
           "tools[0].function.strict"},
          {R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])",
           "tools[0].function.parameters"},
          {"\"tools\":[" + clock +
               R"(,{"type":"function","function":{"name":"f","strict":true,"parameters":{"minimum":1}}}])",
           "tools[1].function.parameters"},
          {R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"properties":{"a":{"type":"string","pattern":"x"}}}}}])",
           "tools[0].function.parameters"},
          {"\"tools\":[" + clock + "," + clock + "]", "tools[1].function.name"},
          {R"("tool_choice":"required")", "tool_choice"},
          {R"("tools":[],"tool_choice":"required")", "tool_choice"},
          {"\"tools\":[" + clock + R"(],"tool_choice":"any")", "tool_choice"},
          {"\"tools\":[" + clock + R"(],"tool_choice":{"type":"allowed_tools"})",
           "tool_choice.type"},
          {"\"tools\":[" + clock + R"(],"tool_choice":{"type":"function"})",
           "tool_choice.function"},
          {"\"tools\":[" + clock + R"(],"tool_choice":{"type":"function","function":{"name":"x"}})",
           "tool_choice.function.name"},
          {"\"tools\":[" + clock + R"(],"parallel_tool_calls":1)", "parallel_tool_calls"}}) {
    auto const what = refused(members);
    EXPECT_EQ(what.status, 400) << members;
    EXPECT_EQ(what.param, param) << members << ": " << what.message;
    EXPECT_TRUE(is_sentence(what.message)) << what.message;
  }
  for (auto const& members :
       {R"("tools":[])", R"("tools":null,"tool_choice":"auto")", R"("tool_choice":"none")"})
    EXPECT_EQ(refused(members).status, 200) << members;
}

/// A server that writes these pieces, and what a client makes of its answer.
struct tool_server {
  explicit tool_server(std::vector<std::string> const& pieces,
                       engine::finish_reason finish = engine::finish_reason::stop) {
    for (std::string const& piece : pieces) written.steps.push_back(test::content_delta(piece));
    written.outcome.finish = finish;
  }

  std::shared_ptr<test::recording_sink> serve(std::string const& members) {
    auto sink = std::make_shared<test::recording_sink>();
    requests.serve(requests.open(endpoint::chat_completions, "77", sink),
                   R"({"messages":[{"role":"user","content":"hi"}],)" + members + "}");
    EXPECT_TRUE(sink->wait_until_ended());
    EXPECT_TRUE(sink->legal());
    return sink;
  }

  /// The message of a plain reply, with its finish reason.
  json plain(std::string const& members) {
    auto const body = json::parse(serve(members)->whole().body);
    json out = body["choices"][0]["message"];
    out["finish_reason"] = body["choices"][0]["finish_reason"];
    return out;
  }

  /// The same put together from a stream, as the clients' libraries do it.
  json streamed(std::string const& members) {
    auto const frames = serve(members + R"(,"stream":true)")->frames();
    json out = {{"role", nullptr}, {"content", ""}};
    for (std::size_t at = 0; at < frames.size();) {
      auto const end = frames.find("\n\n", at);
      auto const data = frames.substr(at + 6, end - at - 6);
      at = end + 2;
      if (data == "[DONE]") break;
      auto const choice = json::parse(data)["choices"][0];
      auto const& delta = choice["delta"];
      if (delta.contains("role")) out["role"] = delta["role"];
      if (delta.contains("content"))
        out["content"] = out["content"].get<std::string>() + delta["content"].get<std::string>();
      for (json const& part : delta.value("tool_calls", json::array())) {
        auto const index = part["index"].get<std::size_t>();
        if (index == out["tool_calls"].size()) {
          out["tool_calls"].push_back({{"id", part["id"]},
                                       {"type", part["type"]},
                                       {"function",
                                        {{"name", part["function"]["name"]},
                                         {"arguments", part["function"]["arguments"]}}}});
          EXPECT_EQ(part["function"]["arguments"], "");
          continue;
        }
        EXPECT_EQ(index + 1, out["tool_calls"].size());
        EXPECT_FALSE(part.contains("id") || part["function"].contains("name")) << part;
        auto& text = out["tool_calls"][index]["function"]["arguments"];
        text = text.get<std::string>() + part["function"]["arguments"].get<std::string>();
      }
      if (!choice["finish_reason"].is_null()) out["finish_reason"] = choice["finish_reason"];
    }
    if (out["content"] == "" && out.contains("tool_calls")) out["content"] = nullptr;
    return out;
  }

  test::script written;
  test::scripted_service engine{[this](engine::request const&) { return written; }};
  text::tokenizer tokenizer = test::make_byte_tokenizer();
  handler requests{engine, tokenizer, served_settings()};
};

// W23, W25, T18, T19: calls arrive as calls by default, each with index and id, and both kinds of
// reply agree.
TEST(chat_tools, w23_w25_t18_t19_stream_and_plain_reply_have_the_same_calls) {
  std::string const answer = "Let me look.\n\n" + city_call + "\n" + city_call + "\n" + clock_call;
  for (std::size_t width : {1, 2, 3, 7, 50, 1000}) {
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < answer.size(); at += width)
      pieces.push_back(answer.substr(at, width));
    tool_server server(pieces);
    auto const members = "\"tools\":[" + weather + "," + clock + "]";
    auto const plain = server.plain(members);
    EXPECT_EQ(plain["content"], "Let me look.");
    EXPECT_EQ(plain["finish_reason"], "tool_calls");
    ASSERT_EQ(plain["tool_calls"].size(), 3U) << plain;
    EXPECT_EQ(plain["tool_calls"][1]["function"]["arguments"], R"({"city": "Paris"})");
    EXPECT_EQ(plain["tool_calls"][2]["function"]["arguments"], "{}");
    EXPECT_EQ(plain["tool_calls"][0]["id"], "call_77_0");
    EXPECT_EQ(plain["tool_calls"][2]["id"], "call_77_2");
    auto const streamed = server.streamed(members);
    EXPECT_EQ(streamed["tool_calls"], plain["tool_calls"]) << "width " << width;
    EXPECT_EQ(streamed["content"], plain["content"]);
    EXPECT_EQ(streamed["finish_reason"], plain["finish_reason"]);
  }
}

TEST(chat_tools, a_call_alone_has_null_content) {
  tool_server server({clock_call});
  auto const members = "\"tools\":[" + clock + "]";
  EXPECT_TRUE(server.plain(members)["content"].is_null());
  EXPECT_TRUE(server.streamed(members)["content"].is_null());
}

TEST(chat_tools, finish_is_tool_calls_only_where_the_last_call_is_whole) {
  auto const members = "\"tools\":[" + weather + "]";
  auto const half = city_call.substr(0, 60);
  tool_server cut({half}, engine::finish_reason::length);
  EXPECT_EQ(cut.plain(members)["finish_reason"], "length");
  EXPECT_EQ(cut.streamed(members)["finish_reason"], "length");
  EXPECT_EQ(cut.plain(members)["tool_calls"], cut.streamed(members)["tool_calls"]);
  tool_server stopped({half});
  stopped.written.outcome.stop_string = "x";
  EXPECT_EQ(stopped.plain(members)["finish_reason"], "stop");
  tool_server ended({half});  // by the model
  EXPECT_EQ(ended.plain(members)["finish_reason"], "tool_calls");
  EXPECT_TRUE(json::accept(
      ended.plain(members)["tool_calls"][0]["function"]["arguments"].get<std::string>()));
  tool_server text({"no call"});
  EXPECT_EQ(text.plain(members)["finish_reason"], "stop");
  EXPECT_FALSE(text.plain(members).contains("tool_calls"));
}

TEST(chat_tools, without_tools_a_call_is_text) {
  tool_server server({clock_call});
  for (std::string const& members :
       {std::string(R"("n":1)"), "\"tool_choice\":\"none\",\"tools\":[" + clock + "]"}) {
    EXPECT_EQ(server.plain(members)["content"], clock_call);
    EXPECT_EQ(server.plain(members)["finish_reason"], "stop");
  }
}

TEST(chat_tools, are_in_the_prompt_and_the_grammar_in_the_request) {
  tool_server server({"x"});
  server.serve("\"tools\":[" + clock + R"(],"tool_choice":"required")");
  server.serve("\"tools\":[" + clock + R"(],"tool_choice":"none")");
  server.serve(
      R"("response_format":{"type":"json_object"},"thinking_budget":5,"logprobs":true,"top_logprobs":2)");
  auto const sent = server.engine.requests();
  auto const prompt = [&](std::size_t i) {
    return server.tokenizer.decode(sent.at(i).prompt_ids, false);
  };
  EXPECT_NE(prompt(0).find("\"name\": \"clock\""), std::string::npos) << prompt(0);
  EXPECT_NE(sent[0].grammar.grammar, nullptr);
  EXPECT_EQ(prompt(1).find("clock"), std::string::npos);
  EXPECT_EQ(sent[1].grammar.grammar, nullptr);
  EXPECT_FALSE(sent[1].thinking_budget || sent[1].top_logprobs);
  EXPECT_NE(sent[2].grammar.grammar, nullptr);
  EXPECT_EQ(sent[2].thinking_budget, 5);
  EXPECT_EQ(sent[2].end_reasoning_id, test::think_end_id);
  EXPECT_EQ(sent[2].top_logprobs, 2);
}

}  // namespace
}  // namespace qwen38::api
