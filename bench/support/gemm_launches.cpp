// SPDX-License-Identifier: Apache-2.0
#include "support/gemm_launches.hpp"

#include <cstddef>
#include <vector>

#include "support/fragment_rows.hpp"
#include "support/output_sample.hpp"
#include "support/random_fill.hpp"

namespace qpn::bench {

namespace {

constexpr std::size_t f16_bytes = 2;

}  // namespace

activations::activations(model_shape const& shape, std::int64_t rows, machine const& gpu)
    : m(rows),
      x(f16_bytes * static_cast<std::size_t>(rows * shape.k)),
      y(f16_bytes * static_cast<std::size_t>(rows * shape.n)) {
  test::require(fill_random_f16(static_cast<std::uint64_t>(rows), x.data(),
                                static_cast<std::size_t>(rows * shape.k), gpu.stream()));
  gpu.wait();
}

void activations::order_fragments(std::int64_t k) {
  std::vector<std::uint16_t> rows(x.size() / f16_bytes);
  test::require(cudaMemcpy(rows.data(), x.data(), x.size(), cudaMemcpyDeviceToHost));
  std::vector<std::uint16_t> ordered(static_cast<std::size_t>(x_fragments_count(m, k)));
  test::copy_to_fragments(rows.data(), k, m, k, ordered.data());
  fragments.emplace(ordered.size() * f16_bytes);
  fragments->upload(ordered);
}

void launch_all(planned_gemm const& gemm, cold_weights const& weights, activations const& with,
                std::int64_t launches, machine const& gpu) {
  gemm_args args;
  args.m = with.m;
  args.x = with.x.data();
  args.ldx = weights.layout().k;
  if (with.fragments) {
    args.x = with.fragments->data();
    args.order = x_order::fragments;
  }
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
