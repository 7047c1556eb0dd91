// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz target without a fuzzer: on the files named as arguments, else on seeded mutations
// of good headers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "test/support/fuzz_replay.hpp"

namespace {

// The header of a good file has 64 bytes of data, which is what the target appends.
std::vector<std::string> const seeds = {
    "{}",
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}})",
    R"({"a":{"dtype":"BF16","shape":[2,8],"data_offsets":[0,32]},"b":{"dtype":"F32","shape":[8],"data_offsets":[32,64]}})",
    R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"I8","shape":[0,7],"data_offsets":[8,8]},)"
    R"("t":{"dtype":"F8_E4M3","shape":[7,8],"data_offsets":[8,64]}}    )",
};
std::vector<std::string> const tokens = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"",
                                         "\\u0000",
                                         "null",
                                         "true",
                                         "-1",
                                         "0",
                                         "64",
                                         "1e999",
                                         "0.5",
                                         "9223372036854775807",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "\"dtype\"",
                                         "\"shape\"",
                                         "\"data_offsets\"",
                                         "\"__metadata__\"",
                                         "\"a\"",
                                         "\"U8\"",
                                         "\"Q4\"",
                                         "[[[[[[[[",
                                         std::string("\0", 1),
                                         "\xff"};

}  // namespace

int main(int argc, char** argv) {
  qwen38::testing::run_files(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  if (argc > 1) return 0;
  constexpr std::uint64_t seed = 20'240'917;
  constexpr int rounds = 40'000;
  std::printf("seed %llu, %d mutations\n", static_cast<unsigned long long>(seed), rounds);
  std::fflush(stdout);
  std::mt19937_64 random(seed);
  qwen38::testing::text_mutator const mutate{tokens, 12, 80};
  for (std::string const& header : seeds) qwen38::testing::run_input(header);
  for (int round = 0; round < rounds; ++round) {
    std::string text = mutate(seeds[random() % seeds.size()], random);
    // Some inputs as whole files, so that the length field is mutated too.
    if (random() % 4 == 0) {
      std::string file(8, '\0');
      file[0] = static_cast<char>(text.size() & 0xff);
      file[1] = static_cast<char>(text.size() >> 8);
      text = mutate(file + text + std::string(64, 'd'), random);
    }
    qwen38::testing::run_input(text);
  }
  return 0;
}
