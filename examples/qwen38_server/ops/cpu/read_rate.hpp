// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace qwen38::ops::cpu {

/// GB/s (10^9 bytes) at which so many threads add up `bytes` of memory, a part each, by the median
/// of several times over them.
[[nodiscard]] double measure_read_rate(int threads, std::size_t bytes);

}  // namespace qwen38::ops::cpu
