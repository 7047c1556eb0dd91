// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "constants.hpp"

// Tables of docs/benchmarks.md.

namespace qpn::bench::v100 {

[[nodiscard]] std::string table_line(std::vector<std::string> const& cells);

/// The names of the columns and the line below them.
[[nodiscard]] std::string table_head(std::vector<std::string> const& names);

/// A number with no more digits than it needs, at most six.
[[nodiscard]] std::string compact(double value);

/// Name, value and source.
[[nodiscard]] std::string constant_line(constant const& one);

}  // namespace qpn::bench::v100
