// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace qpn::detail {

/// Shared memory that launches which overlap leave each multiprocessor with at least, the rest of
/// the memory being L1: room for all resident CTAs of a GEMM of layout sm80_mma16,
/// of four slices and more.
inline constexpr std::int64_t least_carveout_bytes = std::int64_t{64} * 1024;

/// What CUDA takes of shared memory for each CTA.
inline constexpr std::int64_t reserved_shared_bytes = 1024;

/// The carve-out to ask for where launches overlap, in percent of a multiprocessor's shared memory:
/// least_carveout_bytes, or more where `ctas` CTAs of a multiprocessor need it.
///
/// A multiprocessor changes its carve-out only when nothing runs on it. Kernels that ask for
/// different ones, as they do by themselves, hence start one after the other however early a launch
/// lets the next one in. Percent are rounded down: the driver takes the next size up that the
/// hardware has (CUDA Runtime API, "cudaLaunchAttributePreferredSharedMemoryCarveout").
///
/// @param ctas                 of a multiprocessor at once, 1 or more
/// @param shared_bytes         of each
/// @param shared_bytes_per_sm  device_info::shared_bytes_per_sm, 1 or more
[[nodiscard]] constexpr int shared_carveout(std::int64_t ctas, int shared_bytes,
                                            int shared_bytes_per_sm) noexcept {
  std::int64_t const needed = ctas * (shared_bytes + reserved_shared_bytes);
  std::int64_t const wanted = needed < least_carveout_bytes ? least_carveout_bytes : needed;
  return wanted < shared_bytes_per_sm ? static_cast<int>(100 * wanted / shared_bytes_per_sm) : 100;
}

}  // namespace qpn::detail
