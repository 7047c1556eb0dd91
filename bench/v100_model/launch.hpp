// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// A kernel launch as the simulation sees it: what a warp needs for one turn of its loop, and how
// many turns each warp of each CTA makes.

namespace qpn::bench::v100 {

/// One turn of one warp's loop. Counts are instructions of the warp.
struct loop_turn {
  double dram_bytes = 0;    ///< of the weight, from memory
  double weight_bytes = 0;  ///< of the weight, from memory or L2
  double l2_bytes = 0;      ///< of the weight and of x: all that comes through L2
  double instructions = 0;
  double alu = 0;
  double fma = 0;
  double fp16 = 0;
  double xu = 0;
  double hmma = 0;        ///< steps
  double wavefronts = 0;  ///< of L1 and shared memory
  double stall_cycles = 0;
  /// Part of the stall cycles that passes between the use of a register and the load that fills it
  /// again: 0.5 where the halves of a record are two buffers, 1 where loads are not ahead of use.
  double unhidden = 1;
  double turns_ahead = 1;  ///< turns whose weights a warp holds or awaits
};

/// Turns of a CTA's warps, then what ends them.
struct launch_part {
  std::vector<double> turns;  ///< of each warp
  double reduce_cycles = 0;   ///< adds the warps, and leaves or stores the sums
  std::int64_t group = -1;    ///< tile group that several CTAs share, or -1
  double last_cycles = 0;     ///< of the CTA that comes last to that group
};

struct launch {
  loop_turn turn;
  int ctas_per_sm = 1;
  double start_cycles = 0;                     ///< of a part before its first turn
  std::vector<std::vector<launch_part>> ctas;  ///< in the order in which they start

  [[nodiscard]] double dram_bytes() const noexcept;
  /// The mean over the multiprocessors' turns divided by the largest, where CTAs start round robin.
  [[nodiscard]] double balance() const;
  /// Least bytes on their way to a multiprocessor while all of its warps compute.
  [[nodiscard]] double bytes_in_flight() const noexcept;
  /// Microseconds from a CTA's last turn to the end of what it does, at most.
  [[nodiscard]] double tail_us() const noexcept;
};

/// CTAs of a launch that a multiprocessor with room for ctas_per_sm holds at once.
[[nodiscard]] int resident_ctas(int ctas_per_sm, std::size_t ctas) noexcept;

/// Cycles in which a CTA adds its warps' sums through shared memory. CTAs of a multiprocessor that
/// end together, as equal ones do, share its wavefronts.
[[nodiscard]] double shared_sum_cycles(int barriers, double wavefronts, int residents) noexcept;

}  // namespace qpn::bench::v100
