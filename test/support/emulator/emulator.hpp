// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "support/emulator/lane.hpp"
#include "support/emulator/memory.hpp"
#include "support/emulator/report.hpp"

// Runs lane programs, the bodies of kernels, without a GPU, and finds what a GPU would forgive or
// turn into a wrong sum once a day: missing barriers and fences, collectives that some lanes miss,
// accesses out of bounds, bytes read twice or never.

namespace qpn::test {

/// In which order CTAs become resident.
enum class cta_order { ascending, descending, shuffled };

struct emulation_options {
  int blocks = 1;            ///< CTAs of a row block.
  int row_blocks = 1;        ///< Those of one CTA become resident one after another.
  int threads = warp_lanes;  ///< Per CTA: a multiple of 32, at most 1024.
  int shared_bytes = 0;      ///< Per CTA.
  /// Picks the next CTA and warp, the order of the lanes in it, and the shuffled order.
  std::uint64_t seed = 0;
  emulator_memory* memory = nullptr;  ///< None: the program touches no global memory.
  cta_order order = cta_order::ascending;
  /// CTAs on the device at a time. With 1 they run one after another. With more they are
  /// interleaved: the turn goes from CTA to CTA, as it does from warp to warp, at collectives and
  /// now and then at atomics, fences and volatile loads.
  int resident = 1;
  /// CTAs of a cluster: blocks c * cluster to c * cluster + cluster - 1 of a row block, which
  /// become resident together. `resident` is at least as many.
  int cluster = 1;
  /// Of one lane; one more is taken for a loop without end. A loop without lane operations is not
  /// found.
  std::int64_t max_operations = 1 << 20;
};

/// Runs `program` once for every thread of the grid, all on the calling OS thread. The same options
/// give the same schedule. Throws std::invalid_argument for options that no launch can have.
[[nodiscard]] emulation_report emulate(emulation_options const& options,
                                       std::function<void(emulated_lane&)> const& program);

}  // namespace qpn::test
