// SPDX-License-Identifier: Apache-2.0
#include "text/regex_grammar.hpp"

#include <cstddef>
#include <string>

#include "support/error.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

using node = byte_grammar::node;

constexpr int most_repeats = 1000;
constexpr int most_groups_deep = 32;

/// Reads the pattern from left to right and builds as it goes; what is repeated is read again for
/// each copy.
class regex_reader {
 public:
  regex_reader(byte_grammar& grammar, std::string_view pattern, json_form form)
      : grammar_(grammar), pattern_(pattern), form_(form) {}

  void read(node from, node to) {
    alternatives(from, to, true);
    if (more()) invalid("a ) without its (");
  }

 private:
  [[nodiscard]] bool more() const { return at_ < pattern_.size(); }
  [[nodiscard]] bool next_is(char c) const { return more() && pattern_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(error_kind kind, std::string const& what) const {
    throw error(kind, "pattern: " + what + " at byte " + std::to_string(at_) +
                          (kind == error_kind::unsupported ? " is not supported." : "."));
  }
  [[noreturn]] void invalid(std::string const& what) const {
    fail(error_kind::invalid_argument, what);
  }
  [[noreturn]] void refuse(std::string const& what) const { fail(error_kind::unsupported, what); }

  static char_set range(unsigned char low, unsigned char high) {
    char_set out;
    for (std::size_t c = low; c <= high; ++c) out.ascii.set(c);
    return out;
  }
  static char_set inverted(char_set set) {
    set.ascii.flip();
    set.others = !set.others;
    return set;
  }
  static char_set all_of(std::string_view chars) {
    char_set out;
    for (char const c : chars) out.ascii.set(static_cast<std::size_t>(c));
    return out;
  }
  static char_set any() { return inverted(range(0, 0x1F)); }

  void anything(node at) {
    char_set set = any();
    add_char_of(grammar_, at, set, form_, at);
  }

  void alternatives(node from, node to, bool outermost) {
    do {
      node at = grammar_.add_node();
      grammar_.add_empty(from, at);
      if (outermost && !take('^')) anything(at);
      at = sequence(at);
      if (outermost && !take('$')) {
        node const tail = grammar_.add_node();
        grammar_.add_empty(at, tail);
        anything(tail);
        at = tail;
      }
      grammar_.add_empty(at, to);
    } while (take('|'));
  }

  node sequence(node at) {
    while (more() && !next_is('|') && !next_is(')') && !next_is('$')) at = repeated(at);
    if (next_is('$') && (at_ + 1 < pattern_.size() && pattern_[at_ + 1] != '|')) {
      refuse("$ before the end of a branch");
    }
    if (next_is('$') && depth_ > 0) refuse("$ inside a group");
    return at;
  }

  node repeated(node from) {
    std::size_t const begin = at_;
    // Read once to find what follows, on nodes that nothing leads to.
    atom(grammar_.add_node());
    auto const [least, most] = quantifier();
    std::size_t const end = at_;
    node at = from;
    auto const copy = [&](node start) {
      at_ = begin;
      return atom(start);
    };
    for (int i = 0; i < least; ++i) at = copy(at);
    if (most < 0) {
      node const loop = grammar_.add_node();
      grammar_.add_empty(at, loop);
      grammar_.add_empty(copy(loop), loop);
      at = loop;
    } else if (most > least) {
      node const out = grammar_.add_node();
      for (int i = least; i < most; ++i) {
        grammar_.add_empty(at, out);
        at = copy(at);
      }
      grammar_.add_empty(at, out);
      at = out;
    }
    at_ = end;
    return at;
  }

  struct counts {
    int least;
    int most;  // -1: any number
  };

  counts quantifier() {
    counts out{1, 1};
    if (take('*')) {
      out = {0, -1};
    } else if (take('+')) {
      out = {1, -1};
    } else if (take('?')) {
      out = {0, 1};
    } else if (take('{')) {
      out.least = number();
      out.most = out.least;
      if (take(',')) out.most = next_is('}') ? -1 : number();
      if (!take('}')) invalid("an open {");
      if (out.most >= 0 && out.most < out.least) invalid("a quantifier that counts down");
    } else {
      return out;
    }
    if (next_is('?') || next_is('+')) refuse("a lazy or possessive quantifier");
    if (next_is('*') || next_is('{')) invalid("a quantifier after a quantifier");
    return out;
  }

  int number() {
    int out = 0;
    if (!more() || pattern_[at_] < '0' || pattern_[at_] > '9')
      invalid("a quantifier without number");
    while (more() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      out = out * 10 + (pattern_[at_++] - '0');
      if (out > most_repeats) refuse("a count above " + std::to_string(most_repeats));
    }
    return out;
  }

  /// Reads one character, class or group and returns the node behind it.
  node atom(node from) {
    node const to = grammar_.add_node();
    char const c = pattern_[at_];
    if (c == '(') {
      ++at_;
      if (take('?') && !take(':')) refuse("a group that begins with (?");
      if (++depth_ > most_groups_deep) refuse("a group so deep");
      alternatives(from, to, false);
      --depth_;
      if (!take(')')) invalid("an open (");
    } else if (c == '[') {
      ++at_;
      add_char_of(grammar_, from, char_class(), form_, to);
    } else if (c == '.') {
      ++at_;
      add_char_of(grammar_, from, any(), form_, to);
    } else if (c == '\\') {
      ++at_;
      add_char_of(grammar_, from, escape(), form_, to);
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      invalid("a quantifier after nothing");
    } else if (c == '^') {
      refuse("^ behind the beginning of a branch");
    } else if (static_cast<unsigned char>(c) < 0x80) {
      ++at_;
      add_char_of(grammar_, from, all_of({&c, 1}), form_, to);
    } else {
      std::size_t const begin = at_;
      static_cast<void>(next_scalar(pattern_, at_));
      grammar_.add_literal(from, pattern_.substr(begin, at_ - begin), to);
    }
    return to;
  }

  char_set escape() {
    if (!more()) invalid("a \\ at the end");
    char const c = pattern_[at_];
    char_set const words = [] {
      char_set out = range('a', 'z');
      out.ascii |= range('A', 'Z').ascii | range('0', '9').ascii | all_of("_").ascii;
      return out;
    }();
    bool const letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    bool const digit = c >= '0' && c <= '9';
    if (static_cast<unsigned char>(c) >= 0x80) refuse("an escaped character beyond ASCII");
    if (!letter && !digit) {
      ++at_;
      return all_of({&c, 1});
    }
    ++at_;
    switch (c) {
      case 'd': return range('0', '9');
      case 'D': return inverted(range('0', '9'));
      case 'w': return words;
      case 'W': return inverted(words);
      case 's': return all_of(" \t\n\r\f\v");
      case 'S': return inverted(all_of(" \t\n\r\f\v"));
      case 'n': return all_of("\n");
      case 'r': return all_of("\r");
      case 't': return all_of("\t");
      case 'f': return all_of("\f");
      case 'v': return all_of("\v");
      default: break;
    }
    --at_;
    refuse("this escape");
  }

  char_set char_class() {
    bool const inverse = take('^');
    char_set out;
    bool first = true;
    while (!next_is(']') || first) {
      first = false;
      if (!more()) invalid("an open [");
      char_set const low = class_char();
      if (next_is('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        ++at_;
        char_set const high = class_char();
        std::size_t const from = only(low);
        std::size_t const to = only(high);
        if (from > to) invalid("a range that runs backwards");
        out.ascii |= range(static_cast<unsigned char>(from), static_cast<unsigned char>(to)).ascii;
      } else {
        out.ascii |= low.ascii;
        out.others = out.others || low.others;
      }
    }
    ++at_;
    return inverse ? inverted(out) : out;
  }

  char_set class_char() {
    if (!more()) invalid("an open [");
    if (take('\\')) return escape();
    char const c = pattern_[at_];
    if (static_cast<unsigned char>(c) >= 0x80) refuse("a character beyond ASCII in a class");
    ++at_;
    return all_of({&c, 1});
  }

  [[nodiscard]] std::size_t only(char_set const& set) const {
    if (set.others || set.ascii.count() != 1) invalid("a range with a class for an end");
    std::size_t at = 0;
    while (!set.ascii[at]) ++at;
    return at;
  }

  byte_grammar& grammar_;
  std::string_view pattern_;
  json_form form_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

void add_regex(byte_grammar& grammar, node from, std::string_view pattern, json_form form,
               node to) {
  std::string const valid = repair_utf8(pattern);
  regex_reader(grammar, valid, form).read(from, to);
}

}  // namespace qwen38::text
