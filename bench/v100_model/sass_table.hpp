// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qpn::bench::v100 {

/// The main loop of one kernel as sass_table.py wrote it down; that script says what the keys mean.
struct sass_kernel {
  std::string name;
  std::map<std::string, double> values;

  /// Throws std::runtime_error where the table has no such line.
  [[nodiscard]] double operator[](std::string const& key) const;
};

struct sass_table {
  std::string compiler;
  std::string sources_sha256;
  std::vector<sass_kernel> kernels;

  /// Throws std::runtime_error where there is no such kernel.
  [[nodiscard]] sass_kernel const& kernel(std::string const& name) const;
};

/// Throws std::runtime_error with the number of the line that is not understood.
[[nodiscard]] sass_table parse_sass_table(std::string_view text);

/// The table that this program was built with.
[[nodiscard]] sass_table const& built_in_sass_table();

}  // namespace qpn::bench::v100
