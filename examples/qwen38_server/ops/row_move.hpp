// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace qwen38::ops {

/// Row `from` of one tensor becomes row `to` of another.
struct row_move {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

inline constexpr int row_move_lists = 2;  ///< that a pass can hold

}  // namespace qwen38::ops
