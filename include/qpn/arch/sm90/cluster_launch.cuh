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
  auto const* const address = reinterpret_cast<void const*>(kernel);
  cudaError_t const allowed =
      cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (allowed != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
    return allowed;
  }
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (ranks > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {ranks, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(clusters * ranks);
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  void* arguments[] = {&params};
  return cudaLaunchKernelExC(&config, address, arguments);
}

/// Orders the rows of x for the kernel that follows.
template <class Operand>
[[nodiscard]] static cudaError_t launch_order(order_params const& order,
                                              cudaStream_t stream) noexcept {
  auto const blocks = static_cast<unsigned>((order.chunks - 1) / order_threads + 1);
  return launch(&order_rows_kernel<Operand>, blocks, order_threads, 0, stream, order);
}

}  // namespace qpn::detail::sm90
