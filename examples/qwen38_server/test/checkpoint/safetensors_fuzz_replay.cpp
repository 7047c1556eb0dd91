// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz target without a fuzzer: on the files named as arguments, else on seeded mutations
// of good headers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

void run(std::string const& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<std::uint8_t const*>(input.data()), input.size());
}

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

std::string mutate(std::string text, std::mt19937_64& random) {
  auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    std::size_t const at = below(text.size() + 1);
    std::size_t const length = below(12);
    switch (below(6)) {
      case 0: text.insert(at, tokens[below(tokens.size())]); break;
      case 1: text.replace(at, length, tokens[below(tokens.size())]); break;
      case 2: text.erase(at, length); break;
      case 3: text.insert(below(text.size() + 1), text.substr(at, below(80))); break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>('0' + below(10));
        break;
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    run({std::istreambuf_iterator<char>(file), {}});
  }
  if (argc > 1) return 0;
  constexpr std::uint64_t seed = 20'240'917;
  constexpr int rounds = 40'000;
  std::printf("seed %llu, %d mutations\n", static_cast<unsigned long long>(seed), rounds);
  std::fflush(stdout);
  std::mt19937_64 random(seed);
  for (std::string const& header : seeds) run(header);
  for (int round = 0; round < rounds; ++round) {
    std::string text = mutate(seeds[random() % seeds.size()], random);
    // Some inputs as whole files, so that the length field is mutated too.
    if (random() % 4 == 0) {
      std::string file(8, '\0');
      file[0] = static_cast<char>(text.size() & 0xff);
      file[1] = static_cast<char>(text.size() >> 8);
      text = mutate(file + text + std::string(64, 'd'), random);
    }
    run(text);
  }
  return 0;
}
