// SPDX-License-Identifier: Apache-2.0
#include "support/output_check.hpp"

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <random>

namespace qpn::bench {

namespace {

test::bounded allowed_at(sampled_output const& output, std::size_t at, double slack) {
  auto const bounded_of = [&](test::exact_sum const& exact) {
    test::bounded sum = test::bounded_sum(exact, output.k, output.code_type);
    sum.bound += slack * exact.magnitude;
    return sum;
  };
  test::bounded allowed = bounded_of(output.sums[at]);
  if (!output.up_sums.empty()) {
    allowed = test::bounded_silu_gate(allowed, bounded_of(output.up_sums[at]));
  }
  if (!output.residual.empty()) allowed = test::with_residual(allowed, output.residual[at]);
  return test::rounded_to(allowed, dtype::f16);
}

}  // namespace

std::vector<std::int64_t> sample_columns(std::int64_t n, std::int64_t count) {
  std::vector<std::int64_t> columns;
  if (count >= n) {
    for (std::int64_t j = 0; j < n; ++j) columns.push_back(j);
    return columns;
  }
  std::mt19937_64 random(1);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t const first = n * i / count;
    std::int64_t const last = n * (i + 1) / count - 1;
    columns.push_back(std::uniform_int_distribution<std::int64_t>(first, last)(random));
  }
  columns.front() = 0;
  columns.back() = n - 1;
  return columns;
}

std::string output_error(sampled_output const& output, double slack) {
  char text[160];
  if (output.nans != 0) {
    std::snprintf(text, sizeof text, "%lld elements of y are NaN or were not written",
                  static_cast<long long>(output.nans));
    return text;
  }
  for (std::size_t at = 0; at < output.y.size(); ++at) {
    test::bounded const allowed = allowed_at(output, at, slack);
    if (std::abs(output.y[at] - allowed.value) <= allowed.bound) continue;
    auto const m = static_cast<std::size_t>(output.m);
    std::snprintf(text, sizeof text, "row %zu column %lld of y is %g, expected %g within %g",
                  at % m, static_cast<long long>(output.columns[at / m]), output.y[at],
                  allowed.value, allowed.bound);
    return text;
  }
  return {};
}

void require_right(std::string const& whose, sampled_output const& output, double slack) {
  std::string const error = output_error(output, slack);
  if (!error.empty()) throw wrong_output(whose + ": " + error);
}

}  // namespace qpn::bench
