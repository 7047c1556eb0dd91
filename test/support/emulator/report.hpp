// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace qpn::test {

/// The parts one after another, for sentences of the report.
template <class... Parts>
[[nodiscard]] std::string sentence(Parts const&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// How often each byte of a region was touched; counts stay at 255 when they get there.
using byte_counts = std::vector<std::uint8_t>;

/// Whether each byte was touched exactly `count` times.
[[nodiscard]] inline bool all_equal(byte_counts const& counts, int count) {
  return std::all_of(counts.begin(), counts.end(),
                     [count](int of_byte) { return of_byte == count; });
}

/// What a launch did, and what was wrong with it.
struct emulation_report {
  static constexpr std::size_t kept_errors = 20;

  std::vector<std::string> errors;  ///< The first 20, each one sentence.
  std::int64_t error_count = 0;     ///< All of them.
  std::int64_t mma_count = 0;       ///< mma instructions, one for all lanes of a warp.

  [[nodiscard]] bool ok() const { return error_count == 0; }

  /// The errors a line each, for the messages of tests.
  [[nodiscard]] std::string text() const {
    std::string lines = sentence(error_count, " errors\n");
    for (std::string const& error : errors) lines += error + "\n";
    return lines;
  }

  /// Loads per byte of a region with region_use::weights. Throws std::out_of_range for others.
  [[nodiscard]] byte_counts const& load_counts(std::string const& region) const {
    return loads.at(region);
  }

  /// Stores per byte of a region with region_use::output. Throws std::out_of_range for others.
  [[nodiscard]] byte_counts const& write_counts(std::string const& region) const {
    return writes.at(region);
  }

  /// Counts an error; `make_text` is called only when the text will be kept.
  template <class MakeText>
  void add_error(MakeText const& make_text) {
    ++error_count;
    if (errors.size() < kept_errors) errors.push_back(make_text());
  }

  std::map<std::string, byte_counts> loads;
  std::map<std::string, byte_counts> writes;
};

}  // namespace qpn::test
