// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "gemm_tune/report.hpp"

namespace qpn::bench::tune {

/// A line of a table, and what stands behind it.
struct table_line {
  gemm_tuning_row row;
  std::string comment;
};

/// The lines for the calls that are worth a row.
[[nodiscard]] std::vector<table_line> table_lines(report const& measured);

/// The name of the array in a file: that of the file without folder and extension, where an array
/// can be called so; else empty.
[[nodiscard]] std::string array_name(std::string const& file);

/// A C++ header with the array of these lines, one at least, as clang-format leaves it.
[[nodiscard]] std::string header_text(std::string const& name, run_context const& context,
                                      std::vector<table_line> const& lines);

}  // namespace qpn::bench::tune
