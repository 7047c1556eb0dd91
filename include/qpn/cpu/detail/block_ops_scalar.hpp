// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qpn/cpu/detail/block_ops.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"

namespace qpn::cpu::detail {

inline void decode_nvfp4_scalar(std::byte const* codes, std::byte const* block_scales,
                                std::int64_t k_count, float* w) noexcept {
  for (std::int64_t k = 0; k < k_count; k += 2) {
    for (std::int64_t row = 0; row < tile_n; ++row) {
      auto const pair = static_cast<std::uint8_t>(codes[k / 2 * tile_n + row]);
      auto const code = static_cast<std::uint8_t>(block_scales[k / nvfp4::group_k * tile_n + row]);
      float const scale = decode_e4m3(code);
      w[k * tile_n + row] = decode_e2m1(pair & 0xfu) * scale;
      w[(k + 1) * tile_n + row] = decode_e2m1(static_cast<std::uint8_t>(pair >> 4)) * scale;
    }
  }
}

inline void decode_fp8_scalar(std::byte const* codes, std::byte const* /*block_scales*/,
                              std::int64_t k_count, float* w) noexcept {
  for (std::int64_t i = 0; i < k_count * tile_n; ++i) {
    w[i] = decode_e4m3(static_cast<std::uint8_t>(codes[i]));
  }
}

template <float (*Decode)(std::uint16_t)>
void decode_dense_scalar(std::byte const* codes, std::byte const* /*block_scales*/,
                         std::int64_t k_count, float* w) noexcept {
  for (std::int64_t i = 0; i < k_count * tile_n; ++i) {
    std::uint16_t word = 0;
    std::memcpy(&word, codes + 2 * i, sizeof word);
    w[i] = Decode(word);
  }
}

template <float (*Decode)(std::uint16_t)>
void widen_scalar(std::uint16_t const* source, std::int64_t count, float* out) noexcept {
  for (std::int64_t i = 0; i < count; ++i) out[i] = Decode(source[i]);
}

inline void multiply_scalar(float const* w, std::int64_t k_count, float const* x, std::int64_t ldx,
                            std::int64_t m, float* totals) noexcept {
  for (std::int64_t i = 0; i < m; ++i) {
    float chains[tile_n] = {};
    for (std::int64_t k = 0; k < k_count; ++k) {
      float const value = x[i * ldx + k];
      for (std::int64_t row = 0; row < tile_n; ++row) {
        chains[row] = std::fma(value, w[k * tile_n + row], chains[row]);
      }
    }
    for (std::int64_t row = 0; row < tile_n; ++row) totals[i * tile_n + row] += chains[row];
  }
}

inline void finish_scalar(float const* totals, float const* scales, float const* addend,
                          float* out) noexcept {
  for (std::int64_t row = 0; row < tile_n; ++row) {
    float const value = addend == nullptr ? totals[row] * scales[row]
                                          : std::fma(totals[row], scales[row], addend[row]);
    std::uint32_t const bits = qpn::detail::float_bits(value);
    out[row] = qpn::detail::bits_float(qpn::detail::is_nan_bits(bits) ? 0x7fc00000u : bits);
  }
}

inline constexpr block_ops scalar_block_ops{decode_nvfp4_scalar,
                                            decode_fp8_scalar,
                                            decode_dense_scalar<decode_f16>,
                                            decode_dense_scalar<decode_bf16>,
                                            widen_scalar<decode_f16>,
                                            widen_scalar<decode_bf16>,
                                            multiply_scalar,
                                            finish_scalar};

}  // namespace qpn::cpu::detail
