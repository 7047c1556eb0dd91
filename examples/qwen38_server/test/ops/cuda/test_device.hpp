// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ops/cuda/device.hpp"

namespace qwen38::test {

/// What emulated devices stand for. A GPU is what it is.
enum class device_kind {
  plain,       ///< sm_70
  with_tiles,  ///< sm_90: attention runs on m16n8k16
};

/// The device that the program's tests run on: a GPU, or its emulation on the CPU, by which of
/// gpu_test_device.cpp and emulated_device.cpp is linked. Of several GPUs, number `gpu`.
[[nodiscard]] std::unique_ptr<ops::cuda::device> open_test_device(
    device_kind kind = device_kind::plain, int gpu = 0);

/// 1 where launches are emulated.
[[nodiscard]] int test_gpu_count();

/// Whether launches are emulated, a thousand times slower.
[[nodiscard]] bool test_device_is_emulated();

}  // namespace qwen38::test
