// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "qpn/arch/sm90/gemm_wide_kernel.cuh"
#include "qpn/detail/launch.cuh"

namespace qpn::detail::sm90 {

/// Launches kernel(params) in clusters of `ranks` CTAs, with more shared memory than a kernel has
/// without asking.
/// @param overlap  as soon as the stream's last kernel allows it, which the new one must wait for
template <class Params>
[[nodiscard]] static cudaError_t launch_clusters(void (*kernel)(Params), unsigned clusters,
                                                 unsigned ranks, int threads, int shared_bytes,
                                                 bool overlap, cudaStream_t stream,
                                                 Params params) noexcept {
  cudaError_t const allowed =
      cudaFuncSetAttribute(reinterpret_cast<void const*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (allowed != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
    return allowed;
  }
  launch_wish wish;
  wish.overlap = overlap;
  wish.cluster = ranks;
  return launch(kernel, dim3(clusters * ranks), threads, shared_bytes, wish, stream, params);
}

/// Orders the rows of x for the kernel that follows.
template <class Operand>
[[nodiscard]] static cudaError_t launch_order(order_params const& order,
                                              cudaStream_t stream) noexcept {
  auto const blocks = static_cast<unsigned>((order.chunks - 1) / order_threads + 1);
  return launch(&order_rows_kernel<Operand>, blocks, order_threads, 0, stream, order);
}

}  // namespace qpn::detail::sm90
