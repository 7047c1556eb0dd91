// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <qpn/qpn.hpp>

namespace {

__global__ void __launch_bounds__(16) decode_kernel(float* values) {
  values[threadIdx.x] = qpn::decode_e2m1(static_cast<std::uint8_t>(threadIdx.x));
}

}  // namespace

/// Decodes all 16 codes on the device. Returns the CUDA error, so that a machine without a device
/// is told apart.
cudaError_t decode_all(float* values) {
  float* device_values = nullptr;
  cudaError_t error = cudaMalloc(&device_values, 16 * sizeof(float));
  if (error != cudaSuccess) return error;
  decode_kernel<<<1, 16>>>(device_values);
  error = cudaGetLastError();
  if (error == cudaSuccess) {
    error = cudaMemcpy(values, device_values, 16 * sizeof(float), cudaMemcpyDeviceToHost);
  }
  cudaFree(device_values);
  return error;
}
