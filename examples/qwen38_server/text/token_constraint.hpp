// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/byte_automaton.hpp"
#include "text/byte_grammar.hpp"
#include "text/vocabulary.hpp"

namespace qwen38::text {

/// A language that an answer is held to, and the tokens it is written with. Shared, immutable.
struct token_grammar {
  std::shared_ptr<vocabulary const> words;
  std::shared_ptr<byte_grammar const> grammar;
};

/// One answer on its way through a token_grammar: which ids may come next, as a function of the ids
/// so far alone. A token may come iff some text of the language begins with the bytes so far and
/// its own; control tokens never. Masks are kept per state of the automaton, so that an answer pays
/// for a walk over the vocabulary where its state is new. Not thread-safe.
class token_constraint {
 public:
  explicit token_constraint(token_grammar rules);

  /// One bit per id, bit id % 32 of word id / 32, words()->mask_words() of them. Valid until the
  /// next call of a member that is not const.
  [[nodiscard]] std::span<std::uint32_t const> mask();

  /// The answer goes on with this token, which the mask allowed. Throws qwen38::error (internal)
  /// for another.
  void advance(std::int32_t id);

  /// The answer may end here: it is a text of the language.
  [[nodiscard]] bool may_end() const { return automaton_.accepts(at_); }
  /// Nothing can follow.
  [[nodiscard]] bool must_end() const { return !automaton_.goes_on(at_); }

 private:
  void walk(std::vector<std::uint32_t>& mask);

  token_grammar rules_;
  byte_automaton automaton_;
  byte_automaton::state at_;
  std::unordered_map<byte_automaton::state, std::vector<std::uint32_t>> masks_;
  std::vector<byte_automaton::state> path_;  // of walk(): the state before each byte of a token
};

}  // namespace qwen38::text
