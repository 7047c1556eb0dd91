// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace qwen38::ops::cuda {

struct byte_range {
  std::byte const* data = nullptr;
  std::size_t bytes = 0;
};

/// What one thread asks for of a range that is fetched ahead.
inline constexpr std::size_t ahead_piece_bytes = 8192;

}  // namespace qwen38::ops::cuda
