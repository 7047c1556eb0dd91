// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/candidate_key.hpp"
#include "qpn/detail/quadpair_map.hpp"

// The best keys of a row, up to 64, by one warp: lane i holds places i and i + 32. Keys of
// different columns differ, so the best c of all are the same in whatever order they are offered.

namespace qpn::detail {

/// The key of lane ^ mask.
template <class Lane>
[[nodiscard]] QPN_HD std::uint64_t shuffle_key(Lane& lane, std::uint64_t key, int mask) noexcept {
  std::uint32_t const high = lane.shuffle_xor(static_cast<std::uint32_t>(key >> 32), mask);
  std::uint32_t const low = lane.shuffle_xor(static_cast<std::uint32_t>(key), mask);
  return static_cast<std::uint64_t>(high) << 32 | low;
}

/// The lane's key, or a larger one of its warp, in all lanes.
template <class Lane>
[[nodiscard]] QPN_HD std::uint64_t warp_max(Lane& lane, std::uint64_t key) noexcept {
  for (int mask = warp_lanes / 2; mask > 0; mask /= 2) {
    std::uint64_t const other = shuffle_key(lane, key, mask);
    key = other > key ? other : key;
  }
  return key;
}

/// A step of a bitonic sort: each run of `size` places, which rises and then falls or the other way
/// round, becomes ordered, every second one in the other direction; `falling` is the first one's.
template <class Lane>
QPN_HD void order_runs(Lane& lane, int id, int size, bool falling,
                       std::uint64_t (&key)[2]) noexcept {
  QPN_NO_UNROLL
  for (int stride = size / 2; stride > 0; stride /= 2) {
    std::uint64_t other[2] = {key[1], key[0]};
    QPN_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (stride < warp_lanes) other[r] = shuffle_key(lane, key[r], stride);
    }
    QPN_UNROLL
    for (int r = 0; r < 2; ++r) {
      int const place = id + r * warp_lanes;
      bool const larger = ((place & size) == 0 ? falling : !falling) == ((place & stride) == 0);
      if ((other[r] > key[r]) == larger) key[r] = other[r];
    }
  }
}

/// list, falling, becomes the best 64 of list and of the warp's 64 keys.
template <class Lane>
QPN_HD void merge_keys(Lane& lane, int id, std::uint64_t (&key)[2],
                       std::uint64_t (&list)[2]) noexcept {
  QPN_NO_UNROLL
  for (int size = 2; size <= 2 * warp_lanes; size *= 2) order_runs(lane, id, size, false, key);
  // The larger ones of a falling and a rising run are the best 64, and fall and rise once.
  QPN_UNROLL
  for (int r = 0; r < 2; ++r) list[r] = key[r] > list[r] ? key[r] : list[r];
  order_runs(lane, id, 2 * warp_lanes, true, list);
}

/// Stores an empty list of c keys at `at`.
template <class Lane>
QPN_HD void clear_list(Lane& lane, int id, int c, std::uint64_t* at) noexcept {
  for (int place = id; place < c; place += warp_lanes) lane.store(at + place, no_candidate);
}

/// The falling list of c keys at `at` becomes the best c of it and the warp's 64 keys. A barrier of
/// the CTA lies between two calls for one list.
template <class Lane>
QPN_HD void offer_keys(Lane& lane, int id, int c, std::uint64_t* at,
                       std::uint64_t (&key)[2]) noexcept {
  std::uint64_t const least = lane.load(at + c - 1);
  if (!lane.any(key[0] > least || key[1] > least)) return;
  std::uint64_t list[2];
  QPN_UNROLL
  for (int r = 0; r < 2; ++r) {
    int const place = id + r * warp_lanes;
    list[r] = place < c ? lane.load(at + place) : no_candidate;
  }
  merge_keys(lane, id, key, list);
  QPN_UNROLL
  for (int r = 0; r < 2; ++r) {
    int const place = id + r * warp_lanes;
    if (place < c) lane.store(at + place, list[r]);
  }
}

/// The best c keys of `count` falling lists of c keys, `stride` keys apart, which other CTAs have
/// written: places id and id + 32 of each lane. count <= 64 * 32.
///
/// The lists are read place by place. One whose key at a place is not among the best c so far has
/// nothing more to give, so that few are read beyond their first places.
template <class Lane>
QPN_HD void merge_lists(Lane& lane, int id, int c, std::uint64_t const* lists, std::int64_t stride,
                        int count, std::uint64_t (&best)[2]) noexcept {
  best[0] = best[1] = no_candidate;
  std::uint64_t least = no_candidate;
  std::uint64_t open = ~std::uint64_t{0};  // bit s: list 32 s + id may have more
  bool more = true;
  QPN_NO_UNROLL
  for (int place = 0; place < c && more; ++place) {
    more = false;
    QPN_NO_UNROLL
    for (int slot = 0; warp_lanes * slot < count; slot += 2) {
      std::uint64_t key[2];
      QPN_UNROLL
      for (int r = 0; r < 2; ++r) {
        int const list = warp_lanes * (slot + r) + id;
        bool const wanted = list < count && (open >> (slot + r) & 1u) != 0;
        key[r] = wanted ? lane.load_volatile(lists + list * stride + place) : no_candidate;
      }
      QPN_UNROLL
      for (int r = 0; r < 2; ++r) {
        if (key[r] <= least) open &= ~(std::uint64_t{1} << (slot + r));
      }
      if (!lane.any(key[0] > least || key[1] > least)) continue;
      more = true;
      merge_keys(lane, id, key, best);
      std::uint64_t const last = c > warp_lanes ? best[1] : best[0];
      least = warp_max(lane, id == (c - 1) % warp_lanes ? last : no_candidate);
    }
  }
}

}  // namespace qpn::detail
