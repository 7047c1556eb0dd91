// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

/// GB/s (10^9 bytes) at which a kernel that only reads gets through `bytes` of device memory, by
/// the median of several times over them; the memory is given back. With bytes of several times the
/// L2 cache it is what DRAM gives.
[[nodiscard]] double measure_read_rate(device& owner, std::size_t bytes);

}  // namespace qwen38::ops::cuda
