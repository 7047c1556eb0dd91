// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/gpu_gemm.cuh"

#include <qpn/gemm.cuh>
#include <qpn/prepack.cuh>

namespace qwen38::ops::cuda {

qpn::status launch_init_workspace(linear_plan const& plan, qpn::workspace_view workspace,
                                  cudaStream_t stream) {
  return std::visit([&](auto const& of) { return qpn::init_workspace(of, workspace, stream); },
                    plan);
}

qpn::status launch_gemm(linear_plan const& plan, qpn::gemm_args const& args,
                        qpn::workspace_view workspace, cudaStream_t stream) {
  return std::visit([&](auto const& of) { return qpn::gemm(of, args, workspace, stream); }, plan);
}

qpn::status launch_prepack(qpn::packed_layout const& layout, qpn::weight_part const& rows,
                           std::int64_t first_row, std::byte* out, qpn::prepack_report* report,
                           cudaStream_t stream) {
  qpn::status const unknown{qpn::status_code::unsupported_format, 0, "prepack: unknown format"};
  return qpn::visit_format<qpn::status>(layout.format, unknown, [&](auto format) {
    return qpn::prepack_rows<decltype(format)>(layout, rows, first_row, out, report, stream);
  });
}

}  // namespace qwen38::ops::cuda
