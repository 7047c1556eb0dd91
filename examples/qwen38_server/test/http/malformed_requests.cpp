// SPDX-License-Identifier: Apache-2.0
#include "test/http/malformed_requests.hpp"

#include <string_view>
#include <utility>

#include "test/http/raw_client.hpp"

namespace qwen38::test {
namespace {

std::string repeated(std::string_view piece, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += piece;
  return out;
}

std::string chat_body_with(std::string const& member) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + member + '}';
}
std::string text_body_with(std::string const& member) {
  return R"({"prompt":"x",)" + member + '}';
}
std::string chat(std::string const& body) {
  return post("/v1/chat/completions", body);
}
std::string text(std::string const& body) {
  return post("/v1/completions", body);
}
std::string messages(std::string const& list) {
  return chat(R"({"messages":)" + list + '}');
}
std::string line(std::string const& method_and_target, std::string const& fields = "") {
  return method_and_target + " HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n";
}
std::string text_head(std::string const& fields) {
  return line("POST /v1/completions", fields);
}

/// A request that is not HTTP.
malformed_request not_http(std::string name, std::string bytes) {
  return {std::move(name), std::move(bytes), 400, "", "malformed_http", {"HTTP"}, true};
}

/// A request without a host, or with two: only the reply to it is affected.
malformed_request not_one_host(std::string name, std::string bytes) {
  return {std::move(name), std::move(bytes), 400, "", "malformed_http", {"HTTP/1.1", "Host"}};
}

void add_wire(std::vector<malformed_request>& out) {
  out.push_back(not_http("no request line", "GARBAGE\r\n\r\n"));
  out.push_back(not_http("a method alone", "GET\r\n\r\n"));
  out.push_back(not_http("HTTP/0.9", "GET /health\r\n\r\n"));
  out.push_back(not_http("HTTP/2.0", "GET /health HTTP/2.0\r\nHost: x\r\n\r\n"));
  out.push_back(not_http("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  out.push_back(not_http("a version that is none", "GET /health HTTP/x.y\r\nHost: x\r\n\r\n"));
  out.push_back(not_http("a TLS greeting",
                         std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 16)));
  out.push_back(not_http("zero bytes", std::string(64, '\0') + "\r\n\r\n"));
  out.push_back(not_http("a space in the target", "GET /he alth HTTP/1.1\r\nHost: x\r\n\r\n"));
  out.push_back(not_http("an empty target", "GET  HTTP/1.1\r\nHost: x\r\n\r\n"));
  out.push_back(not_one_host("no host", "GET /health HTTP/1.1\r\n\r\n"));
  out.push_back(not_one_host("two hosts", "GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"));
  out.push_back(not_http("a field without a colon", line("GET /health", "no colon here\r\n")));
  out.push_back(not_http("a field name with a blank", line("GET /health", "bad name: 1\r\n")));
  out.push_back(not_http("a field without a name", line("GET /health", ": 1\r\n")));
  out.push_back(
      not_http("a zero byte in a field", line("GET /health", std::string("a: \0b\r\n", 7))));
  out.push_back(not_http("a negative length", text_head("Content-Length: -1\r\n")));
  out.push_back(not_http("a length that is no number", text_head("Content-Length: 1x\r\n")));
  out.push_back(not_http("a length beyond 64 bits",
                         text_head("Content-Length: 99999999999999999999999\r\n")));
  out.push_back(
      not_http("two lengths", text_head("Content-Length: 1\r\nContent-Length: 2\r\n") + "{}"));
  out.push_back(
      not_http("a length and a chunked body",
               text_head("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n"));
  out.push_back(
      not_http("a chunked body and a length",
               text_head("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n") + "0\r\n\r\n"));
  out.push_back(not_http("a chunk size that is no number",
                         text_head("Transfer-Encoding: chunked\r\n") + "zz\r\n"));
  out.push_back(not_http("a negative chunk size",
                         text_head("Transfer-Encoding: chunked\r\n") + "-5\r\nabcde\r\n"));
  out.push_back(not_http("a chunk size beyond 64 bits",
                         text_head("Transfer-Encoding: chunked\r\n") + "fffffffffffffffff\r\n"));
  out.push_back(not_http("a chunk longer than it says",
                         text_head("Transfer-Encoding: chunked\r\n") + "1\r\nabc\r\n0\r\n\r\n"));
  out.push_back({"a length beyond the limit",
                 text_head("Content-Length: 99999999999\r\n"),
                 413,
                 "",
                 "body_too_large",
                 {"body", "1048576 bytes"},
                 true});
  out.push_back({"a chunked body without end",
                 text_head("Transfer-Encoding: chunked\r\n") +
                     repeated("10000\r\n" + std::string(0x10000, 'x') + "\r\n", 17),
                 413,
                 "",
                 "body_too_large",
                 {"body", "1048576 bytes"},
                 true});
  out.push_back({"a header of 20 kB",
                 line("GET /health", "a: " + std::string(20'000, 'x') + "\r\n"),
                 431,
                 "",
                 "header_too_large",
                 {"header", "16384 bytes"},
                 true});
  out.push_back({"a target of 20 kB",
                 line("GET /" + std::string(20'000, 'x')),
                 431,
                 "",
                 "header_too_large",
                 {"header", "16384 bytes"},
                 true});
  out.push_back({"a hundred and one header fields",
                 line("GET /health", repeated("a: b\r\n", 100)),
                 431,
                 "",
                 "header_too_large",
                 {"header fields", "100"}});
}

void add_routes(std::vector<malformed_request>& out) {
  for (std::string const target :
       {"/", "/v1", "/v1/", "/v1/nothing", "//v1/models", "/v1/models/", "/v1/chat/completions/",
        "/V1/models", "/index.html", "/v1/%6dodels", "/%2576%2531/models", "/v1/../health", "*",
        "https://x/v1/models", "http://x", "/health/", "/health%3fdeep=1"}) {
    out.push_back({"GET " + target,
                   line("GET " + target),
                   404,
                   "",
                   "not_found",
                   {"path", "expected /v1/chat/completions"}});
  }
  out.push_back({"an unknown path in full form",
                 line("GET http://x/nothing"),
                 404,
                 "",
                 "not_found",
                 {"path"}});
  out.push_back({"a tunnel", line("CONNECT example.org:443"), 404, "", "not_found", {"path"}});
  out.push_back({"an unknown model",
                 line("GET /v1/models/none"),
                 404,
                 "model",
                 "model_not_found",
                 {"model", "qwen3.8-demo"}});
  for (std::string const method : {"GET", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"}) {
    out.push_back({method + " of completions",
                   line(method + " /v1/chat/completions"),
                   405,
                   "",
                   "method_not_allowed",
                   {"method", "expected POST."}});
  }
  for (std::string const target : {"/v1/models", "/v1/models/demo", "/health"}) {
    out.push_back({"POST " + target,
                   line("POST " + target, "Content-Length: 0\r\n"),
                   405,
                   "",
                   "method_not_allowed",
                   {"method", "expected GET, HEAD."}});
  }
}

void add_json(std::vector<malformed_request>& out) {
  auto const bad_json = [&](std::string name, std::string body, std::vector<std::string> says) {
    says.emplace_back("request body");
    out.push_back({name + " (chat)", chat(body), 400, "", "", says});
    out.push_back({name + " (text)", text(body), 400, "", "", std::move(says)});
  };
  std::string const not_json = "not valid JSON";
  bad_json("no body", "", {not_json});
  bad_json("a brace", "{", {not_json});
  bad_json("a body cut off", R"({"prompt":"x","messages":[{"role":)", {not_json, "byte"});
  bad_json("a body cut off in a string", R"({"prompt":"x)", {not_json});
  bad_json("text", "hello", {not_json});
  bad_json("a form", "prompt=x&n=1", {not_json});
  bad_json("an array", "[]", {"JSON object", "an array"});
  bad_json("null", "null", {"JSON object", "null"});
  bad_json("a number", "12", {"JSON object", "12"});
  bad_json("two values", R"({"prompt":"x"}{"prompt":"y"})", {not_json});
  bad_json("a zero byte behind", std::string("{\"prompt\":\"x\"}\0[", 16), {not_json});
  bad_json("a comma behind", R"({"prompt":"x",})", {not_json});
  bad_json("a comment", R"({"prompt":"x"/* */})", {not_json});
  bad_json("single quotes", "{'prompt':'x'}", {not_json});
  bad_json("a line break in a string", "{\"prompt\":\"x\ny\"}", {not_json});
  bad_json("an unknown escape", R"({"prompt":"\q"})", {not_json});
  bad_json("half a surrogate pair", R"({"prompt":"\ud800"})", {not_json});
  bad_json("the other half", R"({"prompt":"\udc00x"})", {not_json});
  bad_json("a pair the wrong way round", R"({"prompt":"\ude00\ud83d"})", {not_json});
  bad_json("bytes that are no UTF-8", "{\"prompt\":\"\xff\"}", {"UTF-8"});
  bad_json("an overlong zero", "{\"prompt\":\"\xC0\x80\"}", {"UTF-8"});
  bad_json("a surrogate in UTF-8", "{\"prompt\":\"\xED\xA0\x80\"}", {"UTF-8"});
  bad_json("a character cut off", "{\"prompt\":\"\xF0\x9F\x98\"}", {"UTF-8"});
  bad_json("UTF-16", std::string("\xFF\xFE{\0}\0", 6), {not_json});
  bad_json("a million brackets", std::string(1'000'000, '['), {"nested", "64"});
  bad_json("objects without end", repeated("{\"a\":", 100), {"nested", "64"});
  bad_json("a member twice", R"({"prompt":"x","prompt":"y"})", {"twice"});
  bad_json("a member twice, deep", R"({"prompt":"x","a":[{"b":1,"b":1}]})", {"twice"});
  bad_json("NaN", R"({"prompt":"x","temperature":NaN})", {not_json});
  bad_json("infinity", R"({"prompt":"x","temperature":-Infinity})", {not_json});
  bad_json("a number out of range", R"({"prompt":"x","temperature":1e999})", {"out of range"});
  bad_json("a number of a hundred thousand digits",
           R"({"prompt":"x","seed":)" + std::string(100'000, '9') + "}", {"out of range"});
  bad_json("a leading zero", R"({"prompt":"x","n":01})", {not_json});
  bad_json("hexadecimal", R"({"prompt":"x","n":0x1})", {not_json});
  std::string many;
  for (int i = 0; i < 1025; ++i) many += ",\"m" + std::to_string(i) + "\":1";
  bad_json("an object of a thousand members", "{\"prompt\":\"x\"" + many + "}", {"1024 members"});
}

/// A field that is wrong by itself.
void add_fields(std::vector<malformed_request>& out) {
  auto const bad = [&](std::string const& bytes, std::string param, std::vector<std::string> says,
                       std::string code = "") {
    says.push_back(param);
    auto const body = bytes.substr(bytes.find("\r\n\r\n") + 4);
    out.push_back(
        {body.substr(0, 100), bytes, 400, std::move(param), std::move(code), std::move(says)});
  };
  auto const unserved = [&](std::string const& bytes, std::string param) {
    bad(bytes, std::move(param), {}, "unsupported");
  };
  std::string const need = "expected";
  bad(chat("{}"), "messages", {need, "at least one message"});
  bad(messages("[]"), "messages", {need});
  bad(messages("null"), "messages", {need});
  bad(messages("\"hi\""), "messages", {need, "an array", "a string"});
  bad(messages("{\"role\":\"user\"}"), "messages", {need, "an array", "an object"});
  bad(messages("[\"hi\"]"), "messages[0]", {need, "an object", "a string"});
  bad(messages("[[]]"), "messages[0]", {need, "an object", "an array"});
  bad(messages("[null]"), "messages[0]", {need, "an object", "null"});
  bad(messages("[{}]"), "messages[0].role", {need, "user", "got none"});
  bad(messages(R"([{"content":"x"}])"), "messages[0].role", {need, "user"});
  bad(messages(R"([{"role":7,"content":"x"}])"), "messages[0].role", {need, "a string", "7"});
  bad(messages(R"([{"role":"wizard","content":"x"}])"), "messages[0].role",
      {need, "assistant", "`wizard`"});
  bad(messages(R"([{"role":"function","name":"f","content":"x"}])"), "messages[0].role",
      {need, "`function`"});
  bad(messages(R"([{"role":")" + std::string(5000, 'r') + R"(","content":"x"}])"),
      "messages[0].role", {need, "something else"});
  bad(messages(R"([{"role":"user","content":7}])"), "messages[0].content", {need, "a string", "7"});
  bad(messages(R"([{"role":"user","content":{"type":"text"}}])"), "messages[0].content",
      {need, "array of text parts"});
  bad(messages(R"([{"role":"user","content":["x"]}])"), "messages[0].content[0]", {need, "object"});
  bad(messages(R"([{"role":"user","content":[{"type":"text"}]}])"), "messages[0].content[0].text",
      {need, "a string"});
  bad(messages(R"([{"role":"user","content":[{"type":"text","text":1}]}])"),
      "messages[0].content[0].text", {need, "a string", "1"});
  for (std::string const type : {"image_url", "input_audio", "file", "video_url", "refusal"}) {
    bad(messages(R"([{"role":"user","content":[{"type":"text","text":"x"},{"type":")" + type +
                 R"("}]}])"),
        "messages[0].content[1].type", {"`text`", '`' + type + '`'}, "unsupported");
  }
  bad(messages(R"([{"role":"user","content":"u"},{"role":"assistant","tool_calls":
        [{"function":{"name":"f","arguments":"not json"}}]}])"),
      "messages[1].tool_calls[0].function.arguments", {"not valid JSON"});
  bad(messages(R"([{"role":"user","content":"u"},{"role":"assistant","tool_calls":
        [{"function":{"name":"f","arguments":"[]"}}]}])"),
      "messages[1].tool_calls[0].function.arguments", {need, "an object"});
  bad(messages(R"([{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"1"}]}])"),
      "messages[1].tool_calls[0].function", {need, "an object"});
  bad(messages(R"([{"role":"user","content":"u","tool_calls":[{"id":"1"}]}])"),
      "messages[0].tool_calls", {need, "assistant"});
  bad(messages(R"([{"role":"user","content":"u"},{"role":"assistant","reasoning_content":[]}])"),
      "messages[1].reasoning_content", {need, "a string"});
  unserved(messages(R"([{"role":"user","content":"u"},{"role":"assistant","function_call":{}}])"),
           "messages[1].function_call");
  unserved(messages(R"([{"role":"user","content":"u"},{"role":"assistant","audio":{"id":"1"}}])"),
           "messages[1].audio");

  bad(text("{}"), "prompt", {need});
  bad(text(R"({"prompt":""})"), "prompt", {need});
  bad(text(R"({"prompt":[]})"), "prompt", {need});
  bad(text(R"({"prompt":null})"), "prompt", {need});
  bad(text(R"({"prompt":7})"), "prompt", {need, "7"});
  bad(text(R"({"prompt":{"text":"x"}})"), "prompt", {need, "an object"});
  bad(text(R"({"prompt":[1,261]})"), "prompt[1]", {need, "0 to 260", "261"});
  bad(text(R"({"prompt":[1,-1]})"), "prompt[1]", {need, "0 to 260", "-1"});
  bad(text(R"({"prompt":[1,"x"]})"), "prompt[1]", {need, "a token id", "a string"});
  unserved(text(R"({"prompt":["a","b"]})"), "prompt");

  bad(chat(chat_body_with(R"("stream":"yes")")), "stream", {need, "true or false", "a string"});
  bad(chat(chat_body_with(R"("stream":1)")), "stream", {need, "true or false", "1"});
  bad(chat(chat_body_with(R"("stream_options":true)")), "stream_options", {need, "an object"});
  unserved(chat(chat_body_with(R"("stream_options":{"continuous_usage_stats":true})")),
           "stream_options.continuous_usage_stats");
  bad(chat(chat_body_with(R"("stop":"")")), "stop", {need, "1 to 1024 bytes"});
  bad(chat(chat_body_with(R"("stop":[1])")), "stop[0]", {need, "a string"});
  bad(chat(chat_body_with(R"("stop":{"a":1})")), "stop", {need, "an array of strings"});
  bad(chat(chat_body_with(R"("stop":[)" + repeated("\"a\",", 16) + "\"a\"]")), "stop",
      {need, "at most 16", "17"});
  bad(chat(chat_body_with(R"("stop":")" + std::string(1025, 'x') + '"')), "stop",
      {need, "1 to 1024 bytes", "1025"});
  bad(chat(chat_body_with(R"("stop_token_ids":"x")")), "stop_token_ids", {need, "an array"});
  bad(chat(chat_body_with(R"("max_tokens":100000)")), "", {"100", "context"},
      "context_length_exceeded");
  bad(text(R"({"prompt":")" + std::string(5000, 'x') + "\"}"), "", {"context"},
      "context_length_exceeded");
  bad(chat(chat_body_with(R"("max_tokens":5,"max_completion_tokens":6)")), "max_completion_tokens",
      {"max_tokens", "differ"});
  bad(chat(chat_body_with(R"("max_tokens":5,"min_tokens":6)")), "min_tokens", {need, "5", "6"});
  bad(chat(chat_body_with(R"("model":7)")), "model", {need, "a string"});
  bad(chat(chat_body_with(R"("speculative":3)")), "speculative", {need, "an object"});
  unserved(chat(chat_body_with(R"("speculative":{"depth":3})")), "speculative.depth");
  bad(chat(chat_body_with(R"("reasoning_effort":"extreme")")), "reasoning_effort",
      {need, "medium"});
  bad(chat(chat_body_with(R"("chat_template_kwargs":[])")), "chat_template_kwargs",
      {need, "an object"});
  out.push_back({"a model that is not served",
                 chat(chat_body_with(R"("model":"gpt-4")")),
                 404,
                 "model",
                 "model_not_found",
                 {"model", "qwen3.8-demo"}});
  for (std::string const member :
       {R"("n":2)", R"("best_of":2)", R"("logit_bias":{"5":1})", R"("echo":true)",
        R"("suffix":"end")", R"("store":true)", R"("service_tier":"flex")",
        R"("prediction":{"type":"content","content":"x"})", R"("audio":{"voice":"x"})",
        R"("modalities":["text","audio"])", R"("web_search_options":{})",
        R"("functions":[{"name":"f"}])", R"("guided_json":{"type":"object"})"}) {
    auto const name = member.substr(1, member.find('"', 1) - 1);
    unserved(chat(chat_body_with(member)), name);
    unserved(text(text_body_with(member)), name);
  }
  for (std::string const member : {R"("top_logprobs":5)", R"("thinking_budget":5)",
                                   R"("tools":[{"type":"function","function":{"name":"f"}}])"}) {
    unserved(text(text_body_with(member)), member.substr(1, member.find('"', 1) - 1));
  }
  bad(chat(chat_body_with(R"("top_logprobs":5)")), "top_logprobs", {need, "logprobs"});
  bad(chat(chat_body_with(R"("tool_choice":"required")")), "tool_choice", {need, "tools"});
  unserved(chat(chat_body_with(R"("tools":[{"type":"web_search"}])")), "tools[0].type");
  unserved(chat(chat_body_with(R"("response_format":{"type":"grammar"})")), "response_format.type");
  unserved(chat(chat_body_with(R"("response_format":{"type":"json_object","schema":{"not":{}}})")),
           "response_format.schema");
}

}  // namespace

