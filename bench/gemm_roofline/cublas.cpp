// SPDX-License-Identifier: Apache-2.0
#include <cublas_v2.h>

#include <stdexcept>

#include "gemm_roofline/dense_gemm.hpp"
#include "gpu/device_memory.hpp"

namespace qpn::bench::roofline {

namespace {

void require(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error("cuBLAS: error " + std::to_string(static_cast<int>(status)));
  }
}

class cublas_gemm : public dense_gemm {
 public:
  explicit cublas_gemm(cudaStream_t stream) : workspace_(std::size_t{64} << 20) {
    require(cublasCreate(&handle_));
    require(cublasSetStream(handle_, stream));
    // Graphs hold on to the memory that they were captured with, so it must be ours.
    require(cublasSetWorkspace(handle_, workspace_.data(), workspace_.size()));
  }
  ~cublas_gemm() override { cublasDestroy(handle_); }

  [[nodiscard]] std::string version() const override {
    int number = 0;
    require(cublasGetVersion(handle_, &number));
    return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
           std::to_string(number % 100);
  }

  void launch(std::int64_t m, std::int64_t n, std::int64_t k, void const* x, void const* w,
              void* y) override {
    float const one = 1.0F;
    float const zero = 0.0F;
    auto const rows = static_cast<int>(m);
    auto const columns = static_cast<int>(n);
    auto const inner = static_cast<int>(k);
    // Column-major: y^T [n, m] = w [n, k] x^T.
    require(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, columns, rows, inner, &one, w,
                         CUDA_R_16F, inner, x, CUDA_R_16F, inner, &zero, y, CUDA_R_16F, columns,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

 private:
  test::device_memory workspace_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace

std::unique_ptr<dense_gemm> make_cublas_gemm(cudaStream_t stream) {
  return std::make_unique<cublas_gemm>(stream);
}

}  // namespace qpn::bench::roofline
