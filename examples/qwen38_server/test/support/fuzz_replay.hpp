// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

// What programs share that run a fuzz target without a fuzzer.

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace qwen38::testing {

inline void run_input(std::string const& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<std::uint8_t const*>(input.data()), input.size());
}

/// Runs each file as it is, such as a finding of a fuzzer.
inline void run_files(std::span<char* const> paths) {
  for (char const* const path : paths) {
    std::ifstream file(path, std::ios::binary);
    run_input({std::istreambuf_iterator<char>(file), {}});
  }
}

/// How a text is changed: pieces of the input language, the longest text replaced or erased and the
/// longest copied, and whole inputs to copy from, if any.
struct text_mutator {
  std::vector<std::string> const& pieces;
  std::size_t most_replaced;
  std::size_t most_copied;
  std::span<std::string const> others = {};

  /// One to four changes.
  [[nodiscard]] std::string operator()(std::string text, std::mt19937_64& random) const {
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      std::size_t const at = below(text.size() + 1);
      std::size_t const length = below(most_replaced);
      switch (below(others.empty() ? 6 : 7)) {
        case 0: text.insert(at, pieces[below(pieces.size())]); break;
        case 1: text.replace(at, length, pieces[below(pieces.size())]); break;
        case 2: text.erase(at, length); break;
        case 3: text.insert(below(text.size() + 1), text.substr(at, below(most_copied))); break;
        case 4:
          if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
        case 5:
          if (at < text.size()) text[at] = static_cast<char>('0' + below(10));
          break;
        default: {
          std::string const& other = others[below(others.size())];
          text.replace(at, length, other, below(other.size() + 1), below(most_copied));
          break;
        }
      }
    }
    return text;
  }
};

}  // namespace qwen38::testing
