// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

// Weights that are cold: launches of one graph take turns with so many copies that none is still in
// L2 when its turn comes again.

namespace qpn::bench {

/// Bytes of all copies. Four times L2 is what the benchmarks promise; at eight, policies that keep
/// a part of a stream in L2 do not show either.
[[nodiscard]] constexpr std::int64_t rotation_bytes(std::int64_t l2_bytes) {
  return 8 * l2_bytes;
}

/// Copies of `bytes` (> 0) that make `all_bytes` together; 2 at least.
[[nodiscard]] constexpr std::int64_t copies_of(std::int64_t bytes, std::int64_t all_bytes) {
  return std::max<std::int64_t>(2, (all_bytes + bytes - 1) / bytes);
}

/// Launches of a graph, `least` or more: every copy has as many, and the last launch the last copy.
[[nodiscard]] constexpr std::int64_t launches_of(std::int64_t copies, std::int64_t least) {
  return (std::max(copies, least) + copies - 1) / copies * copies;
}

}  // namespace qpn::bench
