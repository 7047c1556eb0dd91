// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <qpn/dtype.hpp>

#include "support/emulator/moment.hpp"

namespace qpn::test {

/// One lane's registers of an m8n8k4.
struct mma_registers {
  float* d = nullptr;                ///< [8], read and written.
  std::uint32_t const* a = nullptr;  ///< [2]
  std::uint32_t const* b = nullptr;  ///< [2]
};

/// d += a b for the four quad-pairs of a warp, PTX ISA "Matrix Fragments for mma.m8n8k4 with .f16":
/// a row-major, b column-major, d in fp32. A product of two fp16 is exact in fp64; the products of
/// k = 0..3 are added in this order, then d, all in fp64, and the sum is rounded once to fp32. The
/// hardware adds in fp32 with truncation and its own order, so its last bits differ.
void multiply_accumulate_m8n8k4(std::array<mma_registers, warp_lanes> const& lanes);

/// One lane's registers of an m16n8k16.
struct mma16_registers {
  float* d = nullptr;                ///< [4], read and written.
  std::uint32_t const* a = nullptr;  ///< [4]
  std::uint32_t const* b = nullptr;  ///< [2]
};

/// d += a b, PTX ISA "Matrix Fragments for mma.m16n8k16 with floating point type": a row-major, b
/// column-major, d in fp32; a and b in pairs of `type`, f16 or bf16. The products of k = 0..15 are
/// added in this order, then d, all in fp64, and the sum is rounded once to fp32; the hardware's
/// last bits differ.
void multiply_accumulate_m16n8k16(std::array<mma16_registers, warp_lanes> const& lanes,
                                  dtype type = dtype::f16);

/// Two fp16 products, rounded to nearest even; subnormals are kept.
[[nodiscard]] std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b);

/// Two bf16 products, rounded to nearest even; subnormals are kept.
[[nodiscard]] std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b);

/// PTX prmt.b32: nibble i of the selector picks byte i of the result, from the bytes of a (0..3)
/// and b (4..7); its bit 3 spreads the picked byte's sign over the byte instead.
[[nodiscard]] std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector);

}  // namespace qpn::test
