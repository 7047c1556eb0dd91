// SPDX-License-Identifier: Apache-2.0
#include "gpu/gemm_dense_launch.hpp"

#include <cuda_fp16.h>

#include "qpn/gemm_dense.cuh"

namespace qpn::test {
namespace {

/// y[m, n] = x[m, k] w[n, k]^T, one thread for each sum.
__global__ void naive_gemm_kernel(dense_gemm const product) {
  std::int64_t const at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  std::int64_t const row = at / product.n;
  std::int64_t const column = at % product.n;
  if (row >= product.m) return;
  __half const* const x = static_cast<__half const*>(product.x) + row * product.ldx;
  __half const* const w = static_cast<__half const*>(product.w) + column * product.ldw;
  float sum = 0.0F;
  for (std::int64_t k = 0; k < product.k; ++k) sum += __half2float(x[k]) * __half2float(w[k]);
  product.y[row * product.ldy + column] = sum;
}

status naive_gemm(dense_gemm const& product, cudaStream_t stream) noexcept {
  auto const blocks = static_cast<unsigned>((product.m * product.n - 1) / 128 + 1);
  naive_gemm_kernel<<<blocks, 128, 0, stream>>>(product);
  return detail::gemm_outcome(cudaGetLastError());
}

}  // namespace

template <class Format>
status launch_gemm_dense(gemm_plan<Format> const& plan, gemm_args const& args,
                         workspace_view workspace, cudaStream_t stream) noexcept {
  return gemm_dense(plan, args, workspace, naive_gemm, stream);
}

status launch_failing_gemm_dense(gemm_plan<nvfp4> const& plan, gemm_args const& args,
                                 workspace_view workspace, int& calls) noexcept {
  auto const failing = [&calls](dense_gemm const& product, cudaStream_t stream) noexcept -> status {
    if (++calls == 2) return {status_code::launch_failed, 77, "the caller's own sentence"};
    return naive_gemm(product, stream);
  };
  return gemm_dense(plan, args, workspace, failing, nullptr);
}

template status launch_gemm_dense(gemm_plan<nvfp4> const&, gemm_args const&, workspace_view,
                                  cudaStream_t) noexcept;
template status launch_gemm_dense(gemm_plan<fp8> const&, gemm_args const&, workspace_view,
                                  cudaStream_t) noexcept;
template status launch_gemm_dense(gemm_plan<dense16> const&, gemm_args const&, workspace_view,
                                  cudaStream_t) noexcept;

}  // namespace qpn::test
