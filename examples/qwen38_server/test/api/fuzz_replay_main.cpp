// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz target over seed bodies and mutations of them, the same on every machine; or over
// the files named as arguments.
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "test/support/fuzz_replay.hpp"

namespace {

std::vector<std::string> const seeds = {
    R"({"messages":[{"role":"user","content":"hi"}]})",
    R"({"model":"demo","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"s"},
        {"role":"user","content":[{"type":"text","text":"é😸"}]},{"role":"developer","content":null}]})",
    R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":null,"reasoning_content":"r",
        "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":[1,{\"b\":null}]}"}}]},
        {"role":"tool","tool_call_id":"1","content":"t"}],"temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.1,
        "presence_penalty":-2,"frequency_penalty":2,"repetition_penalty":1.1,"seed":-1,"stop":["a","b"],
        "max_tokens":7,"min_tokens":1,"ignore_eos":true,"stop_token_ids":[1,2],"speculative":{"k":15},"n":1})",
    R"({"messages":[{"role":"user","content":"\ud83d\ude00\u0000"}],"chat_template_kwargs":{"enable_thinking":false,
        "reasoning_effort":"high","preserve_thinking":false},"reasoning_effort":"none","logit_bias":{"1":0},
        "tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none","response_format":{"type":"text"}})",
    R"({"messages":[{"role":"user","content":"u"}],"tools":[{"type":"function","function":{"name":"f","strict":true,
        "parameters":{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},
        "required":["a"],"$defs":{"n":{"type":"integer"}}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},
        "parallel_tool_calls":false,"thinking_budget":3,"logprobs":true,"top_logprobs":2,"stream":true})",
    R"({"messages":[{"role":"user","content":"u"}],"response_format":{"type":"json_schema","json_schema":{"name":"n",
        "strict":true,"schema":{"type":"array","minItems":1,"items":{"type":"string","pattern":"^a+$"}}}}})",
    R"({"prompt":"x","logprobs":3})",
    R"({"prompt":"text","max_completion_tokens":3,"echo":false,"best_of":1,"suffix":"","logprobs":null})",
    R"({"prompt":[1,2,260],"stream":true})",
    R"({"prompt":[[1,2]],"stop":"x"})",
};

std::vector<std::string> const fragments = {
    "-1",      "0",         "2147483648",   "9223372036854775808",
    "1e308",   "1e999",     "null",         "true",
    "[]",      "{}",        "\"\"",         "\"x\"",
    "[[[[[[",  "]]]]",      "\xff",         "\xF0\x9F",
    "\\ud800", "\"role\":", "\"content\":", "\"prompt\":",
    ",",       ":",         "\"",           "<|im_end|>",
    "{\"a\":", "\"n\":2,"};

std::string mutate(std::string body, std::mt19937& random) {
  auto const below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (auto changes = 1 + below(4); changes > 0; --changes) {
    auto const at = below(body.size() + 1);
    switch (below(5)) {
      case 0: body.insert(at, fragments[below(fragments.size())]); break;
      case 1: body.erase(at, 1 + below(8)); break;
      case 2: body.replace(at, below(6), fragments[below(fragments.size())]); break;
      case 3: body.insert(at, body.substr(below(body.size()), below(40))); break;
      default:
        if (at < body.size()) body[at] = static_cast<char>(random());
    }
  }
  return body;
}

}  // namespace

int main(int count, char** arguments) {
  qwen38::testing::run_files(std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
  if (count > 1) return 0;
  constexpr unsigned first_seed = 1;
  constexpr unsigned rounds = 4000;
  for (auto const& body : seeds) qwen38::testing::run_input(body);
  for (unsigned seed = first_seed; seed < first_seed + rounds; ++seed) {
    std::mt19937 random(seed);
    auto const body = mutate(seeds[seed % seeds.size()], random);
    // Read after a crash: the last line names the input.
    std::fprintf(stderr, "\rseed %u", seed);
    qwen38::testing::run_input(body);
  }
  std::fprintf(stderr, "\n%u bodies\n", rounds);
  return 0;
}
