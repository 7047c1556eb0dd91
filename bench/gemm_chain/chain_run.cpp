// SPDX-License-Identifier: Apache-2.0
#include "gemm_chain/chain_run.hpp"

#include <numeric>

#include "support/output_sample.hpp"
#include "support/overlap.hpp"
#include "support/random_fill.hpp"
#include "support/read_ceiling.hpp"
#include "support/rotation.hpp"
#include "support/statistics.hpp"

namespace qpn::bench::chain {

namespace {

constexpr std::int64_t least_launches = 200;
constexpr std::size_t projections = 4;

/// The residual outweighs what `out` adds to it, so that outputs are as large in the last layer as
/// in the first.
constexpr float gain_of_out = 0.25F;

std::size_t f16_bytes(std::int64_t elements) {
  return static_cast<std::size_t>(2 * elements);
}

std::int64_t layer_bytes(layer const& of, device_info const& device) {
  return std::accumulate(of.projections.begin(), of.projections.end(), std::int64_t{0},
                         [&](std::int64_t sum, model_shape const& shape) {
                           return sum + layout_of(shape, device).total_bytes;
                         });
}

double layer_us(captured_graph const& graph, std::int64_t length, std::int64_t replays) {
  std::vector<double> us;
  for (std::int64_t i = 0; i < replays; ++i) {
    us.push_back(graph.timed_replay() / static_cast<double>(length));
  }
  return median(us);
}

}  // namespace

layer_chain::layer_chain(layer const& of, std::int64_t m, machine const& gpu)
    : layer_(of),
      m_(m),
      gpu_(&gpu),
      input_(f16_bytes(m * of.projections[in].k)),
      residual_(f16_bytes(m * of.projections[out].n)),
      second_output_(f16_bytes(m * columns_of(of, down))) {
  std::int64_t const copies =
      copies_of(layer_bytes(of, gpu.info()), rotation_bytes(gpu.info().l2_bytes));
  length_ = launches_of(copies, least_launches / static_cast<std::int64_t>(projections));
  for (std::size_t i = 0; i < projections; ++i) {
    weights_[i] = std::make_unique<cold_weights>(of.projections[i], copies, i, gpu,
                                                 i == out ? gain_of_out : 1.0F);
    gemm_problem problem;
    problem.max_m = m;
    if (i == gate_up) problem.act = activation::silu_gate;
    gemms_[i] = std::make_unique<planned_gemm>(weights_[i]->layout(), problem, gpu);
    outputs_[i] = std::make_unique<test::device_memory>(f16_bytes(m * columns_of(of, i)));
  }
  test::require(fill_random_f16(1, input_.data(), input_.size() / 2, gpu.stream()));
  test::require(fill_random_f16(2, residual_.data(), residual_.size() / 2, gpu.stream()));
  gpu.wait();
}

test::device_memory const& layer_chain::handed_on(std::int64_t layer_index) const {
  return layer_index % 2 == 0 ? *outputs_[down] : second_output_;
}

layer_chain::place layer_chain::place_of(std::int64_t layer_index, std::size_t projection) const {
  void const* const x = projection != in   ? outputs_[projection - 1]->data()
                        : layer_index == 0 ? input_.data()
                                           : handed_on(layer_index - 1).data();
  return {x, (projection == down ? handed_on(layer_index) : *outputs_[projection]).data()};
}

std::int64_t layer_chain::ldx(std::size_t projection) const {
  return columns_of(layer_, projection == in ? down : projection - 1);
}

captured_graph layer_chain::capture(bool overlap) const {
  return captured_graph(gpu_->stream(), [&] {
    for (std::int64_t i = 0; i < length_; ++i) {
      for (std::size_t projection = 0; projection < projections; ++projection) {
        place const at = place_of(i, projection);
        gemm_args args;
        args.m = m_;
        args.x = at.x;
        args.ldx = ldx(projection);
        args.weight = weights_[projection]->copy(i % weights_[projection]->copies());
        args.y = at.y;
        args.ldy = columns_of(layer_, projection);
        if (projection == out) {
          args.residual = residual_.data();
          args.ld_residual = args.ldy;
        }
        bool const is_first = i == 0 && projection == in;
        if (overlap && !is_first) overlap_previous(args);
        gemms_[projection]->launch(args, gpu_->stream());
      }
    }
  });
}

void layer_chain::clear() {
  for (auto const& output : outputs_) output->refill();
  second_output_.refill();
}

void layer_chain::check() const {
  for (std::size_t i = 0; i < projections; ++i) {
    place const at = place_of(length_ - 1, i);
    finished_launch launch;
    launch.weights = weights_[i].get();
    launch.m = m_;
    launch.x = at.x;
    launch.ldx = ldx(i);
    launch.y = at.y;
    launch.ldy = columns_of(layer_, i);
    launch.gated = i == gate_up;
    if (i == out) {
      launch.residual = residual_.data();
      launch.ld_residual = launch.ldy;
    }
    require_right(std::string(layer_.projections[i].name) + " in the " + layer_.name + " layer",
                  sample_output(launch, *gpu_));
  }
}

std::vector<std::byte> layer_chain::last_output() const {
  return handed_on(length_ - 1).download();
}

std::vector<std::string> layer_chain::routes() const {
  std::vector<std::string> names;
  for (auto const& gemm : gemms_) names.push_back(gemm->route_name(m_));
  return names;
}

std::size_t layer_chain::packed_bytes(std::size_t projection) const {
  return static_cast<std::size_t>(weights_[projection]->layout().total_bytes);
}

measured_chain measure(layer const& of, std::int64_t m, std::int64_t replays, machine const& gpu) {
  layer_chain chain(of, m, gpu);
  std::vector<std::byte> bits;  // of the first replay
  auto const checked_us = [&](bool overlap) {
    captured_graph const graph = chain.capture(overlap);
    chain.clear();
    static_cast<void>(graph.timed_replay());
    chain.check();
    if (bits.empty()) bits = chain.last_output();
    double const us = layer_us(graph, chain.length(), replays);
    if (chain.last_output() != bits) {
      throw wrong_output("the " + of.name + " layer at TP" + std::to_string(of.tp) +
                         (overlap ? " has other bits where its launches overlap"
                                  : " has other bits in each replay"));
    }
    return us;
  };
  measured_chain row;
  row.layer = of.name;
  row.tp = of.tp;
  row.m = m;
  row.plain_us = checked_us(false);
  if (offers_overlap<>) row.pdl_us = checked_us(true);
  for (std::size_t i = 0; i < projections; ++i) {
    row.sum_read_us += read_us(chain.packed_bytes(i), least_launches, replays, gpu);
  }
  row.routes = chain.routes();
  return row;
}

}  // namespace qpn::bench::chain
