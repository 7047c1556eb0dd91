// SPDX-License-Identifier: Apache-2.0
// From fp32 weights to checked results on a GPU: quantise to NVFP4, pack, plan, launch for three
// batch sizes, compare with fp64.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <qpn/device_info.cuh>
#include <qpn/gemm.cuh>
#include <qpn/prepack.hpp>
#include <qpn/quantize.hpp>
#include <qpn/reference/dequant.hpp>
#include <random>
#include <vector>

#include "device_array.hpp"

int main() {
  if (!has_gpu()) {
    std::puts("Skipped: this example needs a GPU.");
    return 77;  // ctest counts it as skipped
  }
  constexpr std::int64_t n = 1000, k = 2048, max_m = 16;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;

  // The matrix as a checkpoint holds it: e2m1 codes, an e4m3 scale per 16 of them, one fp32 scale.
  std::vector<float> w(n * k);
  for (float& value : w) value = 0.02f * normal(random);
  std::vector<std::uint8_t> codes(n * k / 2), block_scales(n * k / 16);
  qpn::weight_part part{n, codes.data(), block_scales.data()};
  check(qpn::quantize_nvfp4(w.data(), n, k, codes.data(), block_scales.data(), part.global_scale));

  // Packed for this GPU: the layout fixes how its multiprocessors share the weight, and with that
  // the order of summation, so the same bytes give the same bits for every m.
  qpn::device_info device;
  check(qpn::query_device_info(0, device));
  qpn::packed_layout layout;
  check(qpn::make_packed_layout(qpn::format_id::nvfp4, qpn::scale_mode::tensor, n, k,
                                qpn::dtype::f16, device, layout));
  std::vector<std::byte> packed(static_cast<std::size_t>(layout.total_bytes));
  check(qpn::prepack(layout, &part, 1, packed.data()));
  auto const weight = to_device(packed);

  // One plan serves every call with up to max_m rows. Its workspace is set up once: every call
  // leaves it ready for the next.
  qpn::gemm_plan<qpn::nvfp4> plan;
  check(qpn::make_gemm_plan(layout, {}, device, plan));
  auto const scratch = make_device_array<std::byte>(plan.workspace_bytes);
  qpn::workspace_view const workspace{scratch.get(), plan.workspace_bytes};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  check(qpn::init_workspace(plan, workspace, stream));

  std::vector<std::uint16_t> x(max_m * k);
  for (std::uint16_t& code : x) code = qpn::encode_f16(normal(random));
  auto const device_x = to_device(x);
  auto const device_y = make_device_array<std::uint16_t>(max_m * n);
  std::vector<double> exact(n * k);
  qpn::reference::dequant(layout, &part, 1, exact.data());

  bool all_within = true;
  for (std::int64_t m : {1, 8, 16}) {
    qpn::gemm_args args;
    args.m = m;
    args.x = device_x.get();
    args.ldx = k;
    args.weight = {layout, weight.get()};
    args.y = device_y.get();
    args.ldy = n;
    check(qpn::gemm(plan, args, workspace, stream));  // returns at once; the stream does the work
    check(cudaStreamSynchronize(stream));
    std::vector<std::uint16_t> y(static_cast<std::size_t>(m * n));
    to_host(device_y, y);

    double worst = 0.0;  // error over bound: fp32 sums of the tensor cores, then rounding to f16
    for (std::int64_t i = 0; i < m * n; ++i) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t j = 0; j < k; ++j) {
        double const product = qpn::decode_f16(x[i / n * k + j]) * exact[i % n * k + j];
        sum += product;
        magnitude += std::fabs(product);
      }
      double const bound = 2.0 * k * 0x1p-24 * magnitude;
      double const error = std::fabs(qpn::decode_f16(y[i]) - sum);
      double const share = error / (bound + 0x1p-11 * (std::fabs(sum) + bound));
      worst = share <= worst ? worst : share;  // a NaN is the worst
    }
    all_within = all_within && worst <= 1.0;
    std::printf("m = %2d, route %s: largest error %.3f of the bound\n", static_cast<int>(m),
                qpn::route_name(qpn::route(plan, m)), worst);
  }
  check(cudaStreamDestroy(stream));
  return all_within ? 0 : 1;
}
