// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>

#include "support/random_fill.hpp"

namespace qpn::bench {

namespace {

constexpr int threads = 256;
constexpr unsigned ctas = 2048;

/// The element `index` of the sequence `seed` of SplitMix64.
__device__ std::uint64_t random_word(std::uint64_t seed, std::size_t index) {
  std::uint64_t word = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
  word = (word ^ word >> 27) * 0x94d049bb133111ebu;
  return word ^ word >> 31;
}

__device__ std::size_t first_index() {
  return std::size_t{blockIdx.x} * threads + threadIdx.x;
}

__global__ __launch_bounds__(threads) void fill_kernel(random_bytes kind, std::uint64_t seed,
                                                       std::uint8_t* out, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += std::size_t{ctas} * threads) {
    auto const word = static_cast<std::uint32_t>(random_word(seed, i) >> 32);
    auto byte = static_cast<std::uint8_t>(word);
    if (kind == random_bytes::e4m3 && (byte & 0x7fu) == 0x7fu) byte ^= 1u;
    if (kind == random_bytes::positive_e4m3) byte = static_cast<std::uint8_t>(1u + word % 126u);
    out[i] = byte;
  }
}

__global__ __launch_bounds__(threads) void fill_f16_kernel(std::uint64_t seed, __half* out,
                                                           std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += std::size_t{ctas} * threads) {
    std::uint64_t const word = random_word(seed, i);
    auto const sum = static_cast<float>((word & 0xffffu) + (word >> 16 & 0xffffu) +
                                        (word >> 32 & 0xffffu) + (word >> 48));
    // Four uniform numbers of [0, 1] have mean 2 and variance 1/3 together.
    out[i] = __float2half_rn((sum / 65535.0f - 2.0f) * 1.7320508f);
  }
}

}  // namespace

cudaError_t fill_random(random_bytes kind, std::uint64_t seed, std::byte* out, std::size_t count,
                        cudaStream_t stream) noexcept {
  fill_kernel<<<ctas, threads, 0, stream>>>(kind, seed, reinterpret_cast<std::uint8_t*>(out),
                                            count);
  return cudaGetLastError();
}

cudaError_t fill_random_f16(std::uint64_t seed, void* out, std::size_t count,
                            cudaStream_t stream) noexcept {
  fill_f16_kernel<<<ctas, threads, 0, stream>>>(seed, static_cast<__half*>(out), count);
  return cudaGetLastError();
}

}  // namespace qpn::bench
