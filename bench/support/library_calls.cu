// SPDX-License-Identifier: Apache-2.0
#include "support/library_calls.hpp"

#include "qpn/dequantize.cuh"
#include "qpn/device_info.cuh"
#include "qpn/gemm.cuh"
#include "qpn/prepack.cuh"

#define QPN_BENCH_TEXT_OF(number) #number
#define QPN_BENCH_TEXT(number) QPN_BENCH_TEXT_OF(number)

namespace qpn::bench {

status query_bench_device(device_info& out) noexcept {
  return query_device_info(0, out);
}

char const* nvcc_release() noexcept {
  return "CUDA " QPN_BENCH_TEXT(__CUDACC_VER_MAJOR__) "." QPN_BENCH_TEXT(
      __CUDACC_VER_MINOR__) "." QPN_BENCH_TEXT(__CUDACC_VER_BUILD__);
}

template <class Format>
status call_init_workspace(gemm_plan<Format> const& plan, workspace_view workspace,
                           cudaStream_t stream) noexcept {
  return init_workspace(plan, workspace, stream);
}

template <class Format>
status call_gemm(gemm_plan<Format> const& plan, gemm_args const& args, workspace_view workspace,
                 cudaStream_t stream) noexcept {
  return gemm(plan, args, workspace, stream);
}

template <class Format>
status call_prepack(packed_layout const& layout, weight_part const& published, std::byte* out,
                    prepack_report* report, cudaStream_t stream) noexcept {
  if (status const set_up = init_prepack_report(report, stream); !set_up.ok()) return set_up;
  return prepack_rows<Format>(layout, published, 0, out, report, stream);
}

template <class Format>
status call_dequantize(packed_weight const& weight, void* out, cudaStream_t stream) noexcept {
  return dequantize<Format>(weight, 0, weight.layout.n, out, dtype::f16, weight.layout.k, stream);
}

template status call_init_workspace(gemm_plan<nvfp4> const&, workspace_view, cudaStream_t) noexcept;
template status call_init_workspace(gemm_plan<fp8> const&, workspace_view, cudaStream_t) noexcept;
template status call_gemm(gemm_plan<nvfp4> const&, gemm_args const&, workspace_view,
                          cudaStream_t) noexcept;
template status call_gemm(gemm_plan<fp8> const&, gemm_args const&, workspace_view,
                          cudaStream_t) noexcept;
template status call_prepack<nvfp4>(packed_layout const&, weight_part const&, std::byte*,
                                    prepack_report*, cudaStream_t) noexcept;
template status call_prepack<fp8>(packed_layout const&, weight_part const&, std::byte*,
                                  prepack_report*, cudaStream_t) noexcept;
template status call_dequantize<nvfp4>(packed_weight const&, void*, cudaStream_t) noexcept;
template status call_dequantize<fp8>(packed_weight const&, void*, cudaStream_t) noexcept;

}  // namespace qpn::bench
