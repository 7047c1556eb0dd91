// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <qpn/status.hpp>

#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

// qpn's launches for the format that the plan or layout has.
[[nodiscard]] qpn::status launch_init_workspace(linear_plan const& plan,
                                                qpn::workspace_view workspace, cudaStream_t stream);
[[nodiscard]] qpn::status launch_gemm(linear_plan const& plan, qpn::gemm_args const& args,
                                      qpn::workspace_view workspace, cudaStream_t stream);
[[nodiscard]] qpn::status launch_prepack(qpn::packed_layout const& layout,
                                         qpn::weight_part const& rows, std::int64_t first_row,
                                         std::byte* out, qpn::prepack_report* report,
                                         cudaStream_t stream);

}  // namespace qwen38::ops::cuda
