// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/dtype.hpp"

namespace qpn::detail {

/// Whether a pointer, or null, is a multiple of `alignment` bytes.
[[nodiscard]] inline bool is_aligned_to(std::uintptr_t alignment, void const* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

/// The same for elements of a type of at least 8 bits.
[[nodiscard]] inline bool is_element_aligned(void const* pointer, dtype type) noexcept {
  return is_aligned_to(static_cast<std::uintptr_t>(bits(type)) / 8, pointer);
}

}  // namespace qpn::detail
