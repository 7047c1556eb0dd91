// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"
#include "qpn/detail/device_prepack.hpp"
#include "qpn/detail/launch.cuh"
#include "qpn/packed_weight.hpp"
#include "qpn/prepack.hpp"
#include "qpn/prepack_report.hpp"
#include "qpn/status.hpp"

// Packing and unpacking in device memory, layouts for GPUs. Nothing here allocates or
// synchronises, and every call can be captured in a graph.

namespace qpn {

namespace detail {

template <class Format>
QPN_KERNEL __launch_bounds__(word_threads) void prepack_kernel(prepack_params const params) {
  sm70::device_lane lane{nullptr};
  prepack_program<Format>(lane, params);
}

template <class Format>
QPN_KERNEL __launch_bounds__(word_threads) void unpack_kernel(unpack_params const params) {
  sm70::device_lane lane{nullptr};
  unpack_program<Format>(lane, params);
}

[[nodiscard]] static inline status prepack_outcome(cudaError_t error) noexcept {
  return launch_outcome(error, "prepack: the launch failed",
                        "prepack: this program was not compiled for the device's architecture");
}

}  // namespace detail

/// Sets a report in device memory to "nothing was found", in stream order.
/// @return invalid_value: null; launch_failed with the CUDA error
[[nodiscard]] static inline status init_prepack_report(prepack_report* report,
                                                       cudaStream_t stream) noexcept {
  if (report == nullptr) {
    return {status_code::invalid_value, 0, "prepack: the weight or the report is null"};
  }
  return detail::prepack_outcome(cudaMemsetAsync(report, 0, sizeof *report, stream));
}

/// Packs rows [first_row, first_row + rows.n) of the fused matrix on the device: the bytes that the
/// host's prepack_rows writes, and no others.
///
/// Pieces may come in any order and on several streams: they share no byte. The piece with the last
/// row writes the padding, too, so that `out` needs no preparation. With a tensor scale pieces
/// begin and end at multiples of 32 rows, or at the last row; with block scales a piece also lies
/// in one block of 128 rows of its part, or begins at one.
///
/// What the host's call would refuse a value for is known only once the stream has come there: it
/// goes into *report, which pieces may share. Copy it back and ask to_status before using the
/// weight; what belongs to the rows is unspecified where it is not ok.
///
/// Stream-ordered; allocates and synchronises nothing; can be captured in a graph. Deterministic.
/// @param layout     from make_packed_layout for a GPU, of format Format
/// @param rows       rows.n rows of one part; codes and block_scales are device pointers of any
///                   alignment, channel_scales and scale_blocks to aligned floats, the latter to
///                   those of the first row's block; global_scale is read here
/// @param first_row  place of the first row in the fused matrix
/// @param out        the whole weight in device memory: layout.total_bytes bytes, 128-byte aligned
/// @param report     in device memory, set up by init_prepack_report
/// @return before anything is launched: invalid_value: not a valid layout for GPUs, or a null
///         pointer; unsupported_format: a layout of another format; invalid_shape: rows that the
///         weight does not have, or a border inside a tile; misaligned. Then not_compiled_for_arch,
///         or launch_failed with the CUDA error
template <class Format>
[[nodiscard]] static status prepack_rows(packed_layout const& layout, weight_part const& rows,
                                         std::int64_t first_row, std::byte* out,
                                         prepack_report* report, cudaStream_t stream) noexcept {
  detail::prepack_params const params{layout, rows, first_row, out, report};
  if (status const checked = detail::check_prepack<Format>(params); !checked.ok()) return checked;
  auto const blocks =
      static_cast<unsigned>(detail::units_of_rows<Format>(layout, first_row, rows.n));
  return detail::prepack_outcome(detail::launch(&detail::prepack_kernel<Format>, blocks,
                                                detail::word_threads, 0, stream, params));
}

/// The inverse on the device: writes rows [first_row, first_row + rows.n) as published, in the form
/// that unpack returns: block scales without signs. Null pointers of `rows` are skipped.
///
/// The rows should be of one part: with a tensor scale, one that differs from that of the first row
/// goes into *report, as unpack refuses it; with block scales, one that differs within 128 rows.
///
/// Stream-ordered; allocates and synchronises nothing; can be captured in a graph. Deterministic.
/// @param weight     data in device memory, 128-byte aligned
/// @param first_row  place of the first row in the fused matrix; borders as in prepack_rows
/// @param rows       where to write, in device memory: codes and block_scales at any alignment,
///                   global_scale, channel_scales and scale_blocks at aligned floats
/// @param report     in device memory, set up by init_prepack_report
/// @return as prepack_rows
template <class Format>
[[nodiscard]] static status unpack_rows(packed_weight const& weight, std::int64_t first_row,
                                        unpacked_part const& rows, prepack_report* report,
                                        cudaStream_t stream) noexcept {
  detail::unpack_params const params{weight, rows, first_row, report};
  if (status const checked = detail::check_unpack<Format>(params); !checked.ok()) return checked;
  auto const blocks =
      static_cast<unsigned>(detail::units_of_rows<Format>(weight.layout, first_row, rows.n));
  return detail::prepack_outcome(detail::launch(&detail::unpack_kernel<Format>, blocks,
                                                detail::word_threads, 0, stream, params));
}

}  // namespace qpn
