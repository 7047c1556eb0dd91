// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"
#include "qpn/detail/device_dequantize.hpp"
#include "qpn/detail/launch.cuh"
#include "qpn/dtype.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"

namespace qpn {

namespace detail {

template <class Format>
QPN_KERNEL __launch_bounds__(word_threads) void dequantize_kernel(dequantize_params const params) {
  sm70::device_lane lane{nullptr};
  dequantize_program<Format>(lane, params);
}

/// Launches what check_dequantize has passed.
template <class Format>
[[nodiscard]] static status launch_dequantize(dequantize_params const& params,
                                              cudaStream_t stream) noexcept {
  auto const blocks = static_cast<unsigned>(
      units_of_rows<Format>(params.weight.layout, params.first_row, params.rows));
  return launch_outcome(launch(&dequantize_kernel<Format>, blocks, word_threads, 0, stream, params),
                        "dequantize: the launch failed",
                        "dequantize: this program was not compiled for the device's architecture");
}

}  // namespace detail

/// out[i, j] = weight (first_row + i, j) as a number, row-major, for rows [first_row, first_row +
/// rows) and all k of a weight in device memory, layouts for GPUs.
///
/// The code times its block scale is exact in fp32; times the fp32 scale it is rounded to fp32
/// once. f16: that product rounded to nearest even, finite ones beyond +-65504 become +-65504. bf16
/// weights are exact in f32 and rounded in f16.
///
/// Columns k..ldo-1 of a row are not written. It is fastest where `out` is 16-byte aligned and a
/// row of ldo elements a multiple of 16 bytes.
///
/// Stream-ordered; allocates and synchronises nothing; can be captured in a graph. Deterministic.
/// @param weight     data in device memory, 128-byte aligned
/// @param first_row  any row; borders need not be those of tiles
/// @param rows       >= 1
/// @param out        out_type [rows, k] in device memory, aligned to its elements
/// @param out_type   f16 or f32
/// @param ldo        elements between two rows of out, >= k
/// @return before anything is launched: invalid_value: not a valid layout for GPUs, or a null
///         pointer; unsupported_format: a layout of another format, or another out_type;
///         invalid_shape: rows that the weight does not have, ldo below k, a size beyond 64 bits;
///         misaligned. Then not_compiled_for_arch, or launch_failed with the CUDA error
template <class Format>
[[nodiscard]] static status dequantize(packed_weight const& weight, std::int64_t first_row,
                                       std::int64_t rows, void* out, dtype out_type,
                                       std::int64_t ldo, cudaStream_t stream) noexcept {
  detail::dequantize_params params;
  params.weight = weight;
  params.first_row = first_row;
  params.rows = rows;
  params.out = out;
  params.out_type = out_type;
  params.ldo = ldo;
  if (status const checked = detail::check_dequantize<Format>(params); !checked.ok()) {
    return checked;
  }
  return detail::launch_dequantize<Format>(params, stream);
}

}  // namespace qpn
