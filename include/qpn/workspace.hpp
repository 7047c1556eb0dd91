// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace qpn {

/// Memory that the caller lends to a call. Does not own it.
struct workspace_view {
  void* data = nullptr;  ///< 256-byte aligned
  std::size_t bytes = 0;
  /// Of a workspace that calls of several plans share: the part that must be 0 between calls, as
  /// workspace_needs says. 0: the workspace serves one plan.
  std::size_t zero_bytes = 0;
};

/// What a workspace must hold to serve calls of several plans, one after another.
struct workspace_needs {
  std::size_t zero_bytes = 0;     ///< first in the workspace
  std::size_t scratch_bytes = 0;  ///< behind them

  template <class Plan>
  constexpr void add(Plan const& plan) noexcept {
    std::size_t const scratch = plan.workspace_bytes - plan.workspace_zero_bytes;
    if (plan.workspace_zero_bytes > zero_bytes) zero_bytes = plan.workspace_zero_bytes;
    if (scratch > scratch_bytes) scratch_bytes = scratch;
  }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return zero_bytes + scratch_bytes; }
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

  /// Leaves out what lies before `bytes` (>= used(), a multiple of 256).
  constexpr void skip_to(std::size_t bytes) noexcept { used_ = bytes; }

  [[nodiscard]] constexpr std::size_t used() const noexcept { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace detail
}  // namespace qpn
