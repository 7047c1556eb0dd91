// SPDX-License-Identifier: Apache-2.0
// Quantises a matrix to NVFP4, packs it, multiplies on the CPU and compares with fp64.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <qpn/qpn.hpp>
#include <random>
#include <vector>

namespace {

bool succeeded(qpn::status const& status) {
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", qpn::to_string(status.code), status.what);
  return status.ok();
}

}  // namespace

int main() {
  constexpr std::int64_t m = 5, n = 200, k = 768;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> w(n * k);
  std::vector<float> x(m * k);
  for (float& value : w) value = 0.02f * normal(random);
  for (float& value : x) value = normal(random);

  // fp32 [n, k] -> the matrix as a checkpoint holds it: codes, one e4m3 scale per 16 k, one fp32
  // scale.
  std::vector<std::uint8_t> codes(n * k / 2);
  std::vector<std::uint8_t> block_scales(n * k / 16);
  qpn::weight_part part;
  part.n = n;
  part.codes = codes.data();
  part.block_scales = block_scales.data();
  if (!succeeded(qpn::quantize_nvfp4(w.data(), n, k, codes.data(), block_scales.data(),
                                     part.global_scale)))
    return 1;

  // -> packed, in memory that we own.
  qpn::packed_weight weight;
  if (!succeeded(qpn::make_packed_layout(qpn::format_id::nvfp4, qpn::scale_mode::tensor, n, k,
                                         qpn::dtype::f16, weight.layout))) {
    return 1;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(weight.layout.total_bytes));
  if (!succeeded(qpn::prepack(weight.layout, &part, 1, bytes.data()))) return 1;
  weight.data = bytes.data();

  // y[m, n] = x[m, k] * w[n, k]^T
  std::vector<float> y(m * n);
  qpn::cpu::thread_pool pool(2);
  qpn::cpu::gemm_args args;
  args.x = x.data();
  args.m = m;
  args.ldx = k;
  args.y = y.data();
  args.ldy = n;
  if (!succeeded(qpn::cpu::gemm(weight, args, pool))) return 1;

  std::vector<double> const wide_x(x.begin(), x.end());
  std::vector<double> expected(m * n);
  qpn::reference::gemm(weight.layout, &part, 1, wide_x.data(), m, expected.data());
  double worst = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - expected[i]));
    largest = std::max(largest, std::fabs(expected[i]));
  }
  std::printf(
      "nvfp4 [%d x %d], m = %d, %s: %.2f bits a weight, largest error %.1e of largest output\n",
      static_cast<int>(n), static_cast<int>(k), static_cast<int>(m),
      qpn::cpu::to_string(qpn::cpu::best_isa()),
      8.0 * static_cast<double>(weight.layout.total_bytes) / static_cast<double>(n * k),
      worst / largest);
  return worst < 1e-5 * largest ? 0 : 1;
}
