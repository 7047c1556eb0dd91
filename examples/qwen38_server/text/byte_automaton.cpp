// SPDX-License-Identifier: Apache-2.0
#include "text/byte_automaton.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace qwen38::text {
namespace {

constexpr byte_automaton::state unknown = -2;

std::size_t mixed(std::size_t seed, std::uint64_t value) noexcept {
  std::uint64_t x = (static_cast<std::uint64_t>(seed) ^ value) * 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(x ^ (x >> 32U));
}

}  // namespace

std::size_t byte_automaton::hash::operator()(std::vector<place> const& places) const noexcept {
  std::size_t out = places.size();
  for (place const& one : places) {
    out = mixed(out, static_cast<std::uint64_t>(one.node) << 32U | one.open);
  }
  return out;
}

std::size_t byte_automaton::hash::operator()(frame const& one) const noexcept {
  return mixed(1, static_cast<std::uint64_t>(one.back) << 32U | one.below);
}

byte_automaton::byte_automaton(std::shared_ptr<byte_grammar const> grammar)
    : grammar_(std::move(grammar)) {
  static_cast<void>(intern({{grammar_->root().start, 0}}));
}

byte_automaton::stack byte_automaton::push(byte_grammar::node back, stack below) {
  frame const top{back, below};
  auto const [at, added] = stacks_.try_emplace(top, static_cast<stack>(frames_.size() + 1));
  if (added) frames_.push_back(top);
  return at->second;
}

/// Follows all edges that read nothing; what stays are the places where a byte can be read, and the
/// end of the root.
void byte_automaton::close(std::vector<place>& reached) {
  std::set<place> seen(reached.begin(), reached.end());
  work_.assign(seen.begin(), seen.end());
  reached.clear();
  auto const visit = [&](byte_grammar::node node, stack open) {
    if (seen.insert({node, open}).second) work_.push_back({node, open});
  };
  while (!work_.empty()) {
    auto const [node, open] = work_.back();
    work_.pop_back();
    bool const root_ends = node == grammar_->root().end && open == 0;
    if (root_ends || !grammar_->bytes_of(node).empty()) reached.push_back({node, open});
    for (byte_grammar::node const to : grammar_->empties_of(node)) visit(to, open);
    for (auto const& called : grammar_->calls_of(node))
      visit(called.start, push(called.back, open));
    if (grammar_->ends_rule(node) && open != 0) {
      frame const top = frames_[open - 1];
      visit(top.back, top.below);
    }
  }
  std::ranges::sort(reached);
}

byte_automaton::state byte_automaton::intern(std::vector<place> reached) {
  close(reached);
  if (reached.empty()) return dead;
  auto const [at, added] = ids_.try_emplace(reached, static_cast<state>(states_.size()));
  if (!added) return at->second;
  known made;
  made.steps.fill(unknown);
  for (place const& one : reached) {
    if (one.node == grammar_->root().end && one.open == 0) made.accepts = true;
    if (!grammar_->bytes_of(one.node).empty()) made.goes_on = true;
  }
  made.places = std::move(reached);
  states_.push_back(std::move(made));
  return at->second;
}

byte_automaton::state byte_automaton::step(state from, unsigned char byte) {
  state const cached = get(from).steps[byte];
  if (cached != unknown) return cached;
  std::vector<place> reached;
  // The bytes around this one that all edges treat alike.
  int low = 0;
  int high = 255;
  for (place const& one : get(from).places) {
    for (auto const& edge : grammar_->bytes_of(one.node)) {
      if (byte > edge.high) {
        low = std::max(low, edge.high + 1);
      } else if (byte < edge.low) {
        high = std::min(high, edge.low - 1);
      } else {
        low = std::max<int>(low, edge.low);
        high = std::min<int>(high, edge.high);
        reached.push_back({edge.to, one.open});
      }
    }
  }
  state const to = reached.empty() ? dead : intern(std::move(reached));
  auto& steps = states_[static_cast<std::size_t>(from)].steps;
  std::fill(steps.begin() + low, steps.begin() + high + 1, to);
  return to;
}

byte_automaton::stride byte_automaton::stride_of(state at) {
  if (auto const& found = get(at).next) return *found;
  stride out{dead, ~text_classes{0}};
  // Text is mostly letters, and where no letter may follow a digit may.
  for (unsigned char const byte : {'a', 'A', '0'}) {
    if (out.to == dead) out.to = step(at, byte);
  }
  auto const leave_out = [&](text_class kind) { out.kinds &= ~static_cast<text_classes>(kind); };
  for (int byte = 0; byte < 256; ++byte) {
    auto const value = static_cast<unsigned char>(byte);
    if (step(at, value) != out.to)
      leave_out(byte < 0x80 ? class_of_ascii(value) : text_class::broken);
  }
  for (utf8_form const& form : utf8_forms()) {
    std::set<state> reached = {at};
    for (utf8_range const& range : form.bytes) {
      std::set<state> next;
      for (state const from : reached) {
        for (int byte = range.low; byte <= range.high; ++byte)
          next.insert(step(from, static_cast<unsigned char>(byte)));
      }
      reached = std::move(next);
      if (reached.contains(dead)) break;
    }
    if (reached != std::set<state>{out.to}) leave_out(form.kind);
  }
  if (out.to == dead) out.kinds = 0;
  states_[static_cast<std::size_t>(at)].next = out;
  return out;
}

bool byte_automaton::reads_all(state at, text_classes kinds, std::int32_t longest) {
  for (; longest > 0 && kinds != 0; --longest) {
    auto const next = stride_of(at);
    if ((kinds & ~next.kinds) != 0) return false;
    if (next.to == at) return true;
    at = next.to;
  }
  return true;
}

void byte_automaton::forget_all_but(state kept) {
  std::vector<place> places = get(kept).places;
  auto const frames = std::exchange(frames_, {});
  states_.clear();
  ids_.clear();
  stacks_.clear();
  for (place& one : places) {
    std::vector<byte_grammar::node> backs;  // from the top down
    for (stack at = one.open; at != 0; at = frames[at - 1].below)
      backs.push_back(frames[at - 1].back);
    one.open = 0;
    for (auto back = backs.rbegin(); back != backs.rend(); ++back) one.open = push(*back, one.open);
  }
  static_cast<void>(intern(std::move(places)));
}

}  // namespace qwen38::text
