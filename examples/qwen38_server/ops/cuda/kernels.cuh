// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <qpn/device_info.hpp>

#include "ops/cuda/byte_range.hpp"
#include "ops/cuda/kernel_params.hpp"

namespace qwen38::ops::cuda {

/// Whether the code that the current GPU would run is that of kernels which wait for the one before
/// them, so that they may be launched with `overlap`.
[[nodiscard]] cudaError_t kernels_overlap(bool& overlap);

/// Launches the kernel that `params` names.
/// @param overlap  as soon as all CTAs of the stream's last kernel have begun, if that kernel
///                 allows it
/// @param ahead    fetched into the cache by further CTAs, which wait for nothing; 16-byte aligned,
///                 whole 16 bytes; only with `overlap`
[[nodiscard]] cudaError_t launch_kernel(kernel_params const& params, qpn::device_info const& gpu,
                                        bool overlap, byte_range ahead, cudaStream_t stream);

}  // namespace qwen38::ops::cuda
