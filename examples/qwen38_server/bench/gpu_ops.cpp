// SPDX-License-Identifier: Apache-2.0
// Device time of the CUDA backend's attention and Gated DeltaNet at the shapes of Qwen3.8-27B, JSON
// on stdout. Each figure is the median replay of a graph that goes through as many layers as keep
// L2 from serving them, divided by the layers. The operations' tests say whether they are right.

#include <cuda_runtime_api.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <qpn/device_info.cuh>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ops/cuda/device_gdn_state.hpp"
#include "ops/cuda/device_kv_cache.hpp"
#include "ops/cuda/kernels.cuh"

namespace {

using namespace qwen38;
using namespace qwen38::ops::cuda;

void check(cudaError_t outcome, char const* what) {
  if (outcome == cudaSuccess) return;
  throw error(error_kind::internal, std::string(what) + ": " + cudaGetErrorString(outcome));
}

/// A GPU whose launches can be captured. The KV cache starts with random values.
class bench_device final : public device {
 public:
  bench_device() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "to create a stream");
    check(kernels_overlap(overlap_), "to look at the kernels' code");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "to ask for the GPU's properties");
    name_ = properties.name;
    if (!qpn::query_device_info(0, info_).ok())
      throw error(error_kind::internal, "to query the GPU");
  }
  bench_device(bench_device const&) = delete;
  bench_device& operator=(bench_device const&) = delete;
  ~bench_device() override { static_cast<void>(cudaStreamDestroy(stream_)); }

  [[nodiscard]] qpn::device_info const& info() const noexcept override { return info_; }
  [[nodiscard]] std::string const& name() const noexcept override { return name_; }
  [[nodiscard]] void* allocate(std::size_t bytes, std::string const& what) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), what.c_str());
    check(cudaMemset(memory, 0, bytes), "to clear memory");
    if (what == "the KV cache") fill(static_cast<std::byte*>(memory), bytes);
    return memory;
  }
  void release(void* memory) noexcept override { static_cast<void>(cudaFree(memory)); }
  void reserve(std::size_t /*bytes*/) override { refuse(); }
  [[nodiscard]] memory_ledger const& memory() const override { refuse(); }
  void clear(byte_lines to, std::size_t width, std::size_t height) override {
    check(cudaMemset2DAsync(to.data, std::max(to.pitch, width), 0, width, height, stream_),
          "to clear memory");
  }
  void copy(byte_lines to, byte_lines from, std::size_t width, std::size_t height) override {
    check(cudaMemcpy2DAsync(to.data, std::max(to.pitch, width), from.data,
                            std::max(from.pitch, width), width, height, cudaMemcpyDefault, stream_),
          "a copy");
  }
  void upload(void* to, void const* from, std::size_t bytes) override {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "an upload");
  }
  void download(void* to, byte_lines from, std::size_t width, std::size_t height) override {
    check(cudaMemcpy2D(to, width, from.data, std::max(from.pitch, width), width, height,
                       cudaMemcpyDeviceToHost),
          "a download");
  }
  void wait() override { check(cudaStreamSynchronize(stream_), "the work in the stream"); }
  [[nodiscard]] std::uint64_t waits() const noexcept override { return 0; }
  [[nodiscard]] std::unique_ptr<device_graph> capture_alone(
      std::function<void()> const& /*work*/) override {
    refuse();
  }
  void replay_alone(device_graph& /*graph*/) override { refuse(); }
  void launch(kernel_params const& kernel) override {
    check(launch_kernel(kernel, info(), overlap_, {}, stream_), "to launch a kernel");
  }
  void init_workspace(linear_plan const& /*plan*/, qpn::workspace_view /*workspace*/) override {
    refuse();
  }
  void gemm(linear_plan const& /*plan*/, qpn::gemm_args const& /*args*/,
            qpn::workspace_view /*workspace*/) override {
    refuse();
  }
  void prepack(qpn::packed_layout const& /*layout*/, qpn::weight_part const& /*rows*/,
               std::int64_t /*first_row*/, std::byte* /*out*/,
               qpn::prepack_report* /*report*/) override {
    refuse();
  }

  [[nodiscard]] std::unique_ptr<mark> make_mark() override { refuse(); }
  void record(mark& /*point*/) override { refuse(); }
  void wait_for(mark const& /*point*/) override { refuse(); }
  void reach(device const& /*other*/) override { refuse(); }
  [[nodiscard]] std::shared_ptr<std::uint32_t> make_host_words(std::size_t /*count*/) override {
    refuse();
  }
  [[nodiscard]] int ordinal() const noexcept override { return 0; }
  [[nodiscard]] void* stream() const noexcept override { return stream_; }

  /// Median microseconds of `work`, which only launches, after a first run outside the graph.
  template <class Work>
  double microseconds(Work const& work) {
    work();
    wait();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "to capture");
    work();
    check(cudaStreamEndCapture(stream_, &graph), "to capture");
    check(cudaGraphInstantiate(&ready, graph, 0), "to make a graph");
    cudaEvent_t events[2];
    for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "to create an event");
    std::vector<double> times;
    for (int replay = 0; replay < 9; ++replay) {
      check(cudaEventRecord(events[0], stream_), "to record an event");
      check(cudaGraphLaunch(ready, stream_), "to launch a graph");
      check(cudaEventRecord(events[1], stream_), "to record an event");
      check(cudaEventSynchronize(events[1]), "a replay");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, events[0], events[1]), "to read events");
      if (replay > 1) times.push_back(1000.0 * milliseconds);
    }
    for (cudaEvent_t event : events) static_cast<void>(cudaEventDestroy(event));
    static_cast<void>(cudaGraphExecDestroy(ready));
    static_cast<void>(cudaGraphDestroy(graph));
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

 private:
  [[noreturn]] static void refuse() {
    throw error(error_kind::internal,
                "the benchmark runs attention and GDN on one GPU and nothing else");
  }
  static void fill(std::byte* memory, std::size_t bytes) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> values(std::size_t{1} << 20);
    for (std::uint16_t& value : values) value = qpn::encode_f16_saturating(normal(random));
    for (std::size_t at = 0; at < bytes; at += values.size() * 2) {
      check(cudaMemcpy(memory + at, values.data(), std::min(values.size() * 2, bytes - at),
                       cudaMemcpyHostToDevice),
            "to fill the KV cache");
    }
  }

  cudaStream_t stream_ = nullptr;
  bool overlap_ = false;
  qpn::device_info info_;
  std::string name_;
};

