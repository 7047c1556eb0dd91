// SPDX-License-Identifier: Apache-2.0
#include "gemm_roofline/session.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "support/captured_graph.hpp"
#include "support/read_ceiling.hpp"
#include "support/statistics.hpp"

namespace qpn::bench::roofline {

namespace {

/// Weights are rounded to f16, and cuBLAS may round partial sums to f16 as well.
constexpr double cublas_slack = 0x1p-8;

gemm_problem problem_of(std::int64_t m) {
  gemm_problem problem;
  problem.max_m = m;
  return problem;
}

benchmark::Counter counter(double value) {
  return benchmark::Counter(value);
}

}  // namespace

session::session(options chosen, std::string command)
    : options_(std::move(chosen)), cublas_(make_cublas_gemm(gpu_.stream())) {
  report_.context = gpu_.context(std::move(command));
  report_.cublas =
      cublas_ ? cublas_->version() : "not found when this program was built, so no times";
}

void session::register_benchmarks() {
  auto const timed = [&](benchmark::internal::Benchmark* registered) {
    registered->UseManualTime()->Iterations(options_.replays)->Unit(benchmark::kMicrosecond);
  };
  for (std::int64_t const megabytes : options_.read_megabytes) {
    std::string const name = "bm_read/MB:" + std::to_string(megabytes);
    timed(benchmark::RegisterBenchmark(
        name.c_str(), [this, megabytes](benchmark::State& state) { bm_read(state, megabytes); }));
  }
  for (model_shape const& shape : options_.shapes) {
    packed_layout const layout = layout_of(shape, gpu_.info());
    for (std::int64_t const m : options_.m) {
      std::string const name = "bm_gemm/" + std::string(to_string(shape.format)) + "/" +
                               std::string(shape.name) + "/m:" + std::to_string(m);
      status const planned = plan_status(layout, problem_of(m), gpu_.info());
      if (!planned.ok() && m > gemm_max_m) {
        report_.skipped.push_back(name + " is skipped: " + planned.what);
        continue;
      }
      timed(benchmark::RegisterBenchmark(
          name.c_str(), [this, shape, m](benchmark::State& state) { bm_gemm(state, shape, m); }));
    }
  }
}

void session::fail(benchmark::State& state, int exit_code, std::string const& sentence) {
  exit_code_ = std::max(exit_code_, exit_code);
  state.SkipWithError(sentence.c_str());
}

void session::bm_read(benchmark::State& state, std::int64_t megabytes) {
  try {
    auto const bytes = static_cast<std::size_t>(megabytes) * 1'000'000;
    measured_read const read{megabytes, read_us(bytes, options_.launches, options_.replays, gpu_)};
    for (auto _ : state) state.SetIterationTime(read.us * 1e-6);
    state.counters["GB/s"] = counter(read.gb_s());
    report_.reads.push_back(read);
  } catch (std::exception const& error) {
    fail(state, 2, error.what());
  }
}

loaded_shape const& session::load(model_shape const& shape) {
  if (!loaded_ || loaded_->shape().name != shape.name) {
    loaded_.reset();  // first, or both would need room at once
    loaded_ = std::make_unique<loaded_shape>(shape, options_, cublas_ != nullptr, gpu_);
  }
  return *loaded_;
}

std::optional<double> session::cublas_us(loaded_shape const& loaded, activations const& with) {
  if (!cublas_) return std::nullopt;
  captured_graph const graph(gpu_.stream(), [&] { loaded.launch_all(*cublas_, with); });
  static_cast<void>(graph.timed_replay());
  require_right("cuBLAS " + cublas_->version(), output_of(loaded.weights(), with, gpu_),
                cublas_slack);
  std::vector<double> us;
  for (std::int64_t i = 0; i < options_.replays; ++i) {
    us.push_back(graph.timed_replay() / static_cast<double>(loaded.dense_launches()));
  }
  return median(us);
}

void session::bm_gemm(benchmark::State& state, model_shape const& shape, std::int64_t m) {
  try {
    loaded_shape const& loaded = load(shape);
    activations with(shape, m, gpu_);
    planned_gemm const gemm(loaded.weights().layout(), problem_of(m), gpu_);
    bool const in_fragments = options_.x == x_order::fragments && gemm.takes_fragments(m);
    if (in_fragments) with.order_fragments(shape.k);
    captured_graph const graph(
        gpu_.stream(), [&] { launch_all(gemm, loaded.weights(), with, loaded.launches(), gpu_); });
    static_cast<void>(graph.timed_replay());
    require_right(gemm.route_name(m), output_of(loaded.weights(), with, gpu_));

    std::vector<double> us;
    for (auto _ : state) {
      us.push_back(graph.timed_replay() / static_cast<double>(loaded.launches()));
      state.SetIterationTime(us.back() * 1e-6);
    }
    graph.start();
    device_clocks const clocks = gpu_.clocks();
    gpu_.wait();

    with.y.refill();
    measured_row row;
    row.shape = shape;
    row.m = m;
    row.x = in_fragments ? x_order::fragments : x_order::rows;
    row.bytes = loaded.weights().layout().total_bytes;
    row.us = median(us);
    row.read_us = loaded.read_us();
    row.cublas_us = cublas_us(loaded, with);
    row.route = gemm.route_name(m);
    row.sm_mhz = clocks.sm_mhz;
    row.memory_mhz = clocks.memory_mhz;
    state.counters["median_us"] = counter(row.us);
    state.counters["read_us"] = counter(row.read_us);
    state.counters["us/read"] = counter(row.us / row.read_us);
    if (row.cublas_us) state.counters["cublas_us"] = counter(*row.cublas_us);
    state.SetLabel(row.route);
    report_.rows.push_back(row);
  } catch (wrong_output const& error) {
    fail(state, 1, error.what());
  } catch (std::exception const& error) {
    fail(state, 2, error.what());
  }
}

}  // namespace qpn::bench::roofline
