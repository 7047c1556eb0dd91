// SPDX-License-Identifier: Apache-2.0
#include "text/json_chars.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "text/json_escape.hpp"

namespace qwen38::text {
namespace {

using node = byte_grammar::node;

/// What may follow inside a character: the states between the bytes of well-formed UTF-8.
enum class utf8_state { whole, one, two, three, after_e0, after_ed, after_f0, after_f4 };
constexpr std::size_t utf8_states = 8;

struct utf8_range {
  utf8_state from;
  unsigned char low;
  unsigned char high;
  utf8_state to;
};

/// Everything but ASCII (Unicode 15, table 3-7).
constexpr auto utf8_ranges() {
  using enum utf8_state;
  return std::to_array<utf8_range>({{whole, 0xC2, 0xDF, one},
                                    {whole, 0xE0, 0xE0, after_e0},
                                    {whole, 0xE1, 0xEC, two},
                                    {whole, 0xED, 0xED, after_ed},
                                    {whole, 0xEE, 0xEF, two},
                                    {whole, 0xF0, 0xF0, after_f0},
                                    {whole, 0xF1, 0xF3, three},
                                    {whole, 0xF4, 0xF4, after_f4},
                                    {one, 0x80, 0xBF, whole},
                                    {two, 0x80, 0xBF, one},
                                    {three, 0x80, 0xBF, two},
                                    {after_e0, 0xA0, 0xBF, one},
                                    {after_ed, 0x80, 0x9F, one},
                                    {after_f0, 0x90, 0xBF, two},
                                    {after_f4, 0x80, 0x8F, two}});
}

/// One character beyond ASCII.
void add_others(byte_grammar& grammar, node from, node to) {
  std::array<node, utf8_states> at{};
  for (std::size_t i = 1; i < utf8_states; ++i) at[i] = grammar.add_node();
  for (auto const& range : utf8_ranges()) {
    node const begin =
        range.from == utf8_state::whole ? from : at[static_cast<std::size_t>(range.from)];
    node const end = range.to == utf8_state::whole ? to : at[static_cast<std::size_t>(range.to)];
    grammar.add_bytes(begin, range.low, range.high, end);
  }
}

bool needs_escape(std::size_t c, json_form form) {
  return c < 0x20 || c == '"' || c == '\\' || (c == '<' && form == json_form::inside_tags);
}

/// Characters of ASCII that stand for themselves.
char_set plain_chars(json_form form) {
  char_set out;
  for (std::size_t c = 0; c < out.ascii.size(); ++c) out.ascii[c] = !needs_escape(c, form);
  return out;
}

void add_hex(byte_grammar& grammar, node from, int digits, node to) {
  for (; digits > 0; --digits) {
    node const next = digits == 1 ? to : grammar.add_node();
    grammar.add_bytes(from, '0', '9', next);
    grammar.add_bytes(from, 'A', 'F', next);
    grammar.add_bytes(from, 'a', 'f', next);
    from = next;
  }
}

/// What follows `\u`.
void add_unicode_escape(byte_grammar& grammar, node from, node to) {
  node const rest = grammar.add_node();  // of a scalar that is not in D000 .. DFFF
  grammar.add_bytes(from, '0', '9', rest);
  grammar.add_bytes(from, 'A', 'C', rest);
  grammar.add_bytes(from, 'a', 'c', rest);
  grammar.add_any_of(from, "EeFf", rest);
  add_hex(grammar, rest, 3, to);

  node const d = grammar.add_node();
  grammar.add_any_of(from, "Dd", d);
  node const below = grammar.add_node();
  grammar.add_bytes(d, '0', '7', below);
  add_hex(grammar, below, 2, to);

  node const high = grammar.add_node();
  grammar.add_any_of(d, "89ABab", high);
  node const second = grammar.add_node();
  add_hex(grammar, high, 2, second);
  node const second_d = grammar.literal(second, "\\u");
  node const low = grammar.add_node();
  node const last = grammar.add_node();
  grammar.add_any_of(second_d, "Dd", low);
  grammar.add_any_of(low, "CDEFcdef", last);
  add_hex(grammar, last, 2, to);
}

}  // namespace

std::string quoted_json(std::string_view text, json_form form) {
  std::string out = "\"";
  for (char const c : text) {
    if (c == '<' && form == json_form::inside_tags) {
      out += "\\u003c";
    } else {
      append_json_escaped(out, {&c, 1});
    }
  }
  return out + '"';
}

void add_char_of(byte_grammar& grammar, node from, char_set const& set, json_form form, node to) {
  if (set.others) add_others(grammar, from, to);
  for (std::size_t c = 0; c < set.ascii.size(); ++c) {
    if (!set.ascii[c]) continue;
    char const byte = static_cast<char>(c);
    if (needs_escape(c, form)) {
      auto const spelled = quoted_json({&byte, 1}, form);
      grammar.add_literal(from, std::string_view(spelled).substr(1, spelled.size() - 2), to);
      continue;
    }
    auto const low = static_cast<unsigned char>(c);
    while (c + 1 < set.ascii.size() && set.ascii[c + 1] && !needs_escape(c + 1, form)) ++c;
    grammar.add_bytes(from, low, static_cast<unsigned char>(c), to);
  }
}

void add_json_char(byte_grammar& grammar, node from, json_form form, node to) {
  char_set plain = plain_chars(form);
  plain.others = true;
  add_char_of(grammar, from, plain, form, to);
  node const escape = grammar.literal(from, "\\");
  grammar.add_any_of(escape, "\"\\/bfnrt", to);
  add_unicode_escape(grammar, grammar.literal(escape, "u"), to);
}

void add_other_name(byte_grammar& grammar, node from, std::span<std::string const> names,
                    json_form form, node to) {
  // Once it has left all names, a name goes on in these nodes, one per state of UTF-8.
  std::array<node, utf8_states> free{};
  for (node& one : free) one = grammar.add_node();
  auto const plain = plain_chars(form);
  auto const ranges_of = [&](utf8_state at) {
    std::vector<utf8_range> out;
    for (auto const& range : utf8_ranges()) {
      if (range.from == at) out.push_back(range);
    }
    if (at != utf8_state::whole) return out;
    for (std::size_t c = 0; c < plain.ascii.size(); ++c) {
      auto const byte = static_cast<unsigned char>(c);
      if (plain.ascii[c]) out.push_back({at, byte, byte, at});
    }
    return out;
  };
  for (std::size_t i = 0; i < utf8_states; ++i) {
    for (auto const& range : ranges_of(static_cast<utf8_state>(i))) {
      grammar.add_bytes(free[i], range.low, range.high, free[static_cast<std::size_t>(range.to)]);
    }
  }
  grammar.add_byte(free[0], '"', to);

  struct beginning {
    node at = -1;
    utf8_state state = utf8_state::whole;
    bool is_name = false;
    std::map<unsigned char, std::size_t> next;
  };
  std::vector<beginning> trie(1);
  trie[0].at = grammar.literal(from, "\"");
  for (std::string const& name : names) {
    std::size_t at = 0;
    for (char const c : name) {
      auto const byte = static_cast<unsigned char>(c);
      auto const known = trie[at].next.find(byte);
      if (known != trie[at].next.end()) {
        at = known->second;
        continue;
      }
      auto state = utf8_state::whole;
      for (auto const& range : ranges_of(trie[at].state)) {
        if (range.low <= byte && byte <= range.high) state = range.to;
      }
      trie[at].next[byte] = trie.size();
      trie.push_back({grammar.add_node(), state, false, {}});
      at = trie.size() - 1;
    }
    trie[at].is_name = true;
  }
  for (beginning const& here : trie) {
    bool const whole = here.state == utf8_state::whole;
    for (auto const& range : ranges_of(here.state)) {
      for (int byte = range.low; byte <= range.high; ++byte) {
        auto const b = static_cast<unsigned char>(byte);
        auto const next = here.next.find(b);
        grammar.add_bytes(here.at, b, b,
                          next != here.next.end() ? trie[next->second].at
                                                  : free[static_cast<std::size_t>(range.to)]);
      }
    }
    if (whole && !here.is_name) grammar.add_byte(here.at, '"', to);
  }
}

}  // namespace qwen38::text
