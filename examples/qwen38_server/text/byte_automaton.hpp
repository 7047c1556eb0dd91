// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "text/byte_grammar.hpp"
#include "text/text_classes.hpp"

namespace qwen38::text {

/// Follows a byte_grammar byte by byte. A state is the set of all places in the grammar, each with
/// the rules that are open there, that the bytes so far may have led to; states and steps are made
/// when they are first asked for and kept. Not thread-safe.
class byte_automaton {
 public:
  using state = std::int32_t;
  static constexpr state dead = -1;

  explicit byte_automaton(std::shared_ptr<byte_grammar const> grammar);

  /// Before the first byte.
  [[nodiscard]] state start() const noexcept { return 0; }
  /// The state after one more byte; dead: no text of the language goes on so. from: not dead.
  [[nodiscard]] state step(state from, unsigned char byte);
  /// True only where every text of up to `longest` characters of these kinds may follow, also one
  /// that breaks off inside its last character; false also where it is not seen at once. at: not
  /// dead.
  [[nodiscard]] bool reads_all(state at, text_classes kinds, std::int32_t longest);
  /// The bytes so far are a text of the language.
  [[nodiscard]] bool accepts(state at) const { return get(at).accepts; }
  /// Some byte may follow.
  [[nodiscard]] bool goes_on(state at) const { return get(at).goes_on; }

  [[nodiscard]] std::size_t size() const noexcept { return states_.size(); }
  /// Forgets all states but one, which is start() afterwards.
  void forget_all_but(state kept);

 private:
  using stack = std::uint32_t;  // 0: empty
  struct place {
    byte_grammar::node node;
    stack open;
    auto operator<=>(place const&) const = default;
  };
  struct frame {
    byte_grammar::node back;
    stack below;
    auto operator<=>(frame const&) const = default;
  };
  struct hash {
    std::size_t operator()(std::vector<place> const& places) const noexcept;
    std::size_t operator()(frame const& one) const noexcept;
  };
  /// Where every character of these kinds leads, whichever it is.
  struct stride {
    state to = dead;
    text_classes kinds = 0;
  };
  struct known {
    std::vector<place> places;
    std::array<state, 256> steps;
    bool accepts = false;
    bool goes_on = false;
    std::optional<stride> next;
  };

  [[nodiscard]] known const& get(state at) const { return states_[static_cast<std::size_t>(at)]; }
  [[nodiscard]] stack push(byte_grammar::node back, stack below);
  [[nodiscard]] state intern(std::vector<place> reached);
  void close(std::vector<place>& reached);
  [[nodiscard]] stride stride_of(state at);

  std::shared_ptr<byte_grammar const> grammar_;
  std::vector<known> states_;
  std::unordered_map<std::vector<place>, state, hash> ids_;
  std::vector<frame> frames_;  // of the stacks; stack s is frame s - 1 on its below
  std::unordered_map<frame, stack, hash> stacks_;
  std::vector<place> work_;  // of close()
};

}  // namespace qwen38::text
