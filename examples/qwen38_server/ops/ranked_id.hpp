// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace qwen38::ops {

/// A row's best id; id -1: none of its ids may be chosen.
struct ranked_id {
  float value = 0;
  std::int32_t id = -1;
};

}  // namespace qwen38::ops
