// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/warp_math.hpp"

#include <qpn/detail/epilogue.hpp>
#include <qpn/dtype.hpp>

namespace qpn::test {
namespace {

void decode_four(std::uint32_t const* registers, double* values) {
  for (int i = 0; i < 4; ++i) {
    values[i] = decode_f16(static_cast<std::uint16_t>(registers[i / 2] >> i % 2 * 16));
  }
}

}  // namespace

void multiply_accumulate_m8n8k4(std::array<mma_registers, warp_lanes> const& lanes) {
  for (int quad_pair = 0; quad_pair < 4; ++quad_pair) {
    // The lanes of position 0..3 lie in the lower half of the warp, 4..7 in the upper.
    auto const lane_of = [quad_pair](int position) {
      return static_cast<std::size_t>(4 * quad_pair + position % 4 + position / 4 * 16);
    };
    double a[8][4];  // row, k
    double b[8][4];  // column, k
    for (int position = 0; position < 8; ++position) {
      decode_four(lanes[lane_of(position)].a, a[position]);
      decode_four(lanes[lane_of(position)].b, b[position]);
    }
    for (int position = 0; position < 8; ++position) {
      std::size_t const lane = lane_of(position);
      int const first_row = position % 2 + position / 4 * 4;
      int const first_column = position & 2;
      for (int i = 0; i < 8; ++i) {
        double const* const row = a[first_row + (i & 2)];
        double const* const column = b[first_column + (i & 5)];
        double sum = 0.0;
        for (int k = 0; k < 4; ++k) sum += row[k] * column[k];
        float& d = lanes[lane].d[i];
        d = static_cast<float>(sum + static_cast<double>(d));
      }
    }
  }
}

void multiply_accumulate_m16n8k16(std::array<mma16_registers, warp_lanes> const& lanes,
                                  dtype type) {
  auto const half = [type](std::uint32_t word, int i) {
    return static_cast<double>(detail::decode_16(static_cast<std::uint16_t>(word >> 16 * i), type));
  };
  double a[16][16];  // row, k
  double b[8][16];   // column, k
  for (int lane = 0; lane < warp_lanes; ++lane) {
    mma16_registers const& of = lanes[static_cast<std::size_t>(lane)];
    int const group = lane / 4;
    int const k = 2 * (lane % 4);
    for (int i = 0; i < 2; ++i) {
      a[group][k + i] = half(of.a[0], i);
      a[group + 8][k + i] = half(of.a[1], i);
      a[group][k + 8 + i] = half(of.a[2], i);
      a[group + 8][k + 8 + i] = half(of.a[3], i);
      b[group][k + i] = half(of.b[0], i);
      b[group][k + 8 + i] = half(of.b[1], i);
    }
  }
  for (int lane = 0; lane < warp_lanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      double const* const row = a[lane / 4 + 8 * (i / 2)];
      double const* const column = b[2 * (lane % 4) + i % 2];
      double sum = 0.0;
      for (int k = 0; k < 16; ++k) sum += row[k] * column[k];
      float& d = lanes[static_cast<std::size_t>(lane)].d[i];
      d = static_cast<float>(sum + static_cast<double>(d));
    }
  }
}

std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b) {
  auto const product = [](std::uint32_t x, std::uint32_t y) -> std::uint32_t {
    // 22 significant bits: exact in fp32.
    return encode_f16(decode_f16(static_cast<std::uint16_t>(x)) *
                      decode_f16(static_cast<std::uint16_t>(y)));
  };
  return product(a, b) | product(a >> 16, b >> 16) << 16;
}

std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
  auto const product = [](std::uint32_t x, std::uint32_t y) -> std::uint32_t {
    // 16 significant bits: exact in fp32, but for what is so small that its bf16 is 0.
    return encode_bf16(decode_bf16(static_cast<std::uint16_t>(x)) *
                       decode_bf16(static_cast<std::uint16_t>(y)));
  };
  return product(a, b) | product(a >> 16, b >> 16) << 16;
}

std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  std::uint64_t const bytes = static_cast<std::uint64_t>(b) << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t const nibble = selector >> 4 * i & 0xfu;
    auto byte = static_cast<std::uint32_t>(bytes >> 8 * (nibble & 7u) & 0xffu);
    if ((nibble & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
    result |= byte << 8 * i;
  }
  return result;
}

}  // namespace qpn::test
