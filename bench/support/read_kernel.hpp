// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace qpn::bench {

/// A kernel that does nothing but read: 8 CTAs of 256 threads on each multiprocessor, 16 bytes a
/// load. Its time is the ceiling of every kernel that has to read the same bytes.
/// @param data   16-byte aligned
/// @param bytes  a multiple of 16
/// @param sink   keeps the loads alive: it is written where their sum is one number of 2^32
[[nodiscard]] cudaError_t launch_read(std::byte const* data, std::size_t bytes, std::uint32_t* sink,
                                      int sm_count, cudaStream_t stream) noexcept;

}  // namespace qpn::bench
