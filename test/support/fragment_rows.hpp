// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/x_fragments.hpp>

namespace qpn::test {

/// Copies m rows of x, ldx elements apart, to where they are in fragment order. Places of rows
/// beyond m stay as they are.
inline void copy_to_fragments(std::uint16_t const* x, std::int64_t ldx, std::int64_t m,
                              std::int64_t k, std::uint16_t* fragments) {
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t at = 0; at < k; ++at) {
      fragments[x_fragments_offset(row, at, k)] = x[row * ldx + at];
    }
  }
}

}  // namespace qpn::test
