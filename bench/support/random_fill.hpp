// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

// Random contents of device memory, the same for the same seed.

namespace qpn::bench {

enum class random_bytes : std::uint8_t {
  any,            ///< all 256: pairs of e2m1 codes
  e4m3,           ///< all but the two NaN
  positive_e4m3,  ///< 2^-9 to 448, all 126 as likely
};

[[nodiscard]] cudaError_t fill_random(random_bytes kind, std::uint64_t seed, std::byte* out,
                                      std::size_t count, cudaStream_t stream) noexcept;

/// f16 elements of mean 0 and variance 1, nearly normal: sums of four uniform numbers.
[[nodiscard]] cudaError_t fill_random_f16(std::uint64_t seed, void* out, std::size_t count,
                                          cudaStream_t stream) noexcept;

}  // namespace qpn::bench
