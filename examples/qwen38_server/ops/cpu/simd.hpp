// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

/// Eight fp32 lanes on any processor. Products and sums round separately (the build forbids
/// contraction), so the AVX2 and the baseline version of a kernel give the same bits.
///
/// QWEN38_CPU_VERSIONS on a function compiles it for AVX2 and for the baseline and picks at load
/// time. The loader's resolver runs before a sanitizer's runtime is up, so sanitizer builds take
/// the baseline.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define QWEN38_CPU_VERSIONS __attribute__((target_clones("avx2", "default")))
#else
#define QWEN38_CPU_VERSIONS
#endif
#define QWEN38_INLINE inline __attribute__((always_inline))

namespace qwen38::ops::cpu {

inline constexpr std::int64_t simd_width = 8;
using f32x8 = float __attribute__((vector_size(32)));
using u32x8 = std::uint32_t __attribute__((vector_size(32)));
using u16x8 = std::uint16_t __attribute__((vector_size(16)));

// By reference: an f32x8 passed or returned by value has an ABI that depends on the target.
QWEN38_INLINE void load(float const* from, f32x8& to) {
  std::memcpy(&to, from, sizeof to);
}
QWEN38_INLINE void store(f32x8 const& from, float* to) {
  std::memcpy(to, &from, sizeof from);
}
QWEN38_INLINE void broadcast(float from, f32x8& to) {
  to = f32x8{from, from, from, from, from, from, from, from};
}

/// Eight finite fp16 values to fp32, exact: the bits move into the fp32 fields and a multiplication
/// by 2^112 mends the exponent bias, subnormals included.
QWEN38_INLINE void load_f16(std::uint16_t const* from, f32x8& to) {
  u16x8 half;
  std::memcpy(&half, from, sizeof half);
  u32x8 const wide = __builtin_convertvector(half, u32x8);
  u32x8 const magnitude = (wide & 0x7fffU) << 13;
  f32x8 value;
  std::memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112F;
  u32x8 bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits |= (wide & 0x8000U) << 16;
  std::memcpy(&to, &bits, sizeof to);
}

/// Sum of the lanes in a fixed tree.
QWEN38_INLINE float horizontal_sum(f32x8 const& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/// sum_i a[i] b[i] over a multiple of eight, in an order fixed by the length alone.
QWEN38_INLINE float dot(float const* a, float const* b, std::int64_t count) {
  f32x8 even{};
  f32x8 odd{};
  std::int64_t i = 0;
  for (; i + 2 * simd_width <= count; i += 2 * simd_width) {
    f32x8 x;
    f32x8 y;
    load(a + i, x);
    load(b + i, y);
    even += x * y;
    load(a + i + simd_width, x);
    load(b + i + simd_width, y);
    odd += x * y;
  }
  float tail = 0;
  for (; i < count; ++i) tail += a[i] * b[i];
  even += odd;
  return horizontal_sum(even) + tail;
}

}  // namespace qwen38::ops::cpu
