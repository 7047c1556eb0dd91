// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/detail/candidate_key.hpp"
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
  int candidates = 0;           ///< of each row
  std::uint32_t first_id = 0;   ///< of column 0
  std::int64_t eligible_n = 0;  ///< columns at and beyond it are never chosen
};

/// The f16 or bf16 code of a value, or by the policy that of the largest number.
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

/// What a lane needs to finish its two columns of a tile group, whatever the row: loaded before the
/// sums are known, nothing waits for it.
struct column_factors {
  float scale[2] = {1.0f, 1.0f};
  float bias[2] = {0.0f, 0.0f};
};

/// Those of a weight row, where it has any.
template <class Lane>
QPN_HD void load_column_factor(Lane& lane, epilogue_params const& p, std::int64_t column,
                               float& scale, float& bias) noexcept {
  if (column >= p.n) return;
  if (p.scale != scale_mode::none) {
    std::int64_t const at = p.scale == scale_mode::tensor ? column / tile_n : column;
    scale = lane.load(p.scales + at);
  }
  if (p.bias != nullptr) bias = lane.load(p.bias + column);
}

/// Columns are weight rows 64 * group + id and 64 * group + 32 + id.
template <class Lane>
[[nodiscard]] QPN_HD column_factors load_column_factors(Lane& lane, epilogue_params const& p,
                                                        std::int64_t group, int id) noexcept {
  column_factors factors;
  for (int tile = 0; tile < 2; ++tile) {
    load_column_factor(lane, p, 2 * tile_n * group + tile * tile_n + id, factors.scale[tile],
                       factors.bias[tile]);
  }
  return factors;
}

// Rounded each on its own: a compiler may fuse a product into the sum behind it in one kernel and
// not in another, and a row's bits must not depend on which of them runs.
[[nodiscard]] QPN_HD inline float rounded_product(float a, float b) noexcept {
  return QPN_ROUNDED_PRODUCT(a, b);
}
[[nodiscard]] QPN_HD inline float rounded_sum(float a, float b) noexcept {
  return QPN_ROUNDED_SUM(a, b);
}

/// silu(gate) * up
template <class Lane>
[[nodiscard]] QPN_HD float gated(Lane& lane, float gate, float up) noexcept {
  return gate / rounded_sum(1.0f, lane.exp(-gate)) * up;
}

/// The sum of a weight row of the tile scaled, plus bias.
[[nodiscard]] QPN_HD inline float scaled_sum(epilogue_params const& p,
                                             column_factors const& factors, int tile,
                                             float sum) noexcept {
  float value = sum * p.code_scale;
  if (p.scale != scale_mode::none) value = rounded_product(value, factors.scale[tile]);
  if (p.bias != nullptr) value = rounded_sum(value, factors.bias[tile]);
  return value;
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

/// Finishes the sum of one weight row without silu_gate.
/// @param which   of the factors are the weight row's
/// @param column  the weight row, < n
/// @param key     its candidate, where candidates are wanted and it may be one; else left alone
template <class Lane>
QPN_HD void finish_column(Lane& lane, epilogue_params const& p, column_factors const& factors,
                          int which, std::int64_t row, std::int64_t column, float sum,
                          std::uint64_t& key) noexcept {
  float const value = scaled_sum(p, factors, which, sum);
  if (p.y != nullptr) store_result(lane, p, row, column, value);
  if (p.candidates != 0 && column < p.eligible_n) {
    key = candidate_key(value, p.first_id + static_cast<std::uint32_t>(column));
  }
}

/// Finishes one row of a tile group for one lane: sums low and high are those of weight rows
/// 64 * group + id and 64 * group + 32 + id. Where candidates are wanted, key gets those of the two
/// columns.
template <class Lane>
QPN_HD void finish_columns(Lane& lane, epilogue_params const& p, column_factors const& factors,
                           std::int64_t group, std::int64_t row, int id, float low, float high,
                           std::uint64_t (&key)[2]) noexcept {
  key[0] = key[1] = no_candidate;
  std::int64_t const column = 2 * tile_n * group + id;
  if (p.act == activation::silu_gate) {  // n is a multiple of 64
    float const gate = scaled_sum(p, factors, 0, low);
    float const up = scaled_sum(p, factors, 1, high);
    store_result(lane, p, row, tile_n * group + id, gated(lane, gate, up));
    return;
  }
  QPN_UNROLL
  for (int tile = 0; tile < 2; ++tile) {
    std::int64_t const at = column + tile * tile_n;
    if (at >= p.n) continue;
    finish_column(lane, p, factors, tile, row, at, tile == 0 ? low : high, key[tile]);
  }
}

/// The same without candidates, and with factors that are loaded here.
template <class Lane>
QPN_HD void finish_columns(Lane& lane, epilogue_params const& p, std::int64_t group,
                           std::int64_t row, int id, float low, float high) noexcept {
  std::uint64_t no_keys[2];
  finish_columns(lane, p, load_column_factors(lane, p, group, id), group, row, id, low, high,
                 no_keys);
}

}  // namespace detail
}  // namespace qpn