/// Rows of random fp32 in device memory.
struct random_rows {
  device_block memory;
  ops::tensor view;

  random_rows(device& owner, std::int64_t rows, std::int64_t cols)
      : memory(make_array<float>(owner, rows * cols, "rows")) {
    std::mt19937_64 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    std::vector<float> some(4099);
    for (float& value : some) value = normal(random);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = some[i % some.size()];
    owner.upload(memory.as(), values.data(), memory.bytes());
    view = {memory.as(), qpn::dtype::f32, rows, cols, cols};
  }
  [[nodiscard]] float const* data() const { return memory.as<float>(); }
};

class one_pass {
 public:
  one_pass(bench_device& gpu, ops::pass_limits const& limits, std::span<ops::row_span const> spans)
      : passes_(pass_block::make_passes(gpu, {&limits, 1})) {
    ops::pass_setting const setting{passes_.front().get(), {.spans = spans}};
    static_cast<device_pass&>(*passes_.front()).block().set({&setting, 1});
  }
  [[nodiscard]] device_pass const& get() const { return as_device(*passes_.front()); }

 private:
  std::vector<std::unique_ptr<ops::pass>> passes_;
};

nlohmann::json attention_time(bench_device& gpu, std::int64_t live, std::int64_t rows,
                              cuda_options const& options) {
  ops::attention_shape const shape{24, 4, 256, 64, 1e7, 1e-6F};
  std::int64_t const pages = (live + ops::kv_page_tokens - 1) / ops::kv_page_tokens;
  std::int64_t const bytes = live * shape.num_kv_heads * shape.head_dim * 4;
  std::int64_t const layers = std::clamp<std::int64_t>((256 << 20) / bytes, 2, 128);
  device_kv_cache const cache(gpu, shape, layers, pages, options);
  std::vector<std::int32_t> own(static_cast<std::size_t>(pages));
  std::iota(own.begin(), own.end(), 0);
  ops::row_span const span{0, live - rows, 0, rows, rows > 1 && rows <= 16, own};
  one_pass const pass(gpu, {rows, 1, pages, 1}, {&span, 1});
  random_rows const q_gate(gpu, rows, shape.num_heads * 512);
  random_rows const norm(gpu, 1, shape.head_dim);
  random_rows const out(gpu, rows, shape.num_heads * shape.head_dim);
  double const us = gpu.microseconds([&] {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      cache.attend(layer, pass.get(), q_gate.view, norm.data(),
                   {out.view.data, shape.num_heads * shape.head_dim, true});
    }
  }) / static_cast<double>(layers);
  double const flops = 4.0 * static_cast<double>(rows * live * shape.num_heads * shape.head_dim);
  return {{"operation", "attention"},
          {"live_context", live},
          {"rows", rows},
          {"us_per_call", us},
          {"kv_bytes", bytes},
          {"kv_gb_s", static_cast<double>(bytes) / us / 1e3},
          {"tflop_s", flops / us / 1e6}};
}

