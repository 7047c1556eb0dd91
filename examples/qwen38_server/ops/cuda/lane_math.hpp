// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <qpn/config.hpp>
#include <qpn/detail/bits.hpp>
#include <qpn/dtype.hpp>
#include <qpn/x_fragments.hpp>

// Kernel bodies of the CUDA backend are lane programs, as those of the library are: function
// templates run_program(lane, params) over an object that stands for one thread of the GPU. Each
// params struct says how it is launched: threads, shared_bytes and blocks(). Beside the operations
// of qpn/detail/lane_types.hpp a lane has
//
//   fma(a, b, c), exp(x), sqrt(x), log1p(x)   fp32, rounded as the machine does
//   exp2(x)                                   fp32, to 2 units in the last place; 0 below 2^-126
//   sine_cosine(angle, s, c)                  of a double, to fp32
//   half_pair(bits)                           two fp16 as fp32, low half first
//   convert_half2(low, high)                  and back, rounded to nearest even
//   atomic_wrap(p, last)                      counts to last and then from 0; returns the old value
//   wait_previous()                           waits for the launch before, in kernels whose params
//                                             say waits_itself; others start behind it
//   fetch_ahead(range, at)                    asks for the piece of a range that begins at `at`, if
//                                             one does, to be fetched into the cache; a hint
//
// for kernels whose params have a cluster of two CTAs
//
//   arrive_cluster(), wait_cluster()          the halves of a barrier of both, between which shared
//                                             memory is left alone
//   peer_store(offset, x)                     fp32 to the shared memory of the other CTA, which a
//                                             barrier has shown to run and which must not have
//                                             ended
//
// and for kernels that want sm_80 or newer
//
//   mma_m16n8k16(d, a, b)                     d += a b, all lanes of the warp
//   copy_async(offset, p, held)               16 bytes from p to shared memory, 0 where not held
//   commit_copies()                           ends a group of the thread's copies
//   wait_copies<N>()                          all but the thread's last N groups are there, for it
//
// A sum that must not depend on which kernel adds it is written with fma, so that no compiler
// decides what is rounded.
namespace qwen38::ops::cuda {

inline constexpr int warp_size = 32;

struct alignas(16) float4_pack {
  float v[4];
};

/// Bits of the nearest fp16. Finite values beyond its range become +-65504; infinities and NaN stay
/// what they are.
template <class Lane>
QPN_HD std::uint16_t saturated_half(Lane& lane, float x) {
  constexpr float largest = 65504.0F;
  if (x > largest && x < INFINITY) x = largest;
  if (x < -largest && x > -INFINITY) x = -largest;
  return static_cast<std::uint16_t>(lane.convert_half2(x, 0.0F));
}

/// Rows that a kernel writes, fp32 or fp16 with saturation.
struct output_rows {
  void* data = nullptr;
  std::int64_t stride = 0;
  bool half = false;
  /// Of fp16 in the order of qpn/x_fragments.hpp, which products read faster; else 0: row-major.
  std::int64_t fragments_k = 0;
};

template <class Lane>
QPN_HD void store_value(Lane& lane, output_rows const& y, std::int64_t row, std::int64_t column,
                        float value) {
  std::int64_t const at = y.fragments_k > 0 ? qpn::x_fragments_offset(row, column, y.fragments_k)
                                            : row * y.stride + column;
  if (y.half) {
    lane.store(static_cast<std::uint16_t*>(y.data) + at, saturated_half(lane, value));
  } else {
    lane.store(static_cast<float*>(y.data) + at, value);
  }
}

template <class Lane>
QPN_HD float shuffle(Lane& lane, float value, int mask) {
  return qpn::detail::bits_float(lane.shuffle_xor(qpn::detail::float_bits(value), mask));
}

/// Sum over the lanes of a warp, the same bits in each.
template <class Lane>
QPN_HD float warp_sum(Lane& lane, float value) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2) value += shuffle(lane, value, mask);
  return value;
}

template <class Lane>
QPN_HD float warp_maximum(Lane& lane, float value) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2) {
    float const other = shuffle(lane, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

template <class Lane>
QPN_HD float sigmoid(Lane& lane, float x) {
  return 1.0F / (1.0F + lane.exp(-x));
}

template <class Lane>
QPN_HD float silu(Lane& lane, float x) {
  return x * sigmoid(lane, x);
}

QPN_HD constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace qwen38::ops::cuda
