// SPDX-License-Identifier: Apache-2.0
// Whatever a body holds: one complete, legal reply of valid JSON in UTF-8, and never a 5xx. Link
// with libFuzzer (clang -fsanitize=fuzzer), or with fuzz_replay_main.cpp.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/handler.hpp"
#include "test/api/api_fixture.hpp"
#include "test/support/instant_service.hpp"
#include "test/support/recording_sink.hpp"

namespace qwen38::api {
namespace {

void require(bool holds, char const* what, std::string const& got) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, got.c_str());
  std::abort();
}

void check(handler const& requests, endpoint kind, std::string_view body) {
  auto const sink = std::make_shared<test::recording_sink>();
  requests.serve(requests.open(kind, "0", sink), body);
  require(sink->legal() && sink->ended(), "the reply is not complete", sink->frames());
  if (!sink->begun()) {
    auto const whole = sink->whole();
    require(whole.status < 500, "a request was answered by a server error", whole.body);
    require(nlohmann::json::accept(whole.body), "the reply is not JSON", whole.body);
    return;
  }
  auto const frames = sink->frames();
  for (std::size_t at = 0; at < frames.size();) {
    auto const end = frames.find("\n\n", at);
    require(end != std::string::npos && frames.compare(at, 6, "data: ") == 0, "not a frame",
            frames);
    auto const data = frames.substr(at + 6, end - at - 6);
    require(data == "[DONE]" || nlohmann::json::accept(data), "a frame is not JSON", data);
    at = end + 2;
  }
}

}  // namespace
}  // namespace qwen38::api

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace qwen38;
  static test::instant_service engine;
  static auto const tokenizer = test::make_byte_tokenizer();
  static api::handler const requests(engine, tokenizer, api::served_settings());
  std::string_view const body(reinterpret_cast<char const*>(data), size);
  api::check(requests, api::endpoint::chat_completions, body);
  api::check(requests, api::endpoint::completions, body);
  return 0;
}
