// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without a fuzzer:
//   PROGRAM CORPUS ROUNDS      each line of CORPUS that begins with a brace, then seeded mutations
//   PROGRAM --input FILE...    each file as it is, such as a finding of libFuzzer
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/fuzz_replay.hpp"

namespace {

std::vector<std::string> read_corpus(char const* path) {
  std::vector<std::string> inputs;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with(',')) line.pop_back();
    // The first line of the goldens opens the list.
    if (line.starts_with('{') && line.ends_with('}')) inputs.push_back(line);
  }
  return inputs;
}

std::vector<std::string> const pieces = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"",
                                         "\\\"",
                                         "\\u0000",
                                         "\\ud83d\\ude00",
                                         "\\ud83d",
                                         "\\u0301",
                                         "\\n",
                                         "null",
                                         "true",
                                         "false",
                                         "-1",
                                         "0",
                                         "300",
                                         "1e999",
                                         "0.1",
                                         "4194304",
                                         "\"\"",
                                         "\"a b\"",
                                         "18446744073709551616",
                                         "<think>",
                                         "</think>",
                                         "<|im_start|>",
                                         "<|im_end|>",
                                         "<tool_response>",
                                         "</tool_response>",
                                         "\"role\":\"system\"",
                                         "\"role\":\"tool\"",
                                         "\"role\":\"assistant\"",
                                         "\"content\":null",
                                         "\"arguments\":\"{\\\"a\\\":[1,{}]}\"",
                                         "\"arguments\":\"\"",
                                         "[[[[[[[[[[[[[[[[",
                                         "\xC4\xA0",
                                         "\xFF",
                                         std::string(1, '\0'),
                                         "\xE2\x80\xA8"};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--input") {
    qwen38::testing::run_files(std::span(argv, static_cast<std::size_t>(argc)).subspan(2));
    return 0;
  }
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CORPUS ROUNDS | --input FILE...\n", argv[0]);
    return 2;
  }
  auto const corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: has no line that is a JSON object\n", argv[1]);
    return 2;
  }
  int const rounds = std::atoi(argv[2]);
  constexpr std::uint64_t seed = 20'240'917;
  std::printf("%zu inputs, seed %llu, %d mutations\n", corpus.size(),
              static_cast<unsigned long long>(seed), rounds);
  std::fflush(stdout);
  for (std::string const& input : corpus) qwen38::testing::run_input(input);
  std::mt19937_64 random(seed);
  qwen38::testing::text_mutator const mutate{pieces, 24, 120, corpus};
  for (int round = 0; round < rounds; ++round) {
    qwen38::testing::run_input(mutate(corpus[random() % corpus.size()], random));
  }
  return 0;
}
