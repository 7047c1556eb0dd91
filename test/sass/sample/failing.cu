// SPDX-License-Identifier: Apache-2.0
#include "quadpair.cuh"

// Kernels that do not keep failing_limits.txt, each for the reason in its name.

namespace sample {

__global__ void __launch_bounds__(1024, 2)
    spilling_kernel(uint4 const* weights, uint2 const* rows, float* out, int steps) {
  multiply_all<4>(weights, rows, out, steps);
}

__global__ void greedy_kernel(uint4 const* weights, uint2 const* rows, float* out, int steps) {
  multiply_all<4>(weights, rows, out, steps);
}

/// Integer work on each word that no decoder needs.
__global__ void wasteful_kernel(std::uint32_t const* weights, uint2 const* rows, float* out,
                                int steps) {
  float d[8] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    std::uint32_t w = weights[step * 32 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 8; ++i) w = (w * 0x9e3779b9u) ^ (w >> 15);
    multiply_add(d, rows[step * 32 + threadIdx.x], w, w >> 8);
  }
  for (int i = 0; i < 8; ++i) out[i * 32 + threadIdx.x] = d[i];
}

__global__ void unknown_kernel(uint4 const* weights, uint2 const* rows, float* out, int steps) {
  multiply_all<1>(weights, rows, out, steps);
}

__global__ void ambiguous_kernel(uint4 const* weights, uint2 const* rows, float* out, int steps) {
  multiply_all<1>(weights, rows, out, steps);
}

__global__ void odd_kernel(uint4 const* weights, uint2 const* rows, float* out, int steps) {
  multiply_all<1>(weights, rows, out, steps);
}

/// The array lies in local memory, since it is indexed with what only the run knows.
__global__ void indexing_kernel(int const* positions, float* out) {
  float values[16] = {};
  for (int i = 0; i < 16; ++i) values[positions[i]] += static_cast<float>(i);
  for (int i = 0; i < 16; ++i) out[i] = values[positions[16 + i]];
}

__global__ void loopless_kernel(uint2 const* rows, float* out) {
  float d[8] = {};
  multiply_add(d, rows[threadIdx.x], 1u, 2u);
  for (int i = 0; i < 8; ++i) out[i * 32 + threadIdx.x] = d[i];
}

__device__ __noinline__ std::uint32_t decode(std::uint32_t word, std::uint32_t const* table) {
  for (int i = 0; i < 4; ++i) word = table[word & 255u];
  return word;
}

__global__ void calling_kernel(std::uint32_t const* weights, uint2 const* rows, float* out,
                               int steps) {
  float d[8] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    std::uint32_t const w = decode(weights[step * 32 + threadIdx.x], weights);
    multiply_add(d, rows[step * 32 + threadIdx.x], w, w >> 8);
  }
  for (int i = 0; i < 8; ++i) out[i * 32 + threadIdx.x] = d[i];
}

}  // namespace sample
