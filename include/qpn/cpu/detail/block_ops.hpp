// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace qpn::cpu::detail {

/// The summation order of cpu::gemm, the same for every instruction set, m and thread count. For
/// one output:
///   total = 0; for each block of 64 k in ascending order:
///     chain = 0; for each k of the block in ascending order: chain = fma(x[k], w[k], chain)
///     total = total + chain
///   y = total * scale, or with accumulation fma(total, scale, y)
/// With block scales each 128 k have a total of their own, and in ascending order
///   sum = 0; sum = fma(total, scale, sum)
///   y = sum, or with accumulation sum + y
/// where w is the weight without its fp32 scale, which is exact in fp32.
inline constexpr std::int64_t block_k = 64;

/// Rows of x that share one decoded block of weights; the totals of a tile, [64][32] fp32, stay in
/// L1.
inline constexpr std::int64_t chunk_m = 64;

/// The inner steps of cpu::gemm for one instruction set. A decoded block is float [k_count][32],
/// row of the tile fastest.
struct block_ops {
  /// codes: the tile's first code line of the block; block_scales: its first line of scales (nvfp4)
  /// or null; k_count: a multiple of 16, at most block_k.
  using decode_function = void (*)(std::byte const* codes, std::byte const* block_scales,
                                   std::int64_t k_count, float* w) noexcept;
  decode_function decode_nvfp4;
  decode_function decode_fp8;
  decode_function decode_f16;
  decode_function decode_bf16;

  /// Widens `count` 16-bit values; exact.
  using widen_function = void (*)(std::uint16_t const* source, std::int64_t count,
                                  float* out) noexcept;
  widen_function widen_f16;
  widen_function widen_bf16;

  /// totals[m][32] += the block's chains of x[m][k] and w[k][32]; x rows are ldx elements apart.
  void (*multiply)(float const* w, std::int64_t k_count, float const* x, std::int64_t ldx,
                   std::int64_t m, float* totals) noexcept;

  /// out[32] = totals[32] * scales[32], plus addend[32] (one rounding) unless addend is null. NaN
  /// becomes 0x7fc00000, since which operand's payload survives differs between instruction sets.
  /// out may be addend.
  void (*finish)(float const* totals, float const* scales, float const* addend,
                 float* out) noexcept;
};

}  // namespace qpn::cpu::detail
