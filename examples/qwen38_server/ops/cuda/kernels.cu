// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.cuh"

#include <cstdint>
#include <limits>
#include <qpn/config.hpp>
#include <qpn/detail/launch.cuh>

#include "ops/cuda/device_lane.cuh"

// Compiled without contraction: a product and a sum round as they are written, in every kernel the
// same.
namespace qwen38::ops::cuda {
namespace {

template <class Params>
__global__ void __launch_bounds__(Params::threads, Params::min_blocks)
    backend_kernel(Params const params) {
  extern __shared__ __align__(16) unsigned char qwen38_shared[];
  overlap_neighbours();
  device_lane lane{{qwen38_shared}};
  run_program(lane, params);
}

}  // namespace

cudaError_t kernels_overlap(bool& overlap) {
  cudaFuncAttributes attributes{};
  cudaError_t const asked = cudaFuncGetAttributes(
      &attributes, reinterpret_cast<void const*>(&backend_kernel<copy_rows_params>));
  overlap = attributes.ptxVersion >= 90;
  return asked;
}

cudaError_t launch_kernel(kernel_params const& params, bool overlap, cudaStream_t stream) {
  return std::visit(
      [overlap, stream](auto const& p) {
        using params_type = std::decay_t<decltype(p)>;
        std::int64_t const blocks = p.blocks();
        if (blocks == 0) return cudaSuccess;
        if (blocks > std::numeric_limits<std::int32_t>::max()) return cudaErrorInvalidConfiguration;
        if constexpr (params_type::shared_bytes > 48 * 1024) {  // the device's, so at each launch
          cudaError_t const allowed = cudaFuncSetAttribute(
              reinterpret_cast<void const*>(&backend_kernel<params_type>),
              cudaFuncAttributeMaxDynamicSharedMemorySize, params_type::shared_bytes);
          if (allowed != cudaSuccess) return allowed;
        }
        auto const kernel = &backend_kernel<params_type>;
        auto const grid = static_cast<unsigned>(blocks);
        constexpr int threads = params_type::threads;
        constexpr int shared_bytes = params_type::shared_bytes;
        return overlap
                   ? qpn::detail::launch_overlapping(kernel, grid, threads, shared_bytes, stream, p)
                   : qpn::detail::launch(kernel, grid, threads, shared_bytes, stream, p);
      },
      params);
}

}  // namespace qwen38::ops::cuda
