// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/config.hpp>

namespace qwen38::ops::cuda {

// The slots of a sequence fall into partitions whose borders are the same for every sequence: of
// 256 slots, farther on of 1024 and 4096, so that there are few of them at any length. Each is a
// softmax of its own; their results are folded in the order of the partitions. What a query adds up
// in which order therefore depends on its slot alone.

inline constexpr std::int64_t short_partition = 256;
inline constexpr std::int64_t middle_partition = 1024;
inline constexpr std::int64_t long_partition = 4096;
inline constexpr std::int64_t middle_begin = 8192;  ///< first slot of a middle partition
inline constexpr std::int64_t long_begin = 65536;   ///< first slot of a long one

[[nodiscard]] QPN_HD constexpr std::int64_t partition_of(std::int64_t slot) {
  std::int64_t const short_count = middle_begin / short_partition;
  std::int64_t const middle_count = (long_begin - middle_begin) / middle_partition;
  if (slot < middle_begin) return slot / short_partition;
  if (slot < long_begin) return short_count + (slot - middle_begin) / middle_partition;
  return short_count + middle_count + (slot - long_begin) / long_partition;
}

[[nodiscard]] QPN_HD constexpr std::int64_t first_slot_of(std::int64_t partition) {
  std::int64_t const short_count = middle_begin / short_partition;
  std::int64_t const middle_count = (long_begin - middle_begin) / middle_partition;
  if (partition < short_count) return partition * short_partition;
  if (partition < short_count + middle_count) {
    return middle_begin + (partition - short_count) * middle_partition;
  }
  return long_begin + (partition - short_count - middle_count) * long_partition;
}

/// Softmax numerators summed up with the values, relative to exp(maximum).
struct softmax_sum {
  float maximum;
  float mass;
};

/// What the folded sum and the next one are multiplied by when they are added.
struct fold_factors {
  float before;
  float next;
};

/// Adds the next partition's mass to `folded`, which starts as {-infinity, 0}; its numerators are
/// added likewise: sum = fma(next, factors.next, sum * factors.before).
template <class Lane>
QPN_HD fold_factors fold(Lane& lane, softmax_sum& folded, softmax_sum const& next) {
  float const maximum = next.maximum > folded.maximum ? next.maximum : folded.maximum;
  fold_factors const factors{lane.exp(folded.maximum - maximum), lane.exp(next.maximum - maximum)};
  folded.mass = lane.fma(next.mass, factors.next, folded.mass * factors.before);
  folded.maximum = maximum;
  return factors;
}

}  // namespace qwen38::ops::cuda
