// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

/// A stream of its own on CUDA's device `index`. Throws qwen38::error (unavailable) where there is
/// no such device or no driver, and (unsupported) where this program has no code for it.
[[nodiscard]] std::unique_ptr<device> open_gpu(int index);

}  // namespace qwen38::ops::cuda
