// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/kernel_params.hpp"

namespace qwen38::ops::cuda {

/// Launches the kernel that `params` names.
[[nodiscard]] cudaError_t launch_kernel(kernel_params const& params, cudaStream_t stream);

}  // namespace qwen38::ops::cuda
