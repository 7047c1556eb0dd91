// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <qpn/x_fragments.hpp>

#include "gpu/device_memory.hpp"
#include "support/cold_weights.hpp"
#include "support/machine.hpp"
#include "support/output_check.hpp"
#include "support/planned_gemm.hpp"

// qpn::gemm over copies of a weight in turns: what a graph of the benchmarks holds.

namespace qpn::bench {

/// x and y of m rows, f16 in device memory. x is random, y all NaN.
struct activations {
  activations(model_shape const& shape, std::int64_t m, machine const& gpu);

  /// Copies x into fragment order, and launch_all gives qpn::gemm the copy.
  void order_fragments(std::int64_t k);

  std::int64_t m;
  test::device_memory x;  ///< row-major: cuBLAS and the reference read it
  test::device_memory y;
  std::optional<test::device_memory> fragments;
};

/// Launches so many of them, the last one on the last copy where the copies divide `launches`.
void launch_all(planned_gemm const& gemm, cold_weights const& weights, activations const& with,
                std::int64_t launches, machine const& gpu);

/// What they left in y, and what it should be.
[[nodiscard]] sampled_output output_of(cold_weights const& weights, activations const& with,
                                       machine const& gpu);

}  // namespace qpn::bench
