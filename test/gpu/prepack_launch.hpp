// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <qpn/device_info.hpp>
#include <qpn/dtype.hpp>
#include <qpn/packed_weight.hpp>
#include <qpn/prepack.hpp>
#include <qpn/prepack_report.hpp>
#include <qpn/status.hpp>

// prepack.cuh, dequantize.cuh and device_info.cuh for tests that g++ compiles: every pointer here
// is to host memory, and every call waits for the device. A CUDA error comes back as launch_failed.

namespace qpn::test {

[[nodiscard]] status device_info_of(int device, device_info& out);

struct gpu_piece {
  weight_part rows;
  std::int64_t first_row;
};

/// Packs the pieces one after the other into device memory that was not zero before; `as_graph`:
/// captures the calls into a graph and launches that.
[[nodiscard]] status prepack_on_gpu(packed_layout const& layout, gpu_piece const* pieces,
                                    std::size_t count, bool as_graph, std::byte* out,
                                    prepack_report& report);

/// All pointers of `rows` that the layout has a use for must be set.
[[nodiscard]] status unpack_on_gpu(packed_weight const& weight, std::int64_t first_row,
                                   unpacked_part const& rows, prepack_report& report);

/// Also copies `out`, [rows, ldo], to the device before, so that columns beyond k can be watched.
[[nodiscard]] status dequantize_on_gpu(packed_weight const& weight, std::int64_t first_row,
                                       std::int64_t rows, void* out, dtype out_type,
                                       std::int64_t ldo);

}  // namespace qpn::test
