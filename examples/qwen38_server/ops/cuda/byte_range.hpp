// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace qwen38::ops::cuda {

struct byte_range {
  std::byte const* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace qwen38::ops::cuda
