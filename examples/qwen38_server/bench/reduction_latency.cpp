// SPDX-License-Identifier: Apache-2.0
// How long ranks take to add up their parts of a residual stream and take its norm, with a GPU for
// each: by the one-shot kernel, by NCCL's all-gather and a sum in rank order, and by NCCL's
// all-reduce. Times lie between two events around a replay of a graph of many calls, on the slowest
// rank; every method's result is checked first.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/cuda/cuda_backend.hpp"
#include "ops/cuda/gpu_device.hpp"
#include "ops/cuda/memory.hpp"
#include "ops/cuda/nccl.hpp"
#include "parallel/collective_group.hpp"
#include "parallel/device_group.hpp"
#include "parallel/rank_team.hpp"
#include "support/captured_graph.hpp"
#include "support/nvml.hpp"
#include "support/run_context.hpp"
#include "support/statistics.hpp"

namespace qwen38 {
namespace {

using devices = std::vector<std::shared_ptr<ops::cuda::device>>;

struct flags {
  int ranks = 0;
  int calls = 500;
  int replays = 15;
  std::string json_file;
};

struct shape {
  std::int64_t rows;
  std::int64_t cols;
  [[nodiscard]] std::int64_t bytes() const { return rows * cols * 4; }
};

/// 10, 20, 40, 80 and 160 KiB of fp32: from half a row of Qwen3.8-27B's residual stream to 8.
constexpr shape shapes[] = {{1, 2560}, {1, 5120}, {2, 5120}, {4, 5120}, {8, 5120}};
constexpr std::int64_t max_rows = 8;
constexpr std::int64_t max_cols = 5120;

struct method {
  std::string name;
  std::vector<std::shared_ptr<parallel::communicator>> ends;
  bool keeps_order = true;
};

std::vector<float> random_values(std::uint64_t seed, std::int64_t count) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

/// What one rank calls with.
struct rank_data {
  rank_data(ops::cuda::device& owner, ops::backend& backend, shape const& of, int rank)
      : partial(ops::cuda::make_array<float>(owner, of.rows * of.cols, "a term")),
        x(ops::cuda::make_array<float>(owner, of.rows * of.cols, "x")),
        y(ops::cuda::make_array<std::uint16_t>(owner, of.rows * of.cols, "y")),
        norm(backend.make_constants(random_values(99, of.cols))),
        shape_(of) {
    auto const term = random_values(static_cast<std::uint64_t>(rank), of.rows * of.cols);
    owner.upload(partial.as(), term.data(), term.size() * 4);
  }

  void call(parallel::communicator& end) const {
    end.sum_into(rows(partial, qpn::dtype::f32), rows(x, qpn::dtype::f32),
                 {norm.get(), 1e-6F, rows(y, qpn::dtype::f16)});
  }

  ops::cuda::device_block partial;
  ops::cuda::device_block x;
  ops::cuda::device_block y;
  std::unique_ptr<ops::constants> norm;

 private:
  [[nodiscard]] ops::tensor rows(ops::cuda::device_block const& block, qpn::dtype type) const {
    return {block.as(), type, shape_.rows, shape_.cols, shape_.cols};
  }
  shape shape_;
};

void check_sum(std::vector<float> const& got, shape const& of, int ranks, method const& by) {
  std::vector<float> wanted = random_values(0, of.rows * of.cols);
  for (int rank = 1; rank < ranks; ++rank) {
    auto const term = random_values(static_cast<std::uint64_t>(rank), of.rows * of.cols);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += term[i];
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    float const off = std::abs(got[i] - wanted[i]);
    if (by.keeps_order ? off == 0 : off < 1e-5F) continue;
    throw std::runtime_error(by.name + " gives a wrong sum at element " + std::to_string(i));
  }
}

/// Microseconds of a call, one value for each replay.
std::vector<double> measure(method const& by, devices const& on, shape const& of,
                            flags const& chosen) {
  int const ranks = static_cast<int>(on.size());
  parallel::rank_team team(by.ends);
  std::vector<std::vector<double>> times(on.size());
  team.run([&](int rank) {
    ops::cuda::device& own = *on[static_cast<std::size_t>(rank)];
    parallel::communicator& end = *team.end(rank);
    auto const backend = ops::cuda::make_backend(on[static_cast<std::size_t>(rank)]);
    rank_data const data(own, *backend, of, rank);
    data.call(end);
    std::vector<float> sum(static_cast<std::size_t>(of.rows * of.cols));
    own.download(sum.data(), {data.x.as(), sum.size() * 4}, sum.size() * 4, 1);
    end.check();
    check_sum(sum, of, ranks, by);
    auto const term = random_values(static_cast<std::uint64_t>(rank), of.rows * of.cols);
    own.upload(data.partial.as(), term.data(), term.size() * 4);  // the call may have taken it
    own.wait();
    ops::token_list together;
    auto const tokens = backend->make_tokens(1, together);
    qpn::bench::captured_graph const graph(static_cast<cudaStream_t>(own.stream()), [&] {
      for (int call = 0; call < chosen.calls; ++call) data.call(end);
    });
    for (int replay = 0; replay < chosen.replays + 2; ++replay) {
      own.clear({data.x.as(), sum.size() * 4}, sum.size() * 4, 1);
      own.clear({data.partial.as(), sum.size() * 4}, sum.size() * 4, 1);  // sums that do not grow
      end.max_over_ranks(together);  // so that all begin at once
      own.wait();
      double const us = graph.timed_replay() / chosen.calls;
      if (replay >= 2) times[static_cast<std::size_t>(rank)].push_back(us);
    }
    end.check();
  });
  std::vector<double> slowest = times.front();
  for (auto const& of_rank : times) {
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], of_rank[i]);
  }
  return slowest;
}

