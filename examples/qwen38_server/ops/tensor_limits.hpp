// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace qwen38::ops {

inline constexpr std::int64_t kv_page_tokens = 64;  ///< slots of a page of the KV cache

}  // namespace qwen38::ops
