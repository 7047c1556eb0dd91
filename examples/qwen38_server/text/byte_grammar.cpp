// SPDX-License-Identifier: Apache-2.0
#include "text/byte_grammar.hpp"

#include <algorithm>
#include <map>

#include "support/error.hpp"

namespace qwen38::text {

byte_grammar::byte_grammar() : root_(add_rule()) {}

byte_grammar::node byte_grammar::add_node() {
  if (nodes_.size() == max_nodes) {
    throw error(error_kind::invalid_argument,
                "the grammar needs more than " + std::to_string(max_nodes) + " states.");
  }
  nodes_.emplace_back();
  return static_cast<node>(nodes_.size() - 1);
}

byte_grammar::rule byte_grammar::add_rule() {
  rule const made{add_node(), add_node()};
  get(made.end).ends_rule = true;
  return made;
}

void byte_grammar::add_bytes(node from, unsigned char low, unsigned char high, node to) {
  get(from).bytes.push_back({low, high, to});
}

void byte_grammar::add_any_of(node from, std::string_view bytes, node to) {
  for (char const byte : bytes) add_byte(from, byte, to);
}

void byte_grammar::add_empty(node from, node to) {
  get(from).empties.push_back(to);
}

void byte_grammar::add_call(node from, rule const& called, node to) {
  get(from).calls.push_back({called.start, to});
}

void byte_grammar::add_literal(node from, std::string_view text, node to) {
  if (text.empty()) {
    add_empty(from, to);
    return;
  }
  for (char const byte : text.substr(0, text.size() - 1)) {
    node const next = add_node();
    add_byte(from, byte, next);
    from = next;
  }
  add_byte(from, text.back(), to);
}

byte_grammar::node byte_grammar::literal(node from, std::string_view text) {
  node const to = add_node();
  add_literal(from, text, to);
  return to;
}

void byte_grammar::add_until(node from, std::span<tag const> tags, node stop) {
  // One node per proper beginning of a tag: the longest that the text so far ends with.
  std::map<std::string, node, std::less<>> at;
  at[""] = from;
  for (tag const& one : tags) {
    for (std::size_t length = 1; length < one.text.size(); ++length) {
      auto const [place, added] = at.try_emplace(std::string(one.text.substr(0, length)), -1);
      if (added) place->second = add_node();
    }
  }
  for (auto const& [beginning, here] : at) {
    if (stop >= 0) add_empty(here, stop);
    node run_to = -1;
    int run_from = 0;
    for (int byte = 0; byte <= 256; ++byte) {
      node to = -1;
      if (byte < 256) {
        std::string const text = beginning + static_cast<char>(byte);
        tag const* complete = nullptr;
        for (tag const& one : tags) {
          bool const longer = complete == nullptr || one.text.size() > complete->text.size();
          if (longer && text.ends_with(one.text)) complete = &one;
        }
        if (complete != nullptr) {
          to = complete->then;
        } else {
          std::string_view rest = text;
          while (!at.contains(rest)) rest.remove_prefix(1);
          to = at.find(rest)->second;
        }
      }
      if (byte > 0 && to == run_to && byte < 256) continue;
      if (run_to >= 0) {
        add_bytes(here, static_cast<unsigned char>(run_from), static_cast<unsigned char>(byte - 1),
                  run_to);
      }
      run_to = to;
      run_from = byte;
    }
  }
}

}  // namespace qwen38::text
