// SPDX-License-Identifier: Apache-2.0
// A plain C++ unit beside one that nvcc compiled, both with qpn's headers. Without a device, only
// that they link.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <qpn/qpn.hpp>

cudaError_t decode_all(float* values);

int main() {
  float values[16];
  cudaError_t const error = decode_all(values);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
    std::printf("%s: linked, not run on a device\n", cudaGetErrorName(error));
    return 0;
  }
  if (error != cudaSuccess) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (unsigned code = 0; code < 16; ++code) {
    if (values[code] != qpn::decode_e2m1(static_cast<std::uint8_t>(code))) return 1;
  }
  return 0;
}