qpn::bench::run_context context_of(devices const& on, std::string const& command) {
  char bus_id[32] = {};
  int driver = 0;
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0) != cudaSuccess ||
      cudaDriverGetVersion(&driver) != cudaSuccess) {
    throw std::runtime_error("CUDA tells neither where GPU 0 is nor what its driver takes");
  }
  auto const release = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  qpn::bench::nvml const nvml(bus_id);
  qpn::bench::device_clocks const clocks = nvml.clocks();
  qpn::bench::run_context context;
  context.device = std::to_string(on.size()) + " x " + on.front()->name();
  context.clocks = "SM " + std::to_string(clocks.sm_mhz) + " MHz, memory " +
                   std::to_string(clocks.memory_mhz) + " MHz (NVML, GPU 0, after the last replay)";
  context.toolkit = "CUDA " + release(CUDART_VERSION) + ", driver " + nvml.driver() + " for CUDA " +
                    release(driver);
  context.command = command;
  return context;
}

std::vector<method> all_methods(devices const& on) {
  std::vector<method> all;
  all.push_back({"one-shot kernel",
                 parallel::make_device_group(on, {.max_rows = max_rows, .max_cols = max_cols}),
                 true});
  try {
    for (auto order : {parallel::sum_order::by_rank, parallel::sum_order::any}) {
      bool const by_rank = order == parallel::sum_order::by_rank;
      all.push_back({by_rank ? "NCCL all-gather, sum in rank order" : "NCCL all-reduce",
                     parallel::make_collective_group(
                         on, ops::cuda::open_nccl(on),
                         {.max_rows = max_rows, .max_cols = max_cols, .order = order}),
                     by_rank});
    }
  } catch (error const& problem) {
    std::fprintf(stderr, "reduction_latency: %s\n", problem.what());
  }
  return all;
}

int run(flags chosen, std::string const& command) {
  int const there = ops::cuda::gpu_count();
  if (chosen.ranks == 0) chosen.ranks = std::min(there, ops::cuda::max_peers);
  if (chosen.ranks < 2 || chosen.ranks > there) {
    throw std::runtime_error(std::to_string(there) +
                             " GPUs are there: expected a GPU for each of 2 ranks or more");
  }
  devices on;
  for (int rank = 0; rank < chosen.ranks; ++rank) on.push_back(ops::cuda::open_gpu(rank));
  std::vector<nlohmann::ordered_json> rows;
  std::printf("%d ranks\n%-36s %6s %10s %10s\n", chosen.ranks, "method", "KiB", "median us",
              "best us");
  for (method const& by : all_methods(on)) {
    for (shape const& of : shapes) {
      std::vector<double> const us = measure(by, on, of, chosen);
      nlohmann::ordered_json row;
      row["method"] = by.name;
      row["ranks"] = chosen.ranks;
      row["rows"] = of.rows;
      row["cols"] = of.cols;
      row["bytes"] = of.bytes();
      row["median_us"] = qpn::bench::json_us(qpn::bench::median(us));
      row["best_us"] = qpn::bench::json_us(*std::ranges::min_element(us));
      row["calls"] = chosen.calls;
      row["replays"] = chosen.replays;
      rows.push_back(row);
      std::printf("%-36s %6lld %10.2f %10.2f\n", by.name.c_str(),
                  static_cast<long long>(of.bytes() / 1024), qpn::bench::median(us),
                  *std::ranges::min_element(us));
      std::fflush(stdout);
    }
  }
  qpn::bench::run_context const context = context_of(on, command);
  for (std::string const& line : qpn::bench::lines_of(context)) std::printf("%s\n", line.c_str());
  for (nlohmann::ordered_json& row : rows) qpn::bench::add_context(context, row);
  if (!chosen.json_file.empty()) {
    qpn::bench::write_file(chosen.json_file, qpn::bench::array_text(rows));
  }
  return 0;
}

}  // namespace
}  // namespace qwen38

int main(int argc, char** argv) {
  qwen38::flags chosen;
  CLI::App app{"Latency of sums over ranks, a GPU each"};
  app.add_option("--ranks", chosen.ranks, "0: as many as there are GPUs")
      ->check(CLI::Range(0, qwen38::ops::cuda::max_peers))
      ->capture_default_str();
  app.add_option("--calls", chosen.calls, "In a graph")->check(CLI::Range(1, 10000));
  app.add_option("--replays", chosen.replays, "Of the graph")->check(CLI::Range(1, 1000));
  app.add_option("--json", chosen.json_file, "File for the rows");
  CLI11_PARSE(app, argc, argv);
  try {
    return qwen38::run(chosen, qpn::bench::command_line(argc, argv));
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "reduction_latency: %s\n", problem.what());
    return 2;
  }
}
