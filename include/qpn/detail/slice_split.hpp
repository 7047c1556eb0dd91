// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"

namespace qpn::detail {

/// Most slices of k in layout sm80_mma16.
inline constexpr std::int32_t max_slices = 8;

/// How the warps of a CTA share a strip of layout sm80_mma16: warp s takes the batches of records
/// [first(s), first(s + 1)), its slice of k; the first slices may have one more. The sums of the
/// slices are added in their order. The split depends on the weight and its layout alone, never on
/// m.
struct slice_split {
  std::int32_t slices = 1;    ///< 1 to max_slices, at most the batches of a strip
  std::int32_t quotient = 1;  ///< batches of a strip by slices
  std::int32_t remainder = 0;

  [[nodiscard]] static constexpr slice_split of(std::int32_t batches,
                                                std::int32_t slices) noexcept {
    return {slices, batches / slices, batches % slices};
  }

  [[nodiscard]] QPN_HD constexpr std::int32_t first(std::int32_t slice) const noexcept {
    return slice * quotient + (slice < remainder ? slice : remainder);
  }
};

/// Slices for a weight of so many strips on a device of sm_count multiprocessors: where strips are
/// few, more warps must share each, or too little is on its way from memory; where they are many,
/// the sums of few slices cost less. Multiples of 4, so that the warps of a CTA load the four
/// schedulers of a multiprocessor alike. The border is that of an H200: docs/sm90_gemm.md.
[[nodiscard]] constexpr std::int32_t choose_slices(std::int64_t strips, std::int64_t batches,
                                                   std::int32_t sm_count) noexcept {
  std::int32_t const wanted = strips <= std::int64_t{2} * sm_count ? max_slices : 4;
  return static_cast<std::int32_t>(batches < wanted ? batches : wanted);
}

}  // namespace qpn::detail
