// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/config.hpp>

namespace qwen38::ops::cuda {

// The slots of a sequence fall into partitions whose borders are the same for every sequence: of 64
// slots at first, so that a short context has a CTA for each, and longer ones farther on, so that
// there are few of them at any length. Each is a softmax of its own; their results are folded in
// the order of the partitions. What a query adds up in which order therefore depends on its slot
// alone.

/// Partitions of `slots` each from slot `begin`, the first of them number `first`.
struct partition_zone {
  std::int64_t begin;
  std::int64_t slots;
  std::int64_t first;
};

inline constexpr int partition_zones = 7;

[[nodiscard]] QPN_HD constexpr partition_zone zone_at(int i) {
  switch (i) {
    case 0: return {0, 64, 0};
    case 1: return {1024, 128, 16};
    case 2: return {4096, 256, 40};
    case 3: return {8192, 512, 56};
    case 4: return {32768, 1024, 104};
    case 5: return {65536, 2048, 136};
    default: return {131072, 4096, 168};
  }
}

/// From here on a partition has more slots than a page.
inline constexpr std::int64_t first_slot_of_long_partitions = zone_at(1).begin;

[[nodiscard]] QPN_HD constexpr std::int64_t partition_of(std::int64_t slot) {
  partition_zone zone = zone_at(0);
  QPN_UNROLL
  for (int i = 1; i < partition_zones; ++i) {
    if (slot >= zone_at(i).begin) zone = zone_at(i);
  }
  return zone.first + (slot - zone.begin) / zone.slots;
}

[[nodiscard]] QPN_HD constexpr std::int64_t first_slot_of(std::int64_t partition) {
  partition_zone zone = zone_at(0);
  QPN_UNROLL
  for (int i = 1; i < partition_zones; ++i) {
    if (partition >= zone_at(i).first) zone = zone_at(i);
  }
  return zone.begin + (partition - zone.first) * zone.slots;
}

/// Softmax numerators summed up with the values, relative to 2^maximum.
struct softmax_sum {
  float maximum;
  float mass;
};

/// What the folded sum and the next one are multiplied by when they are added:
/// sum = fma(next, factors.next, sum * factors.before).
struct fold_factors {
  float before;
  float next;
};

template <class Lane>
QPN_HD fold_factors factors_of(Lane& lane, float folded_maximum, float next_maximum) {
  float const maximum = next_maximum > folded_maximum ? next_maximum : folded_maximum;
  return {lane.exp2(folded_maximum - maximum), lane.exp2(next_maximum - maximum)};
}

/// Adds the next partition's mass to `folded`, which starts as {-infinity, 0}; its numerators are
/// added likewise.
template <class Lane>
QPN_HD fold_factors fold(Lane& lane, softmax_sum& folded, softmax_sum const& next) {
  fold_factors const factors = factors_of(lane, folded.maximum, next.maximum);
  folded.mass = lane.fma(next.mass, factors.next, folded.mass * factors.before);
  folded.maximum = next.maximum > folded.maximum ? next.maximum : folded.maximum;
  return factors;
}

}  // namespace qwen38::ops::cuda
