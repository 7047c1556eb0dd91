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
  device_lane lane{{qwen38_shared}};
  run_program(lane, params);
}

}  // namespace

cudaError_t launch_kernel(kernel_params const& params, cudaStream_t stream) {
  return std::visit(
      [stream](auto const& p) {
        using params_type = std::decay_t<decltype(p)>;
        std::int64_t const blocks = p.blocks();
        if (blocks == 0) return cudaSuccess;
        if (blocks > std::numeric_limits<std::int32_t>::max()) return cudaErrorInvalidConfiguration;
        return qpn::detail::launch(&backend_kernel<params_type>, static_cast<unsigned>(blocks),
                                   params_type::threads, params_type::shared_bytes, stream, p);
      },
      params);
}

}  // namespace qwen38::ops::cuda
