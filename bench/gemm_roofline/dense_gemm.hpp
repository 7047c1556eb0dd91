// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

namespace qpn::bench::roofline {

/// y[m, n] = x[m, k] w[n, k]^T, all f16 without gaps, sums in f32: a GEMM of somebody else.
class dense_gemm {
 public:
  dense_gemm() = default;
  virtual ~dense_gemm() = default;
  dense_gemm(dense_gemm const&) = delete;
  dense_gemm& operator=(dense_gemm const&) = delete;

  /// "13.0.2"
  [[nodiscard]] virtual std::string version() const = 0;
  /// Launches on the stream; can be captured. Throws std::runtime_error with the error's number.
  virtual void launch(std::int64_t m, std::int64_t n, std::int64_t k, void const* x, void const* w,
                      void* y) = 0;
};

/// cuBLAS, or null where CMake did not find it.
[[nodiscard]] std::unique_ptr<dense_gemm> make_cublas_gemm(cudaStream_t stream);

}  // namespace qpn::bench::roofline
