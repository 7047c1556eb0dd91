// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/cpu/detail/block_ops.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"

// Every function here carries its target attribute, so that including files need no compiler flag.
// A vector holds eight neighbouring rows of a tile: four vectors per k.

namespace qpn::cpu::detail {

struct tile_vectors {
  __m256 rows[4];  // rows 0-7, 8-15, 16-23, 24-31 of a tile
};

__attribute__((target("avx2,fma,f16c"))) inline __m256i load_bytes(
    std::byte const* source) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(source));
}

__attribute__((target("avx2,fma,f16c"))) inline void store_rows(tile_vectors const& values,
                                                                float* w) noexcept {
  _mm256_storeu_ps(w, values.rows[0]);
  _mm256_storeu_ps(w + 8, values.rows[1]);
  _mm256_storeu_ps(w + 16, values.rows[2]);
  _mm256_storeu_ps(w + 24, values.rows[3]);
}

/// 32 e4m3 codes, none of them NaN. Moved to the exponent and mantissa of an fp16, a code is its
/// value times 2^-8, subnormals included (fp16's exponent has the same base after the shift), and
/// the product with 2^8 is exact.
__attribute__((target("avx2,fma,f16c"))) inline tile_vectors decode_e4m3_rows(
    __m256i codes) noexcept {
  __m256i const zero = _mm256_setzero_si256();
  __m256i const keep = _mm256_set1_epi16(static_cast<short>(0xbfff));
  __m256 const rebias = _mm256_set1_ps(256.0f);
  // As 16-bit words the codes are shifted left by 8; an arithmetic shift by one leaves the sign in
  // bit 15, a copy of it in bit 14, which goes, and the rest in place. Words of low: rows 0-7 |
  // 16-23; of high: 8-15 | 24-31.
  __m256i const low =
      _mm256_and_si256(_mm256_srai_epi16(_mm256_unpacklo_epi8(zero, codes), 1), keep);
  __m256i const high =
      _mm256_and_si256(_mm256_srai_epi16(_mm256_unpackhi_epi8(zero, codes), 1), keep);
  return {{_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(low)), rebias),
           _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(high)), rebias),
           _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(low, 1)), rebias),
           _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(high, 1)), rebias)}};
}

/// 32 e2m1 codes (one per byte, upper nibble zero) times `scales`, stored to w[32]. The upper two
/// bytes of the fp32 value come from two table look-ups; the lower two are zero. The bytes' dwords
/// are in the order 0 2 4 6 | 1 3 5 7, which two steps of interleaving undo.
__attribute__((target("avx2,fma,f16c"))) inline void store_e2m1_rows(__m256i codes,
                                                                     tile_vectors const& scales,
                                                                     float* w) noexcept {
  __m256i const zero = _mm256_setzero_si256();
  // Entry of code c is byte c: bits 31-24 and 23-16 of its fp32 value. Codes 8 to 15 are negative.
  constexpr auto upper_positive = static_cast<long long>(0x40404040'3f3f3f00u);
  constexpr auto upper_negative = static_cast<long long>(0xc0c0c0c0'bfbfbf80u);
  __m256i const upper_table =
      _mm256_set_epi64x(upper_negative, upper_positive, upper_negative, upper_positive);
  __m256i const lower_table = _mm256_set1_epi64x(static_cast<long long>(0xc0804000'c0800000u));
  __m256i const upper = _mm256_shuffle_epi8(upper_table, codes);
  __m256i const lower = _mm256_shuffle_epi8(lower_table, codes);
  __m256i const low = _mm256_unpacklo_epi8(lower, upper);
  __m256i const high = _mm256_unpackhi_epi8(lower, upper);
  store_rows(
      {{_mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, low)), scales.rows[0]),
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, low)), scales.rows[1]),
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, high)), scales.rows[2]),
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, high)), scales.rows[3])}},
      w);
}