struct gdn_case {
  std::int64_t rows = 1;  ///< of each lane
  std::int64_t lanes = 1;
  bool in_one_launch = true;  ///< where the rows are few

  [[nodiscard]] bool is_tentative() const { return rows > 1 && rows <= 16; }
};

nlohmann::json gdn_time(bench_device& gpu, gdn_case const& of) {
  ops::gdn_shape const shape{16, 48, 128, 128, 4, 1e-6F};
  std::int64_t const layers = of.rows > 64 ? 8 : 48;
  device_gdn_state state(gpu, shape, layers, of.lanes, 16, 0, of.in_one_launch);
  std::vector<ops::row_span> spans;
  for (std::int64_t lane = 0; lane < of.lanes; ++lane) {
    spans.push_back({static_cast<int>(lane), 0, lane * of.rows, of.rows, of.is_tentative(), {}});
  }
  std::int64_t const rows = of.lanes * of.rows;
  one_pass const pass(gpu, {rows, of.lanes, 1, 1}, spans);
  std::int64_t const width = shape.conv_channels() + shape.value_channels();
  random_rows const qkvz(gpu, rows, width);
  random_rows const ba(gpu, rows, 2 * shape.num_value_heads);
  random_rows const weights(gpu, 4, shape.conv_channels());
  random_rows const out(gpu, rows, shape.value_channels());
  gdn_constants const constants{weights.data(), weights.data(), weights.data(), weights.data()};
  double const us = gpu.microseconds([&] {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      state.run(layer, pass.get(), qkvz.view, ba.view, constants,
                {out.view.data, shape.value_channels(), true});
    }
  }) / static_cast<double>(layers);
  return {{"operation", "gdn"},
          {"rows", of.rows},
          {"lanes", of.lanes},
          {"tentative", of.is_tentative()},
          {"in_one_launch", of.in_one_launch},
          {"us_per_call", us},
          {"us_per_row", us / static_cast<double>(rows)},
          {"state_bytes", of.lanes * shape.value_channels() * shape.key_dim * 4}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times attention and Gated DeltaNet of the CUDA backend at the 27B model's shapes."};
  std::vector<std::int64_t> live = {512, 8192, 32768, 131072};
  std::vector<std::int64_t> attention_rows = {1, 4, 8, 64};
  std::vector<std::int64_t> gdn_rows = {1, 4, 8, 16, 64, 4096};
  std::vector<std::int64_t> gdn_lanes = {1, 8};
  cuda_options options;
  bool simt = false;
  app.add_option("--live", live, "live context of attention, in tokens")->delimiter(',');
  app.add_option("--rows", attention_rows, "rows of attention")->delimiter(',');
  app.add_option("--gdn-rows", gdn_rows, "rows of a lane of Gated DeltaNet")->delimiter(',');
  app.add_option("--gdn-lanes", gdn_lanes, "lanes of Gated DeltaNet; one beyond 64 rows")
      ->delimiter(',');
  app.add_flag("--simt", simt, "attention without tensor cores");
  CLI11_PARSE(app, argc, argv);
  options.attention_tiles = !simt;
  try {
    bench_device gpu;
    nlohmann::json results = nlohmann::json::array();
    for (std::int64_t context : live) {
      for (std::int64_t rows : attention_rows) {
        if (rows <= context) results.push_back(attention_time(gpu, context, rows, options));
      }
    }
    for (std::int64_t rows : gdn_rows) {
      for (std::int64_t lanes : gdn_lanes) {
        if (rows > 64 && lanes > 1) continue;
        bool const has_both = rows <= gdn_short_params<1>::most_rows;
        if (has_both) results.push_back(gdn_time(gpu, {rows, lanes, false}));
        results.push_back(gdn_time(gpu, {rows, lanes, has_both}));
      }
    }
    int runtime = 0;
    int driver = 0;
    check(cudaRuntimeGetVersion(&runtime), "to ask for the runtime's version");
    check(cudaDriverGetVersion(&driver), "to ask for the driver's version");
    nlohmann::json const report = {{"device", gpu.name()},
                                   {"cuda_runtime", runtime},
                                   {"cuda_driver", driver},
                                   {"attention", simt ? "simt" : "tiles"},
                                   {"results", results}};
    std::puts(report.dump(1).c_str());
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "qwen38_gpu_ops_bench: %s\n", problem.what());
    return 1;
  }
  return 0;
}
