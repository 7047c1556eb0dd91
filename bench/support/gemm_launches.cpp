// SPDX-License-Identifier: Apache-2.0
#include "support/gemm_launches.hpp"

#include "support/output_sample.hpp"
#include "support/random_fill.hpp"

namespace qpn::bench {

namespace {

constexpr std::int64_t f16_bytes = 2;

}  // namespace

activations::activations(model_shape const& shape, std::int64_t rows, machine const& gpu)
    : m(rows),
      x(static_cast<std::size_t>(f16_bytes * rows * shape.k)),
      y(static_cast<std::size_t>(f16_bytes * rows * shape.n)) {
  test::require(fill_random_f16(static_cast<std::uint64_t>(rows), x.data(),
                                static_cast<std::size_t>(rows * shape.k), gpu.stream()));
  gpu.wait();
}

void launch_all(planned_gemm const& gemm, cold_weights const& weights, activations const& with,
                std::int64_t launches, machine const& gpu) {
  gemm_args args;
  args.m = with.m;
  args.x = with.x.data();
  args.ldx = weights.layout().k;
  args.y = with.y.data();
  args.ldy = weights.layout().n;
  for (std::int64_t i = 0; i < launches; ++i) {
    args.weight = weights.copy(i % weights.copies());
    gemm.launch(args, gpu.stream());
  }
}

sampled_output output_of(cold_weights const& weights, activations const& with, machine const& gpu) {
  finished_launch launch;
  launch.weights = &weights;
  launch.m = with.m;
  launch.x = with.x.data();
  launch.ldx = weights.layout().k;
  launch.y = with.y.data();
  launch.ldy = weights.layout().n;
  return sample_output(launch, gpu);
}

}  // namespace qpn::bench
