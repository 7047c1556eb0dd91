// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/dtype.hpp"
#include "qpn/format.hpp"

// What the library's own program reads and writes, counted by running it lane by lane.

namespace qpn::bench::v100 {

/// Of one warp and one turn of the main loop.
struct loop_record {
  double weight_bytes = 0;      ///< packed, read once
  double activation_bytes = 0;  ///< of x, whole sectors of 32 bytes
  double weight_loads = 0;      ///< instructions
  double activation_loads = 0;
  double shared_loads = 0;
  double shared_stores = 0;
  double products = 0;           ///< m8n8k4
  double weight_wavefronts = 0;  ///< of global loads of weights
  double wavefronts = 0;         ///< of all loads and stores
  double conflicts = 0;          ///< of shared memory
};

/// Of one warp where it adds the sums of its row tiles to those of its team's other warps.
struct reduction_record {
  double store_wavefronts = 0;
  double load_wavefronts = 0;
  double loads = 0;      ///< instructions
  double conflicts = 0;  ///< of shared memory
};

/// The mean of a warp and its mates, for an m of 1 to 8 * row_tiles; row_tiles is 1, 2, 4, 8 or 12;
/// code_type is f16 or bf16 for dense16.
[[nodiscard]] loop_record record_loop(format_id format, dtype code_type, int row_tiles,
                                      std::int64_t k, int m);
[[nodiscard]] reduction_record record_reduction(format_id format, dtype code_type, int row_tiles);

/// The threads of the kernel's CTA, as detail::sm70::cta_shape says.
struct shape_record {
  int teams = 1;
  int warps = 0;   ///< of a team
  int rounds = 1;  ///< in which they take the shares of a part
  int steps_ahead = 1;
  int resident_ctas = 1;
  int sum_tiles = 1;       ///< row tiles that are added in one pass through shared memory
  bool cuts_rows = false;  ///< warps share out rows, not the shares of a part
  int row_groups = 1;      ///< warps of a team that load the same weights
  int planes_at_once = 0;
};
[[nodiscard]] shape_record record_shape(format_id format, dtype code_type, int row_tiles);

}  // namespace qpn::bench::v100
