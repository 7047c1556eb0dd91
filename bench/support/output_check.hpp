// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/dtype.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/gemm_bound.hpp"

namespace qpn::bench {

/// Some columns of a y of type f16, and what they are made of. Elements are [columns][m].
struct sampled_output {
  std::int64_t m = 0;
  std::int64_t k = 0;
  dtype code_type = dtype::e2m1;
  std::vector<std::int64_t> columns;
  std::vector<test::exact_sum> sums;     ///< over the published weight; with silu_gate: of gate
  std::vector<test::exact_sum> up_sums;  ///< with silu_gate, else empty
  std::vector<double> residual;          ///< or empty
  std::vector<double> y;
  std::int64_t nans = 0;  ///< in all columns of y, which held nothing else before
};

/// `count` columns of n in rising order, the first and the last among them, at random distances;
/// all n where that is no more.
[[nodiscard]] std::vector<std::int64_t> sample_columns(std::int64_t n, std::int64_t count);

/// Empty, or the first element that breaks the promise of qpn::gemm, in one sentence.
/// @param slack  allowed beyond the promise, as a part of sum |x w|
[[nodiscard]] std::string output_error(sampled_output const& output, double slack = 0.0);

/// An output that breaks its promise: its time is not shown.
struct wrong_output : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws wrong_output with output_error behind `whose` and a colon.
void require_right(std::string const& whose, sampled_output const& output, double slack = 0.0);

}  // namespace qpn::bench
