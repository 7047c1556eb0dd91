// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/packed_weight.hpp"
#include "qpn/prepack.hpp"
#include "qpn/reference/dequant.hpp"

namespace qpn::reference {

/// y[m, n] = sum over k, ascending and in fp64, of x[m, k] * w[n, k], for published matrices
/// concatenated along n. x: [m, k], y: [m, n], both row-major and dense. `layout` names format,
/// scale mode, n and k; its offsets are not read.
inline void gemm(packed_layout const& layout, weight_part const* parts, std::size_t count,
                 double const* x, std::int64_t m, double* y) noexcept {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::int64_t row = 0; row < parts[i].n; ++row, ++column) {
      for (std::int64_t j = 0; j < m; ++j) {
        double sum = 0.0;
        for (std::int64_t k = 0; k < layout.k; ++k) {
          sum += x[j * layout.k + k] * weight_at(layout, parts[i], row, k);
        }
        y[j * layout.n + column] = sum;
      }
    }
  }
}

/// The same for a packed weight, read back through the packed layout.
inline void gemm(packed_weight const& weight, double const* x, std::int64_t m, double* y) noexcept {
  packed_layout const& layout = weight.layout;
  for (std::int64_t row = 0; row < layout.n; ++row) {
    for (std::int64_t j = 0; j < m; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < layout.k; ++k)
        sum += x[j * layout.k + k] * weight_at(weight, row, k);
      y[j * layout.n + row] = sum;
    }
  }
}

}  // namespace qpn::reference
