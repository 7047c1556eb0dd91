// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "constants.hpp"
#include "launch.hpp"

// The predecessor's kernels (v100-skinny 1.1) as launches, and the timings that it published. What
// is known of the kernels is how they load, what they decode and how they split: instruction counts
// are our estimates from that.

namespace qpn::bench::v100 {

enum class predecessor_kernel : std::uint8_t {
  qpn1,      ///< nvfp4, 4 warps a CTA, one or two row tiles
  qpn2,      ///< nvfp4, 8 to 32 warps a CTA, m up to 8
  qpn8,      ///< fp8, m up to 8
  qpn8_mt2,  ///< fp8, m up to 16
};

[[nodiscard]] constexpr bool is_nvfp4(predecessor_kernel kernel) noexcept {
  return kernel == predecessor_kernel::qpn1 || kernel == predecessor_kernel::qpn2;
}

struct predecessor_shape {
  std::int64_t n;
  std::int64_t k;
  int warps;  ///< of a CTA, which has 32 weight rows
};

/// Packed bytes of the weight.
[[nodiscard]] double predecessor_bytes(predecessor_kernel kernel, predecessor_shape const& shape);

[[nodiscard]] launch make_predecessor_launch(predecessor_kernel kernel,
                                             predecessor_shape const& shape, int m);

/// One published figure: the bytes of some shapes, read one after the other, by their time.
struct published_timing {
  char const* what;
  predecessor_kernel kernel;
  std::vector<predecessor_shape> shapes;
  int m;
  double us;    ///< of all shapes together
  bool in_fit;  ///< the others are held out
};

[[nodiscard]] std::span<published_timing const> published_timings();

}  // namespace qpn::bench::v100
