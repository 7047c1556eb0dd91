// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "qpn/device_info.hpp"
#include "qpn/status.hpp"

namespace qpn {

/// Asks CUDA what layouts and plans need to know of a GPU. Creates no context on it and does not
/// make it the current one.
/// @param device  CUDA's index, 0 to cudaGetDeviceCount - 1
/// @param out     unchanged where the call fails
/// @return launch_failed with the CUDA error: no such device, no driver
[[nodiscard]] static inline status query_device_info(int device, device_info& out) noexcept {
  int major = 0;
  int minor = 0;
  device_info info;
  struct query {
    cudaDeviceAttr attribute;
    int* value;
  };
  query const queries[] = {
      {cudaDevAttrComputeCapabilityMajor, &major},
      {cudaDevAttrComputeCapabilityMinor, &minor},
      {cudaDevAttrMultiProcessorCount, &info.sm_count},
      {cudaDevAttrMaxThreadsPerMultiProcessor, &info.max_threads_per_sm},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &info.shared_bytes_per_sm},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &info.shared_bytes_per_block},
      {cudaDevAttrL2CacheSize, &info.l2_bytes},
  };
  for (query const& ask : queries) {
    cudaError_t const error = cudaDeviceGetAttribute(ask.value, ask.attribute, device);
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
      return {status_code::launch_failed, static_cast<int>(error),
              "device info: cudaDeviceGetAttribute failed"};
    }
  }
  info.compute_capability = 10 * major + minor;
  out = info;
  return {};
}

}  // namespace qpn
