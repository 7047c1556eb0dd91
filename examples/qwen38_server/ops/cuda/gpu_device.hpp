// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

/// A stream of its own on CUDA's device `index`. Throws qwen38::error (unavailable) where there is
/// no such device or no driver, and (unsupported) where this program has no code for it.
[[nodiscard]] std::unique_ptr<device> open_gpu(int index);

/// GPUs that CUDA sees; 0 where there is no driver.
[[nodiscard]] int gpu_count() noexcept;

/// "0000:1B:00.0", of device `index`.
[[nodiscard]] std::string pci_id_of_gpu(int index);

struct device_memory {
  std::size_t free = 0;
  std::size_t total = 0;
};
/// Bytes of device `index`, as CUDA gives them; its context's are not free.
[[nodiscard]] device_memory memory_of_gpu(int index);

/// Throws qwen38::error (unavailable) where programs hold 2 GiB or more of device `index`'s memory:
/// a speed that others share is no surprise to find out later. Asked before this one takes any.
void require_idle(int index);

}  // namespace qwen38::ops::cuda
