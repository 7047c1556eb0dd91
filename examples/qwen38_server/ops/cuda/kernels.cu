// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/kernels.cuh"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <qpn/config.hpp>
#include <qpn/detail/launch.cuh>
#include <qpn/detail/shared_carveout.hpp>
#include <type_traits>
#include <variant>

#include "ops/cuda/device_lane.cuh"

// Compiled without contraction: a product and a sum round as they are written, in every kernel the
// same.
namespace qwen38::ops::cuda {
namespace {

/// What the CTAs behind those of a kernel fetch into the cache, one warp of each.
struct ahead_blocks {
  static constexpr std::size_t block_bytes = 32 * ahead_piece_bytes;

  byte_range range;
  unsigned first_block = 0;  ///< as many as the kernel itself has
};

QPN_DEVICE void fetch_ahead(ahead_blocks const& ahead) {
  allow_next();
  if (threadIdx.x >= 32) return;
  fetch_ahead(ahead.range, (blockIdx.x - ahead.first_block) * ahead_blocks::block_bytes +
                               threadIdx.x * ahead_piece_bytes);
}

/// Whether the program waits for the launch before, so that it may do something until then.
template <class Params, class = void>
inline constexpr bool waits_itself = false;
template <class Params>
inline constexpr bool waits_itself<Params, std::void_t<decltype(Params::waits_itself)>> = true;

/// Whether the program itself fetches what the launch is told to fetch ahead; for others CTAs
/// behind theirs do.
template <class Params, class = void>
inline constexpr bool fetches_itself = false;
template <class Params>
inline constexpr bool fetches_itself<Params, std::void_t<decltype(Params::ahead)>> = true;

/// CTAs of a cluster. Kernels with more than one are launched where kernels overlap.
template <class Params, class = void>
inline constexpr unsigned cluster_of = 1;
template <class Params>
inline constexpr unsigned cluster_of<Params, std::void_t<decltype(Params::cluster)>> =
    Params::cluster;

template <class Params>
struct launched {
  Params params;
  ahead_blocks ahead;
};

template <class Params>
__global__ void __launch_bounds__(Params::threads, Params::min_blocks)
    backend_kernel(launched<Params> const work) {
  extern __shared__ __align__(16) unsigned char qwen38_shared[];
  if (blockIdx.x >= work.ahead.first_block) {
    fetch_ahead(work.ahead);
    return;
  }
  allow_next();
  if constexpr (!waits_itself<Params>) wait_previous();
  device_lane lane{{qwen38_shared}};
  run_program(lane, work.params);
}

}  // namespace

cudaError_t kernels_overlap(bool& overlap) {
  cudaFuncAttributes attributes{};
  cudaError_t const asked = cudaFuncGetAttributes(
      &attributes, reinterpret_cast<void const*>(&backend_kernel<copy_rows_params>));
  overlap = attributes.ptxVersion >= 90;
  return asked;
}

cudaError_t launch_kernel(kernel_params const& params, qpn::device_info const& gpu, bool overlap,
                          byte_range ahead, cudaStream_t stream) {
  return std::visit(
      [&gpu, overlap, ahead, stream](auto const& p) {
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
        launched<params_type> work{p, {{}, static_cast<unsigned>(blocks)}};
        if constexpr (fetches_itself<params_type>) {
          if (overlap) work.params.ahead = ahead;
        } else {
          if (overlap) work.ahead.range = ahead;
        }
        auto const grid =
            work.ahead.first_block +
            static_cast<unsigned>((work.ahead.range.bytes + ahead_blocks::block_bytes - 1) /
                                  ahead_blocks::block_bytes);
        auto const kernel = &backend_kernel<params_type>;
        constexpr int threads = params_type::threads;
        constexpr int shared_bytes = params_type::shared_bytes;
        if (!overlap) {
          if (cluster_of<params_type> != 1) return cudaErrorInvalidConfiguration;
          return qpn::detail::launch(kernel, grid, threads, shared_bytes, stream, work);
        }
        std::int64_t const resident = std::min<std::int64_t>(divide_up(blocks, gpu.sm_count),
                                                             gpu.max_threads_per_sm / threads);
        int const carveout =
            qpn::detail::shared_carveout(resident, shared_bytes, gpu.shared_bytes_per_sm);
        return qpn::detail::launch(kernel, grid, threads, shared_bytes,
                                   {true, carveout, cluster_of<params_type>}, stream, work);
      },
      params);
}

}  // namespace qwen38::ops::cuda
