// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <qpn/format.hpp>
#include <qpn/prepack.hpp>

#include "support/gemm_bound.hpp"

// What a GEMM should give, computed from the published weight without the library's kernels, and
// the parts of y that are compared with it. All pointers are to device memory.

namespace qpn::bench {

/// sums[i * m + row] = weight row weight_rows[i] with row `row` of x, in fp64.
/// @param format     nvfp4 or fp8, with a tensor scale
/// @param published  codes, block_scales and global_scale of a weight [*, k]
/// @param x          f16 [m, k], ldx elements between rows
[[nodiscard]] cudaError_t launch_reference_sums(format_id format, weight_part const& published,
                                                std::int64_t k, std::int64_t const* weight_rows,
                                                std::int64_t count, void const* x, std::int64_t m,
                                                std::int64_t ldx, test::exact_sum* sums,
                                                cudaStream_t stream) noexcept;

/// out[i * m + row] = y[row, columns[i]], y of type f16.
[[nodiscard]] cudaError_t launch_gather(void const* y, std::int64_t m, std::int64_t ldy,
                                        std::int64_t const* columns, std::int64_t count,
                                        double* out, cudaStream_t stream) noexcept;

/// Adds the NaN among m rows of n f16 elements to *nans.
[[nodiscard]] cudaError_t launch_count_nans(void const* y, std::int64_t m, std::int64_t n,
                                            std::int64_t ldy, unsigned long long* nans,
                                            cudaStream_t stream) noexcept;

}  // namespace qpn::bench
