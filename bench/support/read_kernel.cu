// SPDX-License-Identifier: Apache-2.0
#include "support/read_kernel.hpp"

namespace qpn::bench {

namespace {

constexpr int threads = 256;
constexpr int ctas_per_sm = 8;

/// Up to 4 loads at once take few enough registers for all 2048 threads of a multiprocessor.
template <int LoadsAtOnce>
__global__ __launch_bounds__(threads, ctas_per_sm) void read_kernel(uint4 const* data,
                                                                    std::size_t count,
                                                                    std::uint32_t* sink) {
  std::size_t const stride = std::size_t{gridDim.x} * threads;
  std::uint32_t sum = 0;
  for (std::size_t first = std::size_t{blockIdx.x} * threads + threadIdx.x; first < count;
       first += LoadsAtOnce * stride) {
    uint4 loaded[LoadsAtOnce];
#pragma unroll
    for (int i = 0; i < LoadsAtOnce; ++i) {
      std::size_t const at = first + static_cast<std::size_t>(i) * stride;
      loaded[i] = at < count ? __ldcs(data + at) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < LoadsAtOnce; ++i) {
      sum += loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
  }
  if (sum == 0x9e3779b9u) *sink = sum;
}

}  // namespace

cudaError_t launch_read(std::byte const* data, std::size_t bytes, std::uint32_t* sink, int sm_count,
                        cudaStream_t stream) noexcept {
  auto const ctas = static_cast<unsigned>(sm_count * ctas_per_sm);
  std::size_t const count = bytes / sizeof(uint4);
  // On an H200 2 loads at once are 2 to 4 % faster up to 25 MB (and at 12 MB 3 % slower), 4 are 1 %
  // faster from 50 MB on.
  bool const is_short = count <= std::size_t{8} * ctas * threads;
  (is_short ? read_kernel<2> : read_kernel<4>)<<<ctas, threads, 0, stream>>>(
      reinterpret_cast<uint4 const*>(data), count, sink);
  return cudaGetLastError();
}

}  // namespace qpn::bench