__attribute__((target("avx2,fma,f16c"))) inline void decode_nvfp4_avx2(
    std::byte const* codes, std::byte const* block_scales, std::int64_t k_count,
    float* w) noexcept {
  __m256i const dword_order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  __m256i const nibble = _mm256_set1_epi8(0x0f);
  for (std::int64_t group = 0; group < k_count / nvfp4::group_k; ++group) {
    tile_vectors const scales = decode_e4m3_rows(load_bytes(block_scales + group * tile_n));
    for (std::int64_t pair = 0; pair < nvfp4::group_k / 2; ++pair) {
      std::int64_t const line = group * (nvfp4::group_k / 2) + pair;
      __m256i const bytes =
          _mm256_permutevar8x32_epi32(load_bytes(codes + line * tile_n), dword_order);
      store_e2m1_rows(_mm256_and_si256(bytes, nibble), scales, w + 2 * line * tile_n);
      store_e2m1_rows(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble), scales,
                      w + (2 * line + 1) * tile_n);
    }
  }
}

__attribute__((target("avx2,fma,f16c"))) inline void decode_fp8_avx2(
    std::byte const* codes, std::byte const* /*block_scales*/, std::int64_t k_count,
    float* w) noexcept {
  for (std::int64_t k = 0; k < k_count; ++k) {
    store_rows(decode_e4m3_rows(load_bytes(codes + k * tile_n)), w + k * tile_n);
  }
}

__attribute__((target("avx2,fma,f16c"))) inline __m256 widen_eight_f16(
    void const* source) noexcept {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<__m128i const*>(source)));
}

__attribute__((target("avx2,fma,f16c"))) inline __m256 widen_eight_bf16(
    void const* source) noexcept {
  __m256i const words = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<__m128i const*>(source)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

template <bool IsF16>
__attribute__((target("avx2,fma,f16c"))) void widen_avx2(std::uint16_t const* source,
                                                         std::int64_t count, float* out) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, IsF16 ? widen_eight_f16(source + i) : widen_eight_bf16(source + i));
  }
  for (; i < count; ++i) out[i] = IsF16 ? decode_f16(source[i]) : decode_bf16(source[i]);
}

template <bool IsF16>
__attribute__((target("avx2,fma,f16c"))) void decode_dense_avx2(std::byte const* codes,
                                                                std::byte const* /*block_scales*/,
                                                                std::int64_t k_count,
                                                                float* w) noexcept {
  for (std::int64_t i = 0; i < k_count * tile_n; i += 8) {
    _mm256_storeu_ps(w + i,
                     IsF16 ? widen_eight_f16(codes + 2 * i) : widen_eight_bf16(codes + 2 * i));
  }
}

__attribute__((target("avx2,fma,f16c"))) inline void add_eight(float* totals,
                                                               __m256 chains) noexcept {
  _mm256_storeu_ps(totals, _mm256_add_ps(_mm256_loadu_ps(totals), chains));
}

__attribute__((target("avx2,fma,f16c"))) inline void add_rows(float* totals,
                                                              tile_vectors const& chains) noexcept {
  add_eight(totals, chains.rows[0]);
  add_eight(totals + 8, chains.rows[1]);
  add_eight(totals + 16, chains.rows[2]);
  add_eight(totals + 24, chains.rows[3]);
}

