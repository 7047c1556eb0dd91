// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.hpp"

#include <cstddef>

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

/// Scalars that (?i:'s|'t|'re|'ve|'m|'ll|'d) takes from the start of `rest`; 0 if it does not
/// match.
std::size_t contraction(std::string_view rest) {
  if (rest.size() < 2 || rest[0] != '\'') return 0;
  auto const lower = [&](std::size_t i) {
    return i >= rest.size()
               ? '\0'
               : static_cast<char>(rest[i] >= 'A' && rest[i] <= 'Z' ? rest[i] + 32 : rest[i]);
  };
  switch (lower(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return lower(2) == 'e' ? 3 : 0;
    case 'l': return lower(2) == 'l' ? 3 : 0;
    // U+017F, the long s, folds to s.
    default: return rest.substr(1, 2) == "\xC5\xBF" ? 2 : 0;
  }
}

/// One text as classes and byte offsets, indexed by scalar.
class scanner {
 public:
  explicit scanner(std::string_view valid) : text_(valid) {
    classes_.reserve(valid.size());
    offsets_.reserve(valid.size() + 1);
    for (std::size_t position = 0; position < valid.size();) {
      offsets_.push_back(position);
      classes_.push_back(classify(next_scalar(valid, position)));
    }
    offsets_.push_back(valid.size());
  }

  [[nodiscard]] std::size_t size() const noexcept { return classes_.size(); }

  [[nodiscard]] std::string_view slice(std::size_t begin, std::size_t end) const noexcept {
    return text_.substr(offsets_[begin], offsets_[end] - offsets_[begin]);
  }

  /// End of the match that begins at scalar i < size(): the pattern's alternatives in their order.
  [[nodiscard]] std::size_t match_end(std::size_t i) const {
    char const first = text_[offsets_[i]];
    char_class const kind = classes_[i];
    if (std::size_t const taken = contraction(text_.substr(offsets_[i])); taken > 0)
      return i + taken;

    bool const may_prefix = kind != char_class::number && kind != char_class::newline;
    std::size_t const word = is_word(i) || !may_prefix ? i : i + 1;
    if (is_word(word)) return skip(word, [&](std::size_t at) { return is_word(at); });

    if (kind == char_class::number) return i + 1;

    std::size_t const symbol = first == ' ' ? i + 1 : i;
    if (is(symbol, char_class::other)) {
      std::size_t const end =
          skip(symbol, [&](std::size_t at) { return is(at, char_class::other); });
      return skip(end, [&](std::size_t at) { return is(at, char_class::newline); });
    }

    std::size_t after_newline = i;
    std::size_t const end = skip(i, [&](std::size_t at) {
      if (is(at, char_class::newline)) after_newline = at + 1;
      return is(at, char_class::newline) || is(at, char_class::space);
    });
    if (after_newline > i) return after_newline;
    // The last blank before a word is left to that word, unless it is the only one.
    return end == size() || end == i + 1 ? end : end - 1;
  }

 private:
  [[nodiscard]] bool is(std::size_t i, char_class kind) const noexcept {
    return i < size() && classes_[i] == kind;
  }
  [[nodiscard]] bool is_word(std::size_t i) const noexcept {
    return is(i, char_class::letter) || is(i, char_class::mark);
  }
  template <class Predicate>
  [[nodiscard]] static std::size_t skip(std::size_t i, Predicate holds) {
    while (holds(i)) ++i;
    return i;
  }

  std::string_view text_;
  std::vector<char_class> classes_;
  std::vector<std::size_t> offsets_;
};

}  // namespace

std::vector<std::string_view> pretokenize(std::string_view valid) {
  scanner const scan(valid);
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < scan.size();) {
    std::size_t const end = scan.match_end(i);
    words.push_back(scan.slice(i, end));
    i = end;
  }
  return words;
}

}  // namespace qwen38::text
