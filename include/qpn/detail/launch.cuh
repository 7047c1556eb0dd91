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

/// The same as soon as the stream's last kernel allows it, which the new one must wait for.
template <class Params>
[[nodiscard]] static cudaError_t launch_overlapping(void (*kernel)(Params), dim3 grid, int threads,
                                                    int shared_bytes, cudaStream_t stream,
                                                    Params params) noexcept {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
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
