// SPDX-License-Identifier: Apache-2.0
#include "text/token_constraint.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "support/error.hpp"

namespace qwen38::text {
namespace {

// What one answer may keep: about 4 MiB of steps, and 8 MiB of masks at 248,077 ids.
constexpr std::size_t most_states = 4096;
constexpr std::size_t most_masks = 256;

}  // namespace

token_constraint::token_constraint(token_grammar rules)
    : rules_(std::move(rules)), automaton_(rules_.grammar), at_(automaton_.start()) {}

std::span<std::uint32_t const> token_constraint::mask() {
  if (auto const found = masks_.find(at_); found != masks_.end()) return found->second;
  if (automaton_.size() > most_states || masks_.size() == most_masks) {
    automaton_.forget_all_but(at_);
    at_ = automaton_.start();
    masks_.clear();
  }
  auto& made = masks_[at_];
  walk(made);
  return made;
}

/// In the order of the bytes, from each token on where it parts from the one before.
void token_constraint::walk(std::vector<std::uint32_t>& mask) {
  mask.assign(rules_.words->mask_words(), 0);
  path_.assign(1, at_);
  for (auto const& token : rules_.words->tokens()) {
    auto const shared = static_cast<std::size_t>(token.shared);
    // A beginning that is dead stays so for all tokens that share it.
    if (path_.size() <= shared) continue;
    path_.resize(shared + 1);
    for (std::size_t i = shared; i < token.bytes.size(); ++i) {
      auto const next = automaton_.step(path_.back(), static_cast<unsigned char>(token.bytes[i]));
      if (next == byte_automaton::dead) break;
      path_.push_back(next);
    }
    if (path_.size() <= token.bytes.size()) continue;
    auto const id = static_cast<std::uint32_t>(token.id);
    mask[id / 32] |= 1U << id % 32;
  }
}

void token_constraint::advance(std::int32_t id) {
  byte_automaton::state next = at_;
  if (rules_.words->source().is_special(id)) next = byte_automaton::dead;
  for (char const byte : rules_.words->source().token_bytes(id)) {
    if (next == byte_automaton::dead) break;
    next = automaton_.step(next, static_cast<unsigned char>(byte));
  }
  if (next == byte_automaton::dead) {
    throw error(error_kind::internal,
                "Token " + std::to_string(id) + " was chosen where the grammar does not allow it.");
  }
  at_ = next;
}

}  // namespace qwen38::text
