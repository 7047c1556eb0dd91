// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/backend.hpp"

namespace qwen38::model {

/// Multiplies a packed linear by random rows and holds what comes out to fp64 sums over the
/// published weights it was packed from: at most 64 outputs, among them the first and the last, for
/// 1, 9 and 40 rows of x, so that each kind of kernel for few rows is asked, and for 97 where the
/// source's products may have more rows than keep their bits. Rows that stand in several of the
/// calls with few rows must keep their bits.
/// @return the largest error, as a part of what rounding explains: 0 to 1
/// @throws qwen38::error (internal): an output is farther off, is no number, or depends on the
///         number of rows; the sentence names the module, the output and both values
double check_product(ops::backend& backend, ops::linear const& packed,
                     ops::linear_source const& source);

}  // namespace qwen38::model
