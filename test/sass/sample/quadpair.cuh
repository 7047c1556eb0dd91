// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What the sample kernels of the SASS gate share. Their results mean nothing: only their machine
// code is read.

namespace sample {

/// d += a b, one m8n8k4 for each quad-pair of the warp.
__device__ inline void multiply_add(float (&d)[8], uint2 a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a.x), "r"(a.y), "r"(b0), "r"(b1));
}

/// Weights of 16 bits, which need no decoding: 8 of them a lane and step.
template <int RowTiles>
__device__ void multiply_all(uint4 const* weights, uint2 const* rows, float* out, int steps) {
  float d[RowTiles][8] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    uint4 const w = weights[step * 32 + threadIdx.x];
#pragma unroll
    for (int tile = 0; tile < RowTiles; ++tile) {
      multiply_add(d[tile], rows[(step * RowTiles + tile) * 64 + threadIdx.x], w.x, w.y);
      multiply_add(d[tile], rows[(step * RowTiles + tile) * 64 + 32 + threadIdx.x], w.z, w.w);
    }
  }
#pragma unroll
  for (int i = 0; i < 8 * RowTiles; ++i) out[i * 32 + threadIdx.x] = d[i / 8][i % 8];
}

}  // namespace sample
