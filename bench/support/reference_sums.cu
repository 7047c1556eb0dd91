// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>

#include <qpn/dtype.hpp>

#include "support/reference_sums.hpp"

namespace qpn::bench {

namespace {

constexpr int threads = 128;

__device__ double weight_at(format_id format, weight_part const& published, std::int64_t k,
                            std::int64_t row, std::int64_t column) {
  auto const* const codes = static_cast<std::uint8_t const*>(published.codes);
  auto const scale = static_cast<double>(published.global_scale);
  std::int64_t const at = row * k + column;
  if (format == format_id::fp8) return decode_e4m3(codes[at]) * scale;
  auto const* const block_scales = static_cast<std::uint8_t const*>(published.block_scales);
  auto const code = static_cast<std::uint8_t>(codes[at / 2] >> (at % 2 == 0 ? 0 : 4) & 0xf);
  return static_cast<double>(decode_e2m1(code)) *
         static_cast<double>(decode_e4m3(block_scales[at / nvfp4::group_k])) * scale;
}

/// CTA (i, row): each thread sums a part of k, then the parts are added in halves.
__global__ __launch_bounds__(threads) void reference_kernel(
    format_id format, weight_part const published, std::int64_t k, std::int64_t const* weight_rows,
    __half const* x, std::int64_t ldx, std::int64_t m, test::exact_sum* sums) {
  __shared__ double parts[3][threads];
  std::int64_t const row = blockIdx.y;
  double sum = 0.0;
  double magnitude = 0.0;
  double x_magnitude = 0.0;
  for (std::int64_t j = threadIdx.x; j < k; j += threads) {
    double const value = __half2float(x[row * ldx + j]);
    double const product = value * weight_at(format, published, k, weight_rows[blockIdx.x], j);
    sum += product;
    magnitude += fabs(product);
    x_magnitude += fabs(value);
  }
  parts[0][threadIdx.x] = sum;
  parts[1][threadIdx.x] = magnitude;
  parts[2][threadIdx.x] = x_magnitude;
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();  // the parts of the step before are there
    if (threadIdx.x < half) {
      for (auto& part : parts) part[threadIdx.x] += part[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) sums[blockIdx.x * m + row] = {parts[0][0], parts[1][0], parts[2][0]};
}

__global__ __launch_bounds__(threads) void gather_kernel(__half const* y, std::int64_t m,
                                                         std::int64_t ldy,
                                                         std::int64_t const* columns, double* out) {
  for (std::int64_t row = threadIdx.x; row < m; row += threads) {
    out[blockIdx.x * m + row] = __half2float(y[row * ldy + columns[blockIdx.x]]);
  }
}

__global__ __launch_bounds__(threads) void count_nans_kernel(__half const* y, std::int64_t n,
                                                             std::int64_t ldy,
                                                             unsigned long long* nans) {
  unsigned long long found = 0;
  for (std::int64_t j = threadIdx.x; j < n; j += threads) {
    if (__hisnan(y[blockIdx.x * ldy + j])) ++found;
  }
  if (found != 0) atomicAdd(nans, found);
}

}  // namespace

cudaError_t launch_reference_sums(format_id format, weight_part const& published, std::int64_t k,
                                  std::int64_t const* weight_rows, std::int64_t count,
                                  void const* x, std::int64_t m, std::int64_t ldx,
                                  test::exact_sum* sums, cudaStream_t stream) noexcept {
  dim3 const grid(static_cast<unsigned>(count), static_cast<unsigned>(m));
  reference_kernel<<<grid, threads, 0, stream>>>(format, published, k, weight_rows,
                                                 static_cast<__half const*>(x), ldx, m, sums);
  return cudaGetLastError();
}

cudaError_t launch_gather(void const* y, std::int64_t m, std::int64_t ldy,
                          std::int64_t const* columns, std::int64_t count, double* out,
                          cudaStream_t stream) noexcept {
  gather_kernel<<<static_cast<unsigned>(count), threads, 0, stream>>>(static_cast<__half const*>(y),
                                                                      m, ldy, columns, out);
  return cudaGetLastError();
}

cudaError_t launch_count_nans(void const* y, std::int64_t m, std::int64_t n, std::int64_t ldy,
                              unsigned long long* nans, cudaStream_t stream) noexcept {
  count_nans_kernel<<<static_cast<unsigned>(m), threads, 0, stream>>>(static_cast<__half const*>(y),
                                                                      n, ldy, nans);
  return cudaGetLastError();
}

}  // namespace qpn::bench
