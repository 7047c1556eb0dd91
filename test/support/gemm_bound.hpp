// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <qpn/dtype.hpp>

// How far an element of y may be from its exact value: what qpn::gemm promises, for those who have
// the fp64 sums.

namespace qpn::test {

/// An exact value and how far from it a computed one may be.
struct bounded {
  double value = 0.0;
  double bound = 0.0;
};

/// Over the k of a weight row and a row of x, the fp32 scale included in w.
struct exact_sum {
  double sum = 0.0;          ///< of x w
  double magnitude = 0.0;    ///< of |x w|
  double x_magnitude = 0.0;  ///< of |x|
};

/// `roundings` of the fp32 sum for each k: 2 of tensor cores, 1 of FMAs.
[[nodiscard]] inline bounded bounded_sum(exact_sum const& exact, std::int64_t k, dtype code_type,
                                         double bias = 0.0, double roundings = 2.0) {
  // A bf16 weight below 2^-25 is rounded to a multiple of 2^-32.
  double const weight_error = code_type == dtype::bf16 ? 0x1p-33 : 0.0;
  // Scaling and bias round once each.
  return {exact.sum + bias, roundings * static_cast<double>(k) * 0x1p-24 * exact.magnitude +
                                weight_error * exact.x_magnitude +
                                0x1p-22 * (std::abs(exact.sum) + std::abs(bias))};
}

/// silu(gate) * up. The slope of silu is at most 1.1, the relative error of its fp32 value 2^-20.
[[nodiscard]] inline bounded bounded_silu_gate(bounded gate, bounded up) {
  double const silu = gate.value / (1.0 + std::exp(-gate.value));
  double const value = silu * up.value;
  return {value, 1.1 * gate.bound * (std::abs(up.value) + up.bound) + up.bound * std::abs(silu) +
                     0x1p-20 * std::abs(value)};
}

[[nodiscard]] inline bounded with_residual(bounded exact, double residual) {
  return {exact.value + residual, exact.bound + 0x1p-23 * std::abs(residual)};
}

/// A bounded value once it is rounded and saturated to a type.
[[nodiscard]] inline bounded rounded_to(bounded exact, dtype type) {
  double const largest = type == dtype::f16   ? 65504.0
                         : type == dtype::f32 ? 0x1.fffffep127
                                              : 0x1.fep127;
  double const unit = type == dtype::f16 ? 0x1p-11 : type == dtype::f32 ? 0x1p-23 : 0x1p-8;
  double const value = std::clamp(exact.value, -largest, largest);
  // 2^-25 is half of the smallest f16.
  return {value, exact.bound + unit * (std::abs(value) + exact.bound) +
                     (type == dtype::f16 ? 0x1p-25 : 0.0) + 0x1p-126};
}

}  // namespace qpn::test
