// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "support/cold_weights.hpp"
#include "support/machine.hpp"
#include "support/output_check.hpp"

namespace qpn::bench {

/// What a launch on the last copy of a weight was given and has written: f16 in device memory.
struct finished_launch {
  cold_weights const* weights = nullptr;
  std::int64_t m = 0;
  void const* x = nullptr;
  std::int64_t ldx = 0;
  void const* y = nullptr;
  std::int64_t ldy = 0;
  bool gated = false;              ///< silu_gate: y has n / 2 columns
  void const* residual = nullptr;  ///< or null
  std::int64_t ld_residual = 0;
};

/// Some 256 columns of y, with fp64 sums over the weight as it was published, and the NaN of all
/// columns. Waits for the stream of `gpu`.
[[nodiscard]] sampled_output sample_output(finished_launch const& launch, machine const& gpu);

}  // namespace qpn::bench
