// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "qpn/detail/bits.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/status.hpp"

// Round-to-nearest quantisers, by the rules of NVIDIA ModelOpt. They write matrices as published:
// what weight_part takes. All arithmetic is fp32, one rounding an operation, as there.

namespace qpn {

namespace detail {

/// The largest magnitude of `count` values; false, with the index, at the first that is not finite.
[[nodiscard]] inline bool finite_amax(float const* values, std::int64_t count, float& amax,
                                      std::int64_t& bad) noexcept {
  amax = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!is_finite(values[i])) {
      bad = i;
      return false;
    }
    float const magnitude = std::fabs(values[i]);
    if (magnitude > amax) amax = magnitude;
  }
  return true;
}

/// amax / range, but never zero or subnormal, so that dividing by it is safe and loses nothing.
[[nodiscard]] inline float scale_for(float amax, float range) noexcept {
  constexpr float smallest_normal = 0x1p-126f;
  float const scale = amax / range;
  return scale < smallest_normal ? smallest_normal : scale;
}

[[nodiscard]] inline status check_matrix(float const* w, std::int64_t n, std::int64_t k,
                                         float& amax) noexcept {
  if (n < 1 || k < 1) {
    return {status_code::invalid_shape, 0, "quantize: n and k must be at least 1"};
  }
  std::int64_t bad = 0;
  if (!finite_amax(w, n * k, amax, bad)) {
    return {status_code::invalid_value, 0, "quantize: a weight is infinite or NaN", bad / k,
            bad % k};
  }
  return {};
}

/// One group of 16 weights: returns the e4m3 block scale and writes 8 bytes of codes.
[[nodiscard]] inline std::uint8_t quantize_nvfp4_group(float const* w, float global_scale,
                                                       std::uint8_t* codes) noexcept {
  float amax = 0.0f;
  for (int i = 0; i < nvfp4::group_k; ++i) {
    float const magnitude = std::fabs(w[i]);
    if (magnitude > amax) amax = magnitude;
  }
  // A group of zeros takes scale 1; a group too small for any e4m3 scale takes the smallest, 2^-9,
  // not zero.
  std::uint8_t block_scale = encode_e4m3(amax == 0.0f ? 1.0f : amax / e2m1_max / global_scale);
  if (block_scale == 0) block_scale = 1;
  float const scale = decode_e4m3(block_scale) * global_scale;
  for (int i = 0; i < nvfp4::group_k; i += 2) {
    unsigned const even = encode_e2m1(w[i] / scale);
    unsigned const odd = encode_e2m1(w[i + 1] / scale);
    codes[i / 2] = static_cast<std::uint8_t>(even | odd << 4);
  }
  return block_scale;
}

}  // namespace detail

/// global_scale = amax(W) / (6 * 448), block_scale[n, g] = e4m3(amax(group) / 6 / global_scale),
/// code = e2m1(w / (block_scale * global_scale)).
/// @param w             [n, k] row-major fp32, finite; k a multiple of 16
/// @param codes         u8 [n, k/2], low nibble = even k
/// @param block_scales  e4m3 [n, k/16]
/// @return invalid_shape, or invalid_value with row and column of a non-finite weight.
/// Deterministic.
[[nodiscard]] inline status quantize_nvfp4(float const* w, std::int64_t n, std::int64_t k,
                                           std::uint8_t* codes, std::uint8_t* block_scales,
                                           float& global_scale) noexcept {
  float amax = 0.0f;
  if (status const checked = detail::check_matrix(w, n, k, amax); !checked.ok()) return checked;
  if (k % nvfp4::group_k != 0) {
    return {status_code::invalid_shape, 0, "quantize: nvfp4 needs k to be a multiple of 16"};
  }
  global_scale = detail::scale_for(amax, e2m1_max * e4m3_max);
  for (std::int64_t group = 0; group < n * (k / nvfp4::group_k); ++group) {
    block_scales[group] = detail::quantize_nvfp4_group(w + group * nvfp4::group_k, global_scale,
                                                       codes + group * (nvfp4::group_k / 2));
  }
  return {};
}

/// scale = amax(W) / 448, code = e4m3(w / scale).
/// @param w      [n, k] row-major fp32, finite
/// @param codes  e4m3 [n, k]
/// @return as quantize_nvfp4
[[nodiscard]] inline status quantize_fp8_tensor(float const* w, std::int64_t n, std::int64_t k,
                                                std::uint8_t* codes, float& scale) noexcept {
  float amax = 0.0f;
  if (status const checked = detail::check_matrix(w, n, k, amax); !checked.ok()) return checked;
  scale = detail::scale_for(amax, e4m3_max);
  for (std::int64_t i = 0; i < n * k; ++i) codes[i] = encode_e4m3(w[i] / scale);
  return {};
}

/// The same for each row: scales[n] = amax(W[n, :]) / 448.
[[nodiscard]] inline status quantize_fp8_channel(float const* w, std::int64_t n, std::int64_t k,
                                                 std::uint8_t* codes, float* scales) noexcept {
  float amax = 0.0f;
  if (status const checked = detail::check_matrix(w, n, k, amax); !checked.ok()) return checked;
  for (std::int64_t row = 0; row < n; ++row) {
    status const quantized = quantize_fp8_tensor(w + row * k, 1, k, codes + row * k, scales[row]);
    if (!quantized.ok()) return quantized;
  }
  return {};
}

}  // namespace qpn
