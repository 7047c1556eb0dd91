// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"

// What happens to an fp32 sum before it is stored. Every thread that finishes a tile group holds,
// for one row of y, a column of each of the group's two 32-row tiles.

namespace qpn {

/// What a finite result beyond the largest f16 or bf16 becomes. Infinities and NaN that come from
/// the inputs stay what they are.
enum class overflow_policy : std::uint8_t { saturate, infinite };

/// What the columns of y are.
enum class activation : std::uint8_t {
  none,       ///< y[m, n]
  silu_gate,  ///< y[m, n / 2] = silu(gate) * up; even tiles of the weight are gate, odd ones up
};

namespace detail {

/// Pointers are to device memory; null where the step is left out.
struct epilogue_params {
  std::int64_t n = 0;             ///< weight rows, without padding
  float const* scales = nullptr;  ///< of the packed weight
  scale_mode scale = scale_mode::none;
  float code_scale = 1.0f;      ///< power of two that the decoder left out
  float const* bias = nullptr;  ///< [n]
  void const* residual = nullptr;
  std::int64_t ld_residual = 0;
  dtype residual_type = dtype::f16;
  void* y = nullptr;
  std::int64_t ldy = 0;
  dtype y_type = dtype::f16;
  overflow_policy overflow = overflow_policy::saturate;
  activation act = activation::none;
  bool argmax = false;
  std::int64_t argmax_n = 0;  ///< columns at and beyond it are never chosen
};

/// The code of a value in f16 or bf16, or by the policy that of the largest number.
[[nodiscard]] QPN_HD constexpr std::uint16_t saturate_16(std::uint16_t code, float value,
                                                         dtype type,
                                                         overflow_policy overflow) noexcept {
  std::uint16_t const infinity = type == dtype::f16 ? 0x7c00 : 0x7f80;
  bool const overflowed = (code & 0x7fffu) == infinity && is_finite(value);
  return overflowed && overflow == overflow_policy::saturate ? static_cast<std::uint16_t>(code - 1u)
                                                             : code;
}

[[nodiscard]] QPN_HD constexpr std::uint16_t encode_16(float value, dtype type,
                                                       overflow_policy overflow) noexcept {
  return saturate_16(type == dtype::f16 ? encode_f16(value) : encode_bf16(value), value, type,
                     overflow);
}

[[nodiscard]] QPN_HD constexpr float decode_16(std::uint16_t code, dtype type) noexcept {
  return type == dtype::f16 ? decode_f16(code) : decode_bf16(code);
}

/// Orders (value, column) for a maximum in which the lowest column wins a tie and NaN beats every
/// number, so that a broken row shows. -0 equals +0. Never 0.
[[nodiscard]] QPN_HD constexpr std::uint64_t argmax_key(float value,
                                                        std::uint32_t column) noexcept {
  std::uint32_t const bits = float_bits(value == 0.0f ? 0.0f : value);
  std::uint32_t const ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  std::uint32_t const top = is_nan_bits(bits) ? 0xffffffffu : ordered;
  return static_cast<std::uint64_t>(top) << 32 | (0xffffffffu - column);
}

[[nodiscard]] QPN_HD constexpr std::int32_t argmax_column(std::uint64_t key) noexcept {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key));
}

[[nodiscard]] QPN_HD constexpr float argmax_value(std::uint64_t key) noexcept {
  std::uint32_t const ordered = static_cast<std::uint32_t>(key >> 32);
  if (ordered == 0xffffffffu) return bits_float(0x7fc00000u);
  return bits_float((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

/// What the sum of a weight row is multiplied by and what is added to it.
struct column_terms {
  float scale = 1.0f;
  float bias = 0.0f;
};

/// The terms of weight row `column`; none at and beyond n.
template <class Lane>
[[nodiscard]] QPN_HD column_terms load_column_terms(Lane& lane, epilogue_params const& p,
                                                    std::int64_t column) noexcept {
  column_terms terms;
  if (column >= p.n) return terms;
  if (p.scale != scale_mode::none) {
    terms.scale = lane.load(p.scales + (p.scale == scale_mode::tensor ? column / tile_n : column));
  }
  if (p.bias != nullptr) terms.bias = lane.load(p.bias + column);
  return terms;
}

/// The sum of a weight row scaled, plus bias.
[[nodiscard]] QPN_HD inline float scaled_sum(epilogue_params const& p, column_terms const& terms,
                                             float sum) noexcept {
  float const value = sum * p.code_scale * terms.scale;
  return p.bias != nullptr ? value + terms.bias : value;
}

/// Adds the residual and stores y[row, column].
template <class Lane>
QPN_HD void store_result(Lane& lane, epilogue_params const& p, std::int64_t row,
                         std::int64_t column, float value) noexcept {
  if (p.residual != nullptr) {
    std::int64_t const at = row * p.ld_residual + column;
    value += p.residual_type == dtype::f32
                 ? lane.load(static_cast<float const*>(p.residual) + at)
                 : decode_16(lane.load(static_cast<std::uint16_t const*>(p.residual) + at),
                             p.residual_type);
  }
  std::int64_t const at = row * p.ldy + column;
  if (p.y_type == dtype::f32) {
    lane.store(static_cast<float*>(p.y) + at, value);
  } else {
    auto const code = p.y_type == dtype::f16
                          ? static_cast<std::uint16_t>(lane.convert_half2(value, 0.0f))
                          : encode_bf16(value);
    lane.store(static_cast<std::uint16_t*>(p.y) + at,
               saturate_16(code, value, p.y_type, p.overflow));
  }
}

/// Finishes one row of a tile group for one lane: sums low and high are those of weight rows
/// 64 * group + id and 64 * group + 32 + id, `terms` theirs. Returns the lane's larger argmax key,
/// 0 without one.
template <class Lane>
[[nodiscard]] QPN_HD std::uint64_t finish_columns(Lane& lane, epilogue_params const& p,
                                                  std::int64_t group, std::int64_t row, int id,
                                                  float low, float high,
                                                  column_terms const (&terms)[2]) noexcept {
  std::int64_t const column = 2 * tile_n * group + id;
  if (p.act == activation::silu_gate) {  // n is a multiple of 64
    float const gate = scaled_sum(p, terms[0], low);
    float const up = scaled_sum(p, terms[1], high);
    store_result(lane, p, row, tile_n * group + id, gate / (1.0f + lane.exp(-gate)) * up);
    return 0;
  }
  std::uint64_t best = 0;
  QPN_UNROLL
  for (int tile = 0; tile < 2; ++tile) {
    std::int64_t const at = column + tile * tile_n;
    if (at >= p.n) continue;
    float const value = scaled_sum(p, terms[tile], tile == 0 ? low : high);
    if (p.y != nullptr) store_result(lane, p, row, at, value);
    if (p.argmax && at < p.argmax_n) {
      std::uint64_t const key = argmax_key(value, static_cast<std::uint32_t>(at));
      best = key > best ? key : best;
    }
  }
  return best;
}

/// The same, with terms that are loaded here.
template <class Lane>
[[nodiscard]] QPN_HD std::uint64_t finish_columns(Lane& lane, epilogue_params const& p,
                                                  std::int64_t group, std::int64_t row, int id,
                                                  float low, float high) noexcept {
  std::int64_t const column = 2 * tile_n * group + id;
  column_terms const terms[2] = {load_column_terms(lane, p, column),
                                 load_column_terms(lane, p, column + tile_n)};
  return finish_columns(lane, p, group, row, id, low, high, terms);
}

}  // namespace detail
}  // namespace qpn
