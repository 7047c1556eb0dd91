// SPDX-License-Identifier: Apache-2.0
#include "support/arguments.hpp"

#include <charconv>
#include <stdexcept>
#include <system_error>

namespace qpn::bench {

namespace {

std::int64_t integer_of(std::string_view name, std::string_view text, std::int64_t least,
                        std::int64_t most) {
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw std::invalid_argument(std::string(name) + " takes integers from " +
                                std::to_string(least) + " to " + std::to_string(most) + ", not '" +
                                std::string(text) + "'");
  }
  return value;
}

}  // namespace

bool argument_reader::next() {
  return ++at_ < argc_;
}

std::string_view argument_reader::value() {
  std::string_view const option = name();
  if (!next()) throw std::invalid_argument(std::string(option) + " needs a value");
  return name();
}

std::int64_t argument_reader::integer(std::int64_t least, std::int64_t most) {
  std::string_view const option = name();
  return integer_of(option, value(), least, most);
}

std::vector<std::string_view> argument_reader::words() {
  std::string_view const option = name();
  std::string_view rest = value();
  std::vector<std::string_view> words;
  for (;;) {
    std::size_t const comma = rest.find(',');
    words.push_back(rest.substr(0, comma));
    if (words.back().empty()) {
      throw std::invalid_argument(std::string(option) + " has an empty word between its commas");
    }
    if (comma == std::string_view::npos) return words;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<std::int64_t> argument_reader::integers(std::int64_t least, std::int64_t most) {
  std::string_view const option = name();
  std::vector<std::int64_t> values;
  for (std::string_view const word : words()) {
    values.push_back(integer_of(option, word, least, most));
  }
  return values;
}

void argument_reader::refuse() const {
  throw std::invalid_argument("unknown argument " + std::string(name()) + ", see --help");
}

}  // namespace qpn::bench
