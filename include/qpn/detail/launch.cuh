// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "qpn/status.hpp"

namespace qpn::detail {

/// Launches kernel(params); a number is a grid, too. Returns this launch's own error: one that an
/// earlier call left behind stays where it is.
template <class Params>
[[nodiscard]] static cudaError_t launch(void (*kernel)(Params), dim3 grid, int threads,
                                        int shared_bytes, cudaStream_t stream,
                                        Params params) noexcept {
  void* arguments[] = {&params};
  return cudaLaunchKernel(reinterpret_cast<void const*>(kernel), grid,
                          dim3(static_cast<unsigned>(threads)), arguments,
                          static_cast<std::size_t>(shared_bytes), stream);
}

/// What a launch asks for beside its grid.
struct launch_wish {
  /// To begin as soon as the stream's last kernel allows it, which the new one must wait for.
  bool overlap = false;
  /// shared_carveout(), or -1: the kernel's own choice. Of no effect where the toolkit is older
  /// than CUDA 13.
  int carveout = -1;
  unsigned cluster = 1;  ///< CTAs of a cluster, side by side in x
};

/// The same with wishes.
template <class Params>
[[nodiscard]] static cudaError_t launch(void (*kernel)(Params), dim3 grid, int threads,
                                        int shared_bytes, launch_wish wish, cudaStream_t stream,
                                        Params params) noexcept {
  cudaLaunchAttribute attributes[3]{};
  unsigned count = 0;
  if (wish.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
#if CUDART_VERSION >= 13000
  if (wish.carveout >= 0) {
    attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[count++].val.sharedMemCarveout = static_cast<unsigned>(wish.carveout);
  }
#endif
  if (wish.cluster != 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {wish.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  void* arguments[] = {&params};
  return cudaLaunchKernelExC(&config, reinterpret_cast<void const*>(kernel), arguments);
}

/// The status of a launch whose error is `error`.
/// @param failed        static sentence where the launch failed
/// @param not_compiled  static sentence where the program has no code for the device
[[nodiscard]] static inline status launch_outcome(cudaError_t error, char const* failed,
                                                  char const* not_compiled) noexcept {
  if (error == cudaSuccess) return {};
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    return {status_code::not_compiled_for_arch, static_cast<int>(error), not_compiled};
  }
  return {status_code::launch_failed, static_cast<int>(error), failed};
}

}  // namespace qpn::detail
