// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "constants.hpp"
#include "launch.hpp"

namespace qpn::bench::v100 {

/// Cycles that a multiprocessor needs for one turn of each of `warps` warps, divided by `warps`:
/// its warps' own pace and all its pipes together.
[[nodiscard]] double cycles_per_turn(loop_turn const& turn, int warps,
                                     fitted_constants const& constants);

/// What binds: the name of the resource with the most time in a turn where `warps` warps run on
/// each multiprocessor, and its share of the time of memory.
struct bottleneck {
  char const* name;
  double share_of_dram;
};
[[nodiscard]] bottleneck busiest_beside_dram(loop_turn const& turn, int warps);

/// Microseconds of a launch. Warps advance as fluids: those of a multiprocessor share it evenly,
/// multiprocessors share memory and L2 in proportion to what each could take, CTAs start where one
/// ends. The launch's own ramp and drain are the fitted constant.
[[nodiscard]] double simulate(launch const& work, fitted_constants const& constants);

}  // namespace qpn::bench::v100
