// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ops/cuda/device.hpp"

namespace qwen38::test {

/// The device that the program's tests run on: a GPU, or its emulation on the CPU, by which of
/// gpu_test_device.cpp and emulated_device.cpp is linked.
[[nodiscard]] std::unique_ptr<ops::cuda::device> open_test_device();

/// Whether launches are emulated, a thousand times slower.
[[nodiscard]] bool test_device_is_emulated();

}  // namespace qwen38::test
