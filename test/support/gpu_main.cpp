// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>

// main of the tests that need a GPU. Without one they are skipped as a whole, by the exit code that
// ctest knows as SKIP_RETURN_CODE: a machine without a GPU has no driver either, and every test
// would fail for that one reason.

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int count = 0;
  cudaError_t const error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("Skipped: no GPU (%s).\n", cudaGetErrorName(error));
    return 77;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    std::printf("gpu: %s, sm_%d%d, %d multiprocessors\n", properties.name, properties.major,
                properties.minor, properties.multiProcessorCount);
  }
  return RUN_ALL_TESTS();
}
