// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/gpu_device.hpp"
#include "test/ops/cuda/test_device.hpp"

namespace qwen38::test {

std::unique_ptr<ops::cuda::device> open_test_device() {
  return ops::cuda::open_gpu(0);
}

bool test_device_is_emulated() {
  return false;
}

}  // namespace qwen38::test
