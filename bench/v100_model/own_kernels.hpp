// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "launch.hpp"
#include "loop_record.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "sass_table.hpp"

// The library's kernels as launches: their loops from the SASS table and from the program itself,
// their work from the packed layout and its split.

namespace qpn::bench::v100 {

/// A kernel that exists. A kernel for more rows is one more of these.
struct own_kernel {
  format_id format;
  dtype code_type;
  int row_tiles;       ///< of 8 rows, of a row block
  char const* name;    ///< "nvfp4 mt1"
  char const* symbol;  ///< in the SASS table
};

[[nodiscard]] std::span<own_kernel const> own_kernels();

/// The layout of a weight [n, k] for a V100. Throws std::invalid_argument with the library's words.
[[nodiscard]] packed_layout v100_layout(format_id format, dtype code_type, std::int64_t n,
                                        std::int64_t k);

/// The kernel that a call with m rows runs on such a layout; throws std::invalid_argument where
/// there is none.
[[nodiscard]] own_kernel const& kernel_for(packed_layout const& layout, std::int64_t m);

/// A call with m rows, and a kernel that only reads what it reads.
struct own_launch {
  own_kernel const* kernel;
  sass_kernel const* sass;
  shape_record shape;
  loop_record loop;
  reduction_record reduction;
  packed_layout layout;
  launch work;
  launch read;
};

/// m rows, at least 1, on one kernel; row blocks that m does not fill count as full ones. Throws
/// std::runtime_error where the SASS table and the program disagree about the loop.
/// @param l1_serves  weights that several warps of a CTA load at the same step come from L2 once
[[nodiscard]] own_launch make_own_launch(sass_table const& table, own_kernel const& kernel,
                                         std::int64_t n, std::int64_t k, int m,
                                         bool l1_serves = true);

}  // namespace qpn::bench::v100
