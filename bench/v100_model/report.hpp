// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rows.hpp"
#include "support/text.hpp"

namespace qpn::bench::v100 {

/// An array of {shape, format, n, k, m, us, read_us, gb_s, registers, spills, instr_per_weight}.
[[nodiscard]] std::string json_of(std::vector<model_row> const& rows);

/// The tables of docs/benchmarks.md: constants, errors, kernels, times, comparisons, missed limits.
[[nodiscard]] std::string markdown_of(std::vector<model_row> const& rows, sass_table const& table,
                                      fitted_constants const& constants);

/// GB/s of the rows that have a target, beside the modelled read.
[[nodiscard]] std::string svg_of(std::vector<model_row> const& rows);

}  // namespace qpn::bench::v100
