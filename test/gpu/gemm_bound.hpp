// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "gpu/gemm_call.hpp"
#include "support/gemm_bound.hpp"

// What qpn::gemm promises of each element of y, computed in fp64.

namespace qpn::test {

/// The sums of a weight row with each row of x, scaled, plus bias.
[[nodiscard]] inline std::vector<bounded> bounded_sums(gpu_weight const& weight,
                                                       gemm_problem const& problem,
                                                       gemm_operands const& operands,
                                                       std::int64_t row) {
  auto const k = static_cast<std::size_t>(weight.layout().k);
  std::vector<double> const w = weight.row(row);
  // bf16 weights are converted for f16 rows alone.
  dtype const held = problem.x_type == dtype::f16 ? weight.layout().code_type : dtype::f16;
  std::vector<bounded> sums;
  for (std::size_t i = 0; i < static_cast<std::size_t>(operands.m); ++i) {
    exact_sum exact;
    for (std::size_t j = 0; j < k; ++j) {
      auto const x = static_cast<double>(detail::decode_16(operands.x[i * k + j], problem.x_type));
      exact.sum += x * w[j];
      exact.magnitude += std::abs(x * w[j]);
      exact.x_magnitude += std::abs(x);
    }
    double const bias = operands.bias.empty()
                            ? 0.0
                            : static_cast<double>(operands.bias[static_cast<std::size_t>(row)]);
    double const roundings = problem.algorithm == gemm_algorithm::simt ? 1.0 : 2.0;
    sums.push_back(bounded_sum(exact, weight.layout().k, held, bias, roundings));
  }
  return sums;
}

/// The promise for column j of each row of y.
[[nodiscard]] inline std::vector<bounded> bounded_column(gpu_gemm const& gemm,
                                                         gemm_operands const& operands,
                                                         std::int64_t j) {
  gpu_weight const& weight = gemm.weight();
  bool const gated = gemm.problem().act == activation::silu_gate;
  std::int64_t const row = gated ? j / tile_n * 2 * tile_n + j % tile_n : j;
  std::vector<bounded> column = bounded_sums(weight, gemm.problem(), operands, row);
  std::vector<bounded> const up =
      gated ? bounded_sums(weight, gemm.problem(), operands, row + tile_n) : std::vector<bounded>();
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (gated) column[i] = bounded_silu_gate(column[i], up[i]);
    if (!operands.residual.empty()) {
      auto const at = static_cast<std::int64_t>(i) * gemm.columns() + j;
      column[i] = with_residual(
          column[i], static_cast<double>(operands.residual[static_cast<std::size_t>(at)]));
    }
    column[i] = rounded_to(column[i], gemm.problem().y_type);
  }
  return column;
}

/// All columns of y.
[[nodiscard]] inline std::vector<std::int64_t> all_columns(gpu_gemm const& gemm) {
  std::vector<std::int64_t> columns(static_cast<std::size_t>(gemm.columns()));
  std::iota(columns.begin(), columns.end(), 0);
  return columns;
}

/// Success, or the elements of these columns that break the promise.
[[nodiscard]] inline testing::AssertionResult keeps_bound(
    gpu_gemm const& gemm, gemm_operands const& operands, gemm_result const& result,
    std::vector<std::int64_t> const& columns) {
  testing::AssertionResult broken = testing::AssertionFailure();
  int count = 0;
  for (std::int64_t j : columns) {
    std::vector<bounded> const column = bounded_column(gemm, operands, j);
    for (std::int64_t i = 0; i < operands.m; ++i) {
      bounded const& allowed = column[static_cast<std::size_t>(i)];
      auto const at = static_cast<std::size_t>(i * gemm.columns() + j);
      auto const got = static_cast<double>(value_of(result.y[at], gemm.problem().y_type));
      if (std::abs(got - allowed.value) <= allowed.bound) continue;
      if (++count <= 5) {
        broken << "\n  row " << i << " column " << j << " is " << got << ", expected "
               << allowed.value << " within " << allowed.bound;
      }
    }
  }
  if (count == 0) return testing::AssertionSuccess();
  packed_layout const& layout = gemm.weight().layout();
  return broken << "\n  " << count << " elements of m " << operands.m << " n " << layout.n << " k "
                << layout.k << " ctas " << layout.ctas;
}

[[nodiscard]] inline testing::AssertionResult keeps_bound(gpu_gemm const& gemm,
                                                          gemm_operands const& operands,
                                                          gemm_result const& result) {
  return keeps_bound(gemm, operands, result, all_columns(gemm));
}

}  // namespace qpn::test
