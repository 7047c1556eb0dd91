// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Command lines. Whatever is wrong with one is a std::invalid_argument with one sentence.

namespace qpn::bench {

/// Goes through the arguments behind the program's name.
class argument_reader {
 public:
  argument_reader(int argc, char const* const* argv) : argc_(argc), argv_(argv) {}

  /// Moves to the next argument; false behind the last one.
  [[nodiscard]] bool next();
  [[nodiscard]] std::string_view name() const { return argv_[at_]; }

  /// The argument behind this one, which it takes as its value.
  [[nodiscard]] std::string_view value();
  /// The same as an integer in [least, most].
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most);
  /// The same as words between commas, none of them empty.
  [[nodiscard]] std::vector<std::string_view> words();
  /// The same as integers in [least, most] between commas.
  [[nodiscard]] std::vector<std::int64_t> integers(std::int64_t least, std::int64_t most);

  /// For an argument that nobody knows.
  [[noreturn]] void refuse() const;

 private:
  int argc_;
  char const* const* argv_;
  int at_ = 0;
};

}  // namespace qpn::bench