std::vector<malformed_request> malformed_requests() {
  std::vector<malformed_request> out;
  add_wire(out);
  add_routes(out);
  add_json(out);
  add_fields(out);
  return out;
}

std::vector<std::string> number_values() {
  return {"-1",   "0",     "1",    "2147483648", "9223372036854775808", "1e308", "NaN", "1.5",
          "null", "\"1\"", "true", "[1]"};
}

std::vector<numeric_field> numeric_fields() {
  std::vector<numeric_field> out = {
      {"max_tokens", true, R"("max_tokens":@)", {"1", "null"}},
      {"max_completion_tokens", true, R"("max_completion_tokens":@)", {"1", "null"}},
      {"min_tokens", true, R"("max_tokens":9,"min_tokens":@)", {"0", "1", "null"}},
      {"n", true, R"("n":@)", {"1", "null"}},
      {"best_of", true, R"("best_of":@)", {"1", "null"}},
      {"top_k", true, R"("top_k":@)", {"-1", "0", "1", "null"}},
      {"top_logprobs", true, R"("top_logprobs":@)", {"0", "null"}},
      {"temperature", true, R"("temperature":@)", {"0", "1", "1.5", "null"}},
      {"top_p", true, R"("top_p":@)", {"0", "1", "null"}},
      {"min_p", true, R"("min_p":@)", {"0", "1", "null"}},
      {"presence_penalty", true, R"("presence_penalty":@)", {"-1", "0", "1", "1.5", "null"}},
      {"frequency_penalty", true, R"("frequency_penalty":@)", {"-1", "0", "1", "1.5", "null"}},
      {"repetition_penalty", true, R"("repetition_penalty":@)", {"1", "1.5", "null"}},
      {"seed", true, R"("seed":@)", {"-1", "0", "1", "2147483648", "9223372036854775808", "null"}},
      {"speculative.k", true, R"("speculative":{"k":@})", {"0", "1", "null"}},
      {"stop_token_ids[1]", true, R"("stop_token_ids":[0,@])", {"0", "1"}},
      {"logit_bias", true, R"("logit_bias":{"5":@})", {"0"}},
      {"priority", true, R"("priority":@)", {"0", "null"}},
      {"typical_p", true, R"("typical_p":@)", {"1", "null"}},
      {"prompt[1]", false, R"("prompt":[0,@])", {"0", "1"}},
  };
  auto const count = out.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (!out[i].chat) continue;
    auto twin = out[i];
    twin.chat = false;
    twin.member = R"("prompt":"x",)" + twin.member;
    out.push_back(std::move(twin));
  }
  out.push_back({"thinking_budget", true, R"("thinking_budget":@)", {"0", "1", "null"}});
  out.push_back({"top_logprobs", true, R"("logprobs":true,"top_logprobs":@)", {"0", "1", "null"}});
  out.push_back({"logprobs", false, R"("prompt":"x","logprobs":@)", {"0", "1", "null"}});
  return out;
}

std::string with_value(numeric_field const& field, std::string const& value) {
  auto const at = field.member.find('@');
  auto const member = field.member.substr(0, at) + value + field.member.substr(at + 1);
  return field.chat ? chat(chat_body_with(member)) : text('{' + member + '}');
}

}  // namespace qwen38::test
