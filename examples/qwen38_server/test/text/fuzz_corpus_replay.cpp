// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without a fuzzer:
//   PROGRAM CORPUS ROUNDS      each line of CORPUS that begins with a brace, then seeded mutations
//   PROGRAM --input FILE...    each file as it is, such as a finding of libFuzzer
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

void run(std::string const& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<std::uint8_t const*>(input.data()), input.size());
}

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

std::string mutate(std::string text, std::vector<std::string> const& corpus,
                   std::mt19937_64& random) {
  auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    std::size_t const at = below(text.size() + 1);
    std::size_t const length = below(24);
    switch (below(7)) {
      case 0: text.insert(at, pieces[below(pieces.size())]); break;
      case 1: text.replace(at, length, pieces[below(pieces.size())]); break;
      case 2: text.erase(at, length); break;
      case 3: text.insert(below(text.size() + 1), text.substr(at, below(120))); break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 5:
        if (at < text.size()) text[at] = static_cast<char>('0' + below(10));
        break;
      default: {
        std::string const& other = corpus[below(corpus.size())];
        text.replace(at, length, other, below(other.size() + 1), below(120));
        break;
      }
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--input") {
    for (int i = 2; i < argc; ++i) {
      std::ifstream file(argv[i], std::ios::binary);
      run({std::istreambuf_iterator<char>(file), {}});
    }
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
  for (std::string const& input : corpus) run(input);
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round)
    run(mutate(corpus[random() % corpus.size()], corpus, random));
  return 0;
}
