// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/bits.hpp"

// A value and its id as one integer whose order is that of candidates: larger values first, the
// lower id first among equal ones, NaN before every number, so that a broken row shows.

namespace qpn::detail {

/// Where there is no candidate: below the key of every value, that of -infinity included.
inline constexpr std::uint64_t no_candidate = 0;

/// id < 2^31 - 1. -0 equals +0. Never no_candidate.
[[nodiscard]] QPN_HD constexpr std::uint64_t candidate_key(float value, std::uint32_t id) noexcept {
  std::uint32_t const bits = float_bits(value == 0.0f ? 0.0f : value);
  std::uint32_t const ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  std::uint32_t const top = is_nan_bits(bits) ? 0xffffffffu : ordered;
  return static_cast<std::uint64_t>(top) << 32 | (0xffffffffu - id);
}

/// -1 of no_candidate.
[[nodiscard]] QPN_HD constexpr std::int32_t candidate_id(std::uint64_t key) noexcept {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key));
}

/// -infinity of no_candidate; +0 where the value was -0, one NaN for all.
[[nodiscard]] QPN_HD constexpr float candidate_value(std::uint64_t key) noexcept {
  std::uint32_t const ordered = static_cast<std::uint32_t>(key >> 32);
  if (key == no_candidate) return bits_float(0xff800000u);
  if (ordered == 0xffffffffu) return bits_float(0x7fc00000u);
  return bits_float((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

}  // namespace qpn::detail
