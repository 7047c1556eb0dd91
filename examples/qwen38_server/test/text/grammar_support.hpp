// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_automaton.hpp"

namespace qwen38::text::testing {

inline std::shared_ptr<byte_grammar const> shared(byte_grammar grammar) {
  return std::make_shared<byte_grammar const>(std::move(grammar));
}

/// Whether a grammar reads a text, and whether it reads the beginning of one.
class reader {
 public:
  explicit reader(byte_grammar grammar) : automaton_(shared(std::move(grammar))) {}

  [[nodiscard]] std::optional<byte_automaton::state> after(std::string_view text) {
    auto at = automaton_.start();
    for (char const c : text) {
      at = automaton_.step(at, static_cast<unsigned char>(c));
      if (at == byte_automaton::dead) return std::nullopt;
    }
    return at;
  }
  [[nodiscard]] bool reads(std::string_view text) {
    auto const at = after(text);
    return at && automaton_.accepts(*at);
  }
  [[nodiscard]] bool begins(std::string_view text) { return after(text).has_value(); }

  [[nodiscard]] bool goes_on(byte_automaton::state at, std::string_view text) {
    for (char const c : text) {
      at = automaton_.step(at, static_cast<unsigned char>(c));
      if (at == byte_automaton::dead) return false;
    }
    return true;
  }

  /// A text of the grammar that begins with `beginning` and goes on byte by byte at random; nullopt
  /// if it does not come to an end in time.
  [[nodiscard]] std::optional<std::string> random_text(std::mt19937_64& random, std::size_t longest,
                                                       std::string const& beginning = "") {
    std::string out = beginning;
    auto at = after(out).value();
    while (out.size() < longest) {
      if (automaton_.accepts(at) && (!automaton_.goes_on(at) || random() % 2 == 0)) return out;
      std::vector<unsigned char> next;
      for (int byte = 0; byte < 256; ++byte) {
        auto const b = static_cast<unsigned char>(byte);
        if (automaton_.step(at, b) == byte_automaton::dead) continue;
        // What closes something comes more often, or nothing would end.
        bool const closes =
            std::string_view("\"}]0e").find(static_cast<char>(b)) != std::string_view::npos;
        next.insert(next.end(), closes ? 20 : 1, b);
      }
      if (next.empty()) return std::nullopt;
      unsigned char const b = next[random() % next.size()];
      out += static_cast<char>(b);
      at = automaton_.step(at, b);
    }
    return std::nullopt;
  }

 private:
  byte_automaton automaton_;
};

}  // namespace qwen38::text::testing
