// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/gpu_device.hpp"
#include "test/ops/cuda/test_device.hpp"

namespace qwen38::test {

std::unique_ptr<ops::cuda::device> open_test_device(device_kind /*kind*/, int gpu) {
  return ops::cuda::open_gpu(gpu);
}

int test_gpu_count() {
  return ops::cuda::gpu_count();
}

bool test_device_is_emulated() {
  return false;
}

}  // namespace qwen38::test
