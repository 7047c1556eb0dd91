// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen38::text {

/// A context-free language of byte strings: a network of nodes joined by edges that read one byte,
/// read nothing, or read what a rule reads and come back. A rule is a part of the network between
/// two nodes of its own. Text is in the language if its bytes lead from the root rule's start to
/// its end.
///
/// Whoever builds a grammar keeps rules from calling themselves before they have read a byte; no
/// automaton could follow that.
class byte_grammar {
 public:
  using node = std::int32_t;
  struct rule {
    node start = -1;
    node end = -1;
  };
  struct byte_edge {
    unsigned char low;
    unsigned char high;
    node to;
  };
  struct call_edge {
    node start;  ///< of the rule called
    node back;   ///< where it goes on after the rule
  };
  /// What until() looks for, and where it goes on behind it; -1: the tag must not occur.
  struct tag {
    std::string_view text;
    node then;
  };

  /// A schema that unrolls to more than this is refused.
  static constexpr std::size_t max_nodes = 200'000;

  byte_grammar();

  /// Throws qwen38::error (invalid_argument) beyond max_nodes.
  node add_node();
  rule add_rule();

  void add_bytes(node from, unsigned char low, unsigned char high, node to);
  void add_byte(node from, char byte, node to) {
    add_bytes(from, static_cast<unsigned char>(byte), static_cast<unsigned char>(byte), to);
  }
  void add_any_of(node from, std::string_view bytes, node to);
  void add_empty(node from, node to);
  void add_call(node from, rule const& called, node to);
  /// Reads `text`; the empty text nothing.
  void add_literal(node from, std::string_view text, node to);
  /// The same to a node of its own, which is returned.
  [[nodiscard]] node literal(node from, std::string_view text);

  /// Reads any bytes up to the first tag to be complete (the longest, of several complete at the
  /// same byte) and with it. No tag may be empty. May also stop before each byte at `stop`, unless
  /// that is -1.
  void add_until(node from, std::span<tag const> tags, node stop = -1);

  [[nodiscard]] rule const& root() const noexcept { return root_; }
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }

  [[nodiscard]] std::span<byte_edge const> bytes_of(node at) const { return get(at).bytes; }
  [[nodiscard]] std::span<node const> empties_of(node at) const { return get(at).empties; }
  [[nodiscard]] std::span<call_edge const> calls_of(node at) const { return get(at).calls; }
  [[nodiscard]] bool ends_rule(node at) const { return get(at).ends_rule; }

 private:
  struct edges {
    std::vector<byte_edge> bytes;
    std::vector<node> empties;
    std::vector<call_edge> calls;
    bool ends_rule = false;
  };
  [[nodiscard]] edges const& get(node at) const { return nodes_[static_cast<std::size_t>(at)]; }
  [[nodiscard]] edges& get(node at) { return nodes_[static_cast<std::size_t>(at)]; }

  std::vector<edges> nodes_;
  rule root_;
};

}  // namespace qwen38::text
