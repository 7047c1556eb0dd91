// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <qpn/detail/epilogue.hpp>
#include <qpn/dtype.hpp>
#include <vector>

#include "support/published_weight.hpp"
#include "support/random.hpp"

// Weights of every code, and rows of x that pick them: with one weight or one activation in each
// sum nothing is rounded.

namespace qpn::test {

/// An element of x, f16 or bf16.
[[nodiscard]] inline std::uint16_t x_code(float value, dtype type) {
  return detail::encode_16(value, type, overflow_policy::infinite);
}
[[nodiscard]] inline double x_value(std::uint16_t code, dtype type) {
  return static_cast<double>(detail::decode_16(code, type));
}

/// [rows, rows], 1 on the diagonal.
[[nodiscard]] inline std::vector<std::uint16_t> identity(std::int64_t rows,
                                                         dtype type = dtype::f16) {
  std::vector<std::uint16_t> x(static_cast<std::size_t>(rows * rows), 0);
  for (std::int64_t i = 0; i < rows; ++i) {
    x[static_cast<std::size_t>(i * (rows + 1))] = x_code(1.0F, type);
  }
  return x;
}

/// [254, 16]: each row has all e2m1 codes, and one of the finite block scales, negative ones too.
[[nodiscard]] inline published_weight every_block_scale() {
  random_source random(1);
  published_weight published({format_id::nvfp4, scale_mode::tensor, dtype::f16}, {254}, 16, random);
  published_part& part = published.parts()[0];
  part.global_scale = 1.0F;
  for (std::size_t row = 0; row < 254; ++row) {
    // 0x00..0x7e and 0x80..0xfe.
    part.block_scales[row] = static_cast<std::uint8_t>(row < 127 ? row : row + 1);
    for (std::size_t i = 0; i < 8; ++i) {
      part.codes[row * 8 + i] = static_cast<std::uint8_t>(2 * i | (2 * i + 1) << 4);
    }
  }
  return published;
}

/// [16, 16]: every finite e4m3 code.
[[nodiscard]] inline published_weight every_e4m3_code() {
  random_source random(1);
  published_weight published({format_id::fp8, scale_mode::tensor, dtype::f16}, {16}, 16, random);
  published_part& part = published.parts()[0];
  part.global_scale = 1.0F;
  for (std::size_t code = 0; code < 256; ++code) {
    bool const nan = is_nan_e4m3(static_cast<std::uint8_t>(code));
    part.codes[code] = static_cast<std::uint8_t>(nan ? 0 : code);
  }
  return published;
}

/// [4096, 16]: every f16 or bf16 that kernels hold exactly, 0 for the others.
[[nodiscard]] inline published_weight every_16_bit_weight(dtype type) {
  random_source random(1);
  published_weight published({format_id::dense16, scale_mode::none, type}, {4096}, 16, random);
  published_part& part = published.parts()[0];
  for (std::uint32_t code = 0; code < 65536; ++code) {
    float const value =
        std::abs(type == dtype::f16 ? decode_f16(static_cast<std::uint16_t>(code))
                                    : decode_bf16(static_cast<std::uint16_t>(code)));
    bool const held = type == dtype::f16 ? value <= 65504.0F
                                         : value < 255.875F && (value == 0.0F || value >= 0x1p-25F);
    std::uint16_t const kept = held ? static_cast<std::uint16_t>(code) : std::uint16_t{0};
    std::memcpy(part.codes.data() + 2 * code, &kept, 2);
  }
  return published;
}

/// [size, size] in fp8, 1 on the diagonal.
[[nodiscard]] inline published_weight identity_weight(std::int64_t size) {
  random_source random(1);
  published_weight published({format_id::fp8, scale_mode::tensor, dtype::f16}, {size}, size,
                             random);
  published_part& part = published.parts()[0];
  part.global_scale = 1.0F;
  std::fill(part.codes.begin(), part.codes.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < part.codes.size(); i += static_cast<std::size_t>(size) + 1) {
    part.codes[i] = encode_e4m3(1.0F);
  }
  return published;
}

}  // namespace qpn::test