/// Rows (1 to 3) rows of x and all 32 rows of the tile: 4 * Rows chains in registers. Three rows
/// take 12 of the 16 registers, enough to cover the latency of two FMA units. The steps are
/// written out, since compilers differ in what it takes to keep an array of chains in registers.
template <int Rows>
__attribute__((target("avx2,fma,f16c"))) void multiply_rows_avx2(float const* w,
                                                                 std::int64_t k_count,
                                                                 float const* x, std::int64_t ldx,
                                                                 float* totals) noexcept {
  __m256 const zero = _mm256_setzero_ps();
  __m256 a0 = zero, a1 = zero, a2 = zero, a3 = zero;
  __m256 b0 = zero, b1 = zero, b2 = zero, b3 = zero;
  __m256 c0 = zero, c1 = zero, c2 = zero, c3 = zero;
  for (std::int64_t k = 0; k < k_count; ++k, w += tile_n) {
    __m256 const xa = _mm256_broadcast_ss(x + k);
    __m256 const xb = Rows > 1 ? _mm256_broadcast_ss(x + ldx + k) : zero;
    __m256 const xc = Rows > 2 ? _mm256_broadcast_ss(x + 2 * ldx + k) : zero;
    __m256 weights = _mm256_loadu_ps(w);
    a0 = _mm256_fmadd_ps(xa, weights, a0);
    if constexpr (Rows > 1) b0 = _mm256_fmadd_ps(xb, weights, b0);
    if constexpr (Rows > 2) c0 = _mm256_fmadd_ps(xc, weights, c0);
    weights = _mm256_loadu_ps(w + 8);
    a1 = _mm256_fmadd_ps(xa, weights, a1);
    if constexpr (Rows > 1) b1 = _mm256_fmadd_ps(xb, weights, b1);
    if constexpr (Rows > 2) c1 = _mm256_fmadd_ps(xc, weights, c1);
    weights = _mm256_loadu_ps(w + 16);
    a2 = _mm256_fmadd_ps(xa, weights, a2);
    if constexpr (Rows > 1) b2 = _mm256_fmadd_ps(xb, weights, b2);
    if constexpr (Rows > 2) c2 = _mm256_fmadd_ps(xc, weights, c2);
    weights = _mm256_loadu_ps(w + 24);
    a3 = _mm256_fmadd_ps(xa, weights, a3);
    if constexpr (Rows > 1) b3 = _mm256_fmadd_ps(xb, weights, b3);
    if constexpr (Rows > 2) c3 = _mm256_fmadd_ps(xc, weights, c3);
  }
  add_rows(totals, {{a0, a1, a2, a3}});
  if constexpr (Rows > 1) add_rows(totals + tile_n, {{b0, b1, b2, b3}});
  if constexpr (Rows > 2) add_rows(totals + 2 * tile_n, {{c0, c1, c2, c3}});
}

inline void multiply_avx2(float const* w, std::int64_t k_count, float const* x, std::int64_t ldx,
                          std::int64_t m, float* totals) noexcept {
  for (; m >= 3; m -= 3, x += 3 * ldx, totals += 3 * tile_n) {
    multiply_rows_avx2<3>(w, k_count, x, ldx, totals);
  }
  if (m == 2) multiply_rows_avx2<2>(w, k_count, x, ldx, totals);
  if (m == 1) multiply_rows_avx2<1>(w, k_count, x, ldx, totals);
}

__attribute__((target("avx2,fma,f16c"))) inline void finish_avx2(float const* totals,
                                                                 float const* scales,
                                                                 float const* addend,
                                                                 float* out) noexcept {
  __m256 const quiet_nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  for (std::int64_t row = 0; row < tile_n; row += 8) {
    __m256 const total = _mm256_loadu_ps(totals + row);
    __m256 const scale = _mm256_loadu_ps(scales + row);
    __m256 const value = addend == nullptr
                             ? _mm256_mul_ps(total, scale)
                             : _mm256_fmadd_ps(total, scale, _mm256_loadu_ps(addend + row));
    __m256 const is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    _mm256_storeu_ps(out + row, _mm256_blendv_ps(value, quiet_nan, is_nan));
  }
}

inline constexpr block_ops avx2_block_ops{
    decode_nvfp4_avx2, decode_fp8_avx2,   decode_dense_avx2<true>, decode_dense_avx2<false>,
    widen_avx2<true>,  widen_avx2<false>, multiply_avx2,           finish_avx2};

}  // namespace qpn::cpu::detail

#endif
