// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"

namespace qpn::detail {

/// How the CTAs of a launch share a weight. One unit of work is one tile group (2 tiles, 64 weight
/// rows) at one step of k; units are numbered tile group major, step minor, and CTA c takes the
/// units [c * units / ctas, (c + 1) * units / ctas). The sizes of two CTAs differ by one unit at
/// most. The split depends on the weight and its layout alone, never on m.
///
/// 1 <= ctas <= units, and units * ctas fits int64: true of every valid layout for GPUs.
struct work_split {
  std::int64_t tile_groups = 0;
  std::int64_t steps = 0;  ///< of one tile group
  std::int32_t ctas = 0;

  [[nodiscard]] QPN_HD constexpr std::int64_t units() const noexcept { return tile_groups * steps; }

  /// CTA c, 0 <= c < ctas, takes the units [first_unit(c), last_unit(c)): one at least.
  [[nodiscard]] QPN_HD constexpr std::int64_t first_unit(std::int64_t c) const noexcept {
    return c * units() / ctas;
  }
  [[nodiscard]] QPN_HD constexpr std::int64_t last_unit(std::int64_t c) const noexcept {
    return first_unit(c + 1);
  }

  /// The CTA that takes a unit: the largest c with first_unit(c) <= unit.
  [[nodiscard]] QPN_HD constexpr std::int32_t cta_of_unit(std::int64_t unit) const noexcept {
    return static_cast<std::int32_t>(((unit + 1) * ctas - 1) / units());
  }

  /// The first CTA that takes units of a tile group.
  [[nodiscard]] QPN_HD constexpr std::int32_t first_cta(std::int64_t group) const noexcept {
    return cta_of_unit(group * steps);
  }

  /// How many CTAs take units of a tile group. They are consecutive.
  [[nodiscard]] QPN_HD constexpr std::int32_t cta_count(std::int64_t group) const noexcept {
    return cta_of_unit((group + 1) * steps - 1) - first_cta(group) + 1;
  }

  /// Whether CTA c + ctas / 2 takes, for each c below ctas / 2, the units of CTA c, of tile groups
  /// half of all further on: the same steps.
  [[nodiscard]] QPN_HD constexpr bool halves_alike() const noexcept {
    return ctas % 2 == 0 && tile_groups % 2 == 0;
  }
};

/// Units below which another CTA is not worth its reduction: two steps for each of its 8 warps.
inline constexpr std::int64_t min_units_per_cta = 16;

/// CTAs of 256 threads that the kernels keep resident on one multiprocessor.
inline constexpr std::int32_t ctas_per_sm = 2;

/// Bounds units * ctas in work_split: a weight of 2^63 bytes has fewer than 2^52 units.
inline constexpr std::int32_t max_sm_count = 1024;

/// CTAs for `units` (>= 1) units of work on a device of sm_count (1..max_sm_count)
/// multiprocessors: as many as are resident at once, but not more than the work is worth.
[[nodiscard]] constexpr std::int32_t choose_ctas(std::int64_t units,
                                                 std::int32_t sm_count) noexcept {
  std::int64_t const worth = (units - 1) / min_units_per_cta + 1;
  std::int64_t const slots = std::int64_t{ctas_per_sm} * sm_count;
  return static_cast<std::int32_t>(worth < slots ? worth : slots);
}

}  // namespace qpn::detail
