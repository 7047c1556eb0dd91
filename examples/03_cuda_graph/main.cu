// SPDX-License-Identifier: Apache-2.0
// The feed-forward block of a transformer, h + down(silu(gate(h)) * up(h)), as two GEMMs in a CUDA
// graph: every replay gives the bits of plain launches.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <qpn/device_info.cuh>
#include <qpn/gemm.cuh>
#include <qpn/prepack.hpp>
#include <random>
#include <vector>

#include "device_array.hpp"

namespace {

/// A linear layer on the GPU. Each has a workspace of its own: the part that must stay zero between
/// calls has another size in every plan, so layers cannot take turns with one.
struct layer {
  layer(std::vector<qpn::weight_part> const& parts, std::int64_t n, std::int64_t k,
        qpn::gemm_problem const& problem, qpn::device_info const& device) {
    qpn::packed_layout layout;
    check(qpn::make_packed_layout(qpn::format_id::nvfp4, qpn::scale_mode::tensor, n, k,
                                  qpn::dtype::f16, device, layout));
    std::vector<std::byte> packed(static_cast<std::size_t>(layout.total_bytes));
    check(qpn::prepack(layout, parts.data(), parts.size(), packed.data()));
    weight = to_device(packed);
    check(qpn::make_gemm_plan(layout, problem, device, plan));
    workspace = make_device_array<std::byte>(plan.workspace_bytes);
    check(qpn::init_workspace(plan, {workspace.get(), plan.workspace_bytes}, nullptr));
    check(cudaDeviceSynchronize());  // calls will come on other streams
  }

  /// y = layer(x), plus residual where there is one.
  void launch(std::int64_t m, std::uint16_t const* x, std::uint16_t const* residual,
              std::uint16_t* y, qpn::gemm_census& census, cudaStream_t stream) const {
    qpn::gemm_args args;
    args.m = m;
    args.x = x;
    args.ldx = plan.layout.k;
    args.weight = {plan.layout, weight.get()};
    args.y = y;
    args.ldy = args.ld_residual = qpn::columns_of_y(plan);
    args.residual = residual;
    args.census = &census;
    check(qpn::gemm(plan, args, {workspace.get(), plan.workspace_bytes}, stream));
  }

  qpn::gemm_plan<qpn::nvfp4> plan;
  device_array<std::byte> weight, workspace;
};

}  // namespace

int main() {
  if (!has_gpu()) {
    std::puts("Skipped: this example needs a GPU.");
    return 77;  // ctest counts it as skipped
  }
  constexpr std::int64_t m = 5, hidden = 1024, inner = 2048;
  qpn::device_info device;
  check(qpn::query_device_info(0, device));

  // Any bytes are e2m1 codes, and 0x30 is the e4m3 scale 0.5. All three matrices share them here.
  std::mt19937 random(1);
  std::vector<std::uint8_t> codes(hidden * inner / 2), scales(hidden * inner / 16, 0x30);
  for (std::uint8_t& pair : codes) pair = static_cast<std::uint8_t>(random());
  std::vector<qpn::weight_part> gate_up;  // silu_gate: tiles of 32 rows take turns, gate first
  for (std::int64_t row = 0; row < inner; row += qpn::tile_n) {
    for (float scale : {0.01f, 0.02f})
      gate_up.push_back({qpn::tile_n, &codes[row * hidden / 2], &scales[row * hidden / 16], scale});
  }
  qpn::gemm_problem gated;
  gated.act = qpn::activation::silu_gate;
  layer const up(gate_up, 2 * inner, hidden, gated, device);
  layer const down({{hidden, codes.data(), scales.data(), 0.01f}}, hidden, inner, {}, device);

  std::vector<std::uint16_t> h(m * hidden), plain(h.size()), replayed(h.size());
  std::normal_distribution<float> normal;
  for (std::uint16_t& code : h) code = qpn::encode_f16(normal(random));
  auto const device_h = to_device(h);
  auto const middle = make_device_array<std::uint16_t>(m * inner);
  auto const y = make_device_array<std::uint16_t>(h.size());
  qpn::gemm_census census;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  auto const launch_both = [&] {
    up.launch(m, device_h.get(), nullptr, middle.get(), census, stream);
    down.launch(m, middle.get(), device_h.get(), y.get(), census, stream);
  };
  launch_both();
  check(cudaStreamSynchronize(stream));
  to_host(y, plain);

  // gemm allocates and synchronises nothing, so it can be captured as it is.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launch_both();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiateWithFlags(&replay, graph, 0));
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    check(cudaMemsetAsync(y.get(), 0xff, 2 * h.size(), stream));  // the last result must not do
    check(cudaGraphLaunch(replay, stream));
    check(cudaStreamSynchronize(stream));
    to_host(y, replayed);
    different += replayed != plain ? 1 : 0;
  }
  // The census counts launches by the host: the plain ones and, once, those in the graph.
  for (int i = 0; i < qpn::gemm_route_count; ++i) {
    qpn::gemm_route const route = qpn::route_at(i);
    auto const launches = static_cast<unsigned long long>(census.launches(route));
    if (launches != 0) std::printf("%s: %llu launches\n", qpn::route_name(route), launches);
  }
  std::printf("100 replays, %d of them unlike the plain launches\n", different);
  return different == 0 ? 0 : 1;
}
