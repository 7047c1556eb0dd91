// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz target without a fuzzer:
//   PROGRAM                     the malformed requests, good ones, and seeded mutations of them
//   PROGRAM --corpus DIRECTORY  writes these inputs there, a file each, for libFuzzer to begin with
//   PROGRAM FILE...             each file as it is, such as a finding of libFuzzer
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "test/http/malformed_requests.hpp"
#include "test/http/raw_client.hpp"
#include "test/support/fuzz_replay.hpp"

namespace {

using qwen38::test::get;
using qwen38::test::post;

std::vector<std::string> inputs() {
  std::string const chat = R"({"messages":[{"role":"user","content":"hi"}]})";
  std::string const stream = R"({"stream":true,"prompt":"hi"})";
  std::string const chunked =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::vector<std::string> out = {
      get("/health"),
      get("/v1/models") + get("/v1/models/demo") + get("/nothing"),
      "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + get("/health", "Connection: close\r\n"),
      "GET /health HTTP/1.0\r\n\r\n",
      post("/v1/chat/completions", chat) + post("/v1/completions", stream) + get("/health"),
      post("/v1/completions", stream, "Connection: close\r\n"),
      post("/v1/completions", stream, "Expect: 100-continue\r\n"),
      "POST /v1/completions HTTP/1.0\r\nContent-Length: 29\r\n\r\n" + stream,
      chunked + "1d\r\n" + stream + "\r\n0\r\n\r\n" + get("/health"),
      chunked + "5;x=y\r\n" + stream.substr(0, 5) + "\r\n18\r\n" + stream.substr(5) +
          "\r\n0\r\na: b\r\n\r\n",
      "\r\n\r\n" + get("/health"),
      post("/v1/completions", stream.substr(0, 10)),
  };
  for (auto const& bad : qwen38::test::malformed_requests()) out.push_back(bad.bytes);
  return out;
}

std::vector<std::string> const pieces = {"\r\n",
                                         "\r\n\r\n",
                                         "\n",
                                         "\r",
                                         " ",
                                         ":",
                                         "GET ",
                                         "HEAD ",
                                         "POST ",
                                         "/health",
                                         "/v1/completions",
                                         " HTTP/1.1\r\n",
                                         " HTTP/1.0\r\n",
                                         "Host: x\r\n",
                                         "Content-Length: 0\r\n",
                                         "Content-Length: 5\r\n",
                                         "Content-Length: 18446744073709551615\r\n",
                                         "Transfer-Encoding: chunked\r\n",
                                         "Transfer-Encoding: gzip, chunked\r\n",
                                         "Connection: close\r\n",
                                         "Connection: upgrade\r\nUpgrade: h2c\r\n",
                                         "Expect: 100-continue\r\n",
                                         "0\r\n\r\n",
                                         "5\r\nhello\r\n",
                                         "ffffffffffffffff\r\n",
                                         "{\"prompt\":\"x\"}",
                                         "\"stream\":true,",
                                         "\xFF",
                                         "\x7F",
                                         std::string(1, '\0'),
                                         "%00",
                                         "?deep=1"};

}  // namespace

int main(int count, char** arguments) {
  auto const given = std::span(arguments, static_cast<std::size_t>(count)).subspan(1);
  auto const seeds = inputs();
  if (given.size() == 2 && std::string_view(given[0]) == "--corpus") {
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      std::ofstream file(std::filesystem::path(given[1]) / ("input" + std::to_string(i)),
                         std::ios::binary);
      if (!(file << seeds[i])) {
        std::fprintf(stderr, "%s: cannot write there\n", given[1]);
        return 2;
      }
    }
    return 0;
  }
  qwen38::testing::run_files(given);
  if (!given.empty()) return 0;
  constexpr std::uint64_t seed = 20'240'918;
  constexpr int rounds = 2000;
  constexpr std::size_t most_mutated = 4096;  // longer ones are long in one way only
  std::printf("%zu inputs, seed %llu, %d mutations\n", seeds.size(),
              static_cast<unsigned long long>(seed), rounds);
  std::fflush(stdout);
  std::vector<std::string> short_seeds;
  for (auto const& input : seeds) {
    qwen38::testing::run_input(input);
    if (input.size() <= most_mutated) short_seeds.push_back(input);
  }
  std::mt19937_64 random(seed);
  qwen38::testing::text_mutator const mutate{pieces, 24, 200, short_seeds};
  for (int round = 0; round < rounds; ++round) {
    qwen38::testing::run_input(mutate(short_seeds[random() % short_seeds.size()], random));
  }
  return 0;
}
