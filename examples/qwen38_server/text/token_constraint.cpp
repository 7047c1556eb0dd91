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

// Nodes that go on from one, from which on it pays to ask whether all of them are allowed.
constexpr std::size_t worth_asking = 32;

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

void token_constraint::walk(std::vector<std::uint32_t>& mask) {
  mask.assign(rules_.words->mask_words(), 0);
  path_.resize(rules_.words->longest() + 1);
  path_[0] = at_;
  auto const nodes = rules_.words->nodes();
  auto const allow = [&, ids = rules_.words->ids()](std::int32_t first, std::int32_t behind) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(behind); ++i) {
      auto const id = static_cast<std::uint32_t>(ids[i]);
      mask[id / 32] |= 1U << id % 32;
    }
  };
  for (std::size_t i = 0; i + 1 < nodes.size();) {
    auto const& here = nodes[i];
    auto const behind = static_cast<std::size_t>(here.behind);
    auto const depth = static_cast<std::size_t>(here.depth);
    auto const before = path_[depth];
    if (behind - i >= worth_asking && automaton_.reads_all(before, here.below, here.longest)) {
      allow(here.first, nodes[behind].first);
      i = behind;
      continue;
    }
    auto const next = automaton_.step(before, here.byte);
    if (next == byte_automaton::dead) {
      i = behind;
      continue;
    }
    path_[depth + 1] = next;
    ++i;
    allow(here.first, nodes[i].first);
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
