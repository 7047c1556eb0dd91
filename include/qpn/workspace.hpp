// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace qpn {

/// Memory that the caller lends to a call. Does not own it.
struct workspace_view {
  void* data = nullptr;  ///< 256-byte aligned
  std::size_t bytes = 0;
};

inline constexpr std::size_t workspace_alignment = 256;

namespace detail {

/// Deals out the parts of a workspace, each at a multiple of 256 bytes. Without memory it only
/// counts, so that size and use cannot drift apart.
class workspace_cursor {
 public:
  constexpr explicit workspace_cursor(std::byte* base) noexcept : base_(base) {}

  template <class T>
  [[nodiscard]] T* take(std::int64_t count) noexcept {
    std::size_t const at = used_;
    std::size_t const bytes = static_cast<std::size_t>(count) * sizeof(T);
    used_ += (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  [[nodiscard]] constexpr std::size_t used() const noexcept { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace detail
}  // namespace qpn
