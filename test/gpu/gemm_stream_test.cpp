// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"

// Launches of qpn::gemm: again and again, in graphs, on several streams, far apart in memory, and
// those that are refused.

namespace qpn::test {
namespace {

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};

TEST(gpu_gemm_launch, gives_the_same_bits_every_time) {
  for (weight_kind kind : all_weight_kinds) {
    // All CTAs of the first weight share its one tile group.
    for (std::int64_t n : {64, 1000}) {
      random_source random(20);
      gpu_weight const weight = random_weight(kind, n, 4096, random);
      gemm_problem problem = f32_problem();
      problem.max_m = gemm_candidates_max_m;
      problem.candidates = n == 64 ? 1 : 20;
      gpu_gemm const gemm(weight, problem);
      gpu_call call(gemm, random_operands(weight, 13, random));
      device_stream const stream;
      call.launch(stream.get());
      stream.wait();
      gemm_result const first = call.result();
      for (int i = 0; i < 50; ++i) {
        call.reset();
        call.launch(stream.get());
        stream.wait();
        gemm_result const again = call.result();
        ASSERT_EQ(again.y, first.y) << kind << " n " << n << " launch " << i;
        ASSERT_EQ(again.candidate_ids, first.candidate_ids)
            << kind << " n " << n << " launch " << i;
      }
    }
  }
}

TEST(gpu_gemm_launch, needs_no_wait_between_calls_of_one_stream) {
  random_source random(21);
  gpu_weight const weight = random_weight(nvfp4_tensor, 130, 4096, random);
  gpu_gemm const gemm(weight, f32_problem());
  std::vector<std::unique_ptr<gpu_call>> calls;
  std::vector<gemm_result> expected;
  for (std::int64_t m = 1; m <= 16; ++m) {
    gemm_operands const operands = random_operands(weight, m, random);
    expected.push_back(run(gemm, operands));
    calls.push_back(std::make_unique<gpu_call>(gemm, operands));
  }
  device_stream const stream;
  for (int i = 0; i < 20; ++i) {
    for (auto const& call : calls) call->launch(stream.get());
  }
  stream.wait();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i]->result().y, expected[i].y) << "m " << i + 1;
  }
}

TEST(gpu_gemm_launch, overlaps_on_two_streams_with_two_workspaces) {
  random_source random(22);
  gpu_weight const weight = random_weight(nvfp4_tensor, 1000, 4096, random);
  gpu_gemm const gemms[] = {{weight, f32_problem()}, {weight, f32_problem()}};
  std::vector<std::unique_ptr<gpu_call>> calls;
  std::vector<gemm_result> expected;
  for (gpu_gemm const& gemm : gemms) {
    gemm_operands const operands = random_operands(weight, 7 + 2 * std::ssize(calls), random);
    expected.push_back(run(gemm, operands));
    calls.push_back(std::make_unique<gpu_call>(gemm, operands));
  }
  device_stream const streams[2];
  for (int i = 0; i < 200; ++i) {
    for (std::size_t s = 0; s < 2; ++s) calls[s]->launch(streams[s].get());
  }
  for (std::size_t s = 0; s < 2; ++s) {
    streams[s].wait();
    EXPECT_EQ(calls[s]->result().y, expected[s].y) << "stream " << s;
  }
}

// x is written by a launch that overlaps, too, and changes from one pair of products to the next.
TEST(gpu_gemm_launch, products_beside_each_other_read_an_x_that_is_complete) {
  constexpr std::uint64_t seed = 26;
  random_source random(seed);
  for (weight_kind const kind : all_weight_kinds) {
    gpu_weight const writes_x = random_weight(nvfp4_tensor, 512, 2048, random);
    gpu_weight const large = random_weight(kind, 16384, 512, random);
    gpu_weight const small = random_weight(all_weight_kinds[5], 96, 512, random);
    gpu_gemm const first(writes_x, {});
    gpu_gemm const second(large, f32_problem());
    gpu_gemm const third(small, f32_problem());
    for (std::int64_t const m : {1, 8, 16, 40}) {
      std::vector<std::unique_ptr<gpu_call>> calls;  // first, second, third, and the same again
      for (int set = 0; set < 2; ++set) {
        for (gpu_gemm const* gemm : {&first, &second, &third}) {
          calls.push_back(
              std::make_unique<gpu_call>(*gemm, random_operands(gemm->weight(), m, random)));
        }
      }
      void* const x = calls[0]->args().y;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        gemm_args& args = calls[i]->args();
        if (i % 3 == 0) {
          args.y = x;
          args.ldy = 512;
        } else {
          args.x = x;
          args.ldx = 512;
        }
      }
      device_stream const stream;
      auto const results = [&] {
        std::vector<std::vector<std::uint32_t>> y;
        for (std::size_t const i : {1, 2, 4, 5}) y.push_back(calls[i]->result().y);
        return y;
      };
      for (auto const& call : calls) call->launch(stream.get());
      stream.wait();
      auto const expected = results();
      for (std::size_t i = 0; i < calls.size(); ++i) {
        calls[i]->args().overlap_previous = true;
        calls[i]->args().beside_previous = i % 3 == 2;
        calls[i]->reset();
      }
      for (int turn = 0; turn < 50; ++turn) {
        for (auto const& call : calls) call->launch(stream.get());
      }
      stream.wait();
      EXPECT_EQ(results(), expected) << kind << " m " << m << " seed " << seed;
    }
  }
}

TEST(gpu_gemm_launch, can_be_captured_in_a_graph) {
  random_source random(23);
  gpu_weight const gate_up = random_weight(nvfp4_tensor, 256, 512, random);
  gpu_weight const down = random_weight(nvfp4_tensor, 512, 128, random);
  gemm_problem gated;
  gated.act = activation::silu_gate;
  gpu_gemm const first(gate_up, gated);
  gpu_gemm const second(down, f32_problem());
  gemm_operands const x = random_operands(gate_up, 5, random);
  gemm_operands middle = random_operands(down, 5, random);  // replaced by first's y
  middle.residual = random_values(5 * 512, dtype::f32, random);
  gpu_call first_call(first, x);
  gpu_call second_call(second, middle);
  second_call.args().x = first_call.args().y;
  second_call.args().ldx = first_call.args().ldy;
  gemm_census census;
  first_call.args().census = &census;

  device_stream const stream;
  auto const launch_both = [&] {
    first_call.launch(stream.get());
    second_call.launch(stream.get());
  };
  launch_both();
  stream.wait();
  gemm_result const expected = second_call.result();
  ASSERT_TRUE(keeps_bound(first, x, first_call.result()));

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  require(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  launch_both();
  require(cudaStreamEndCapture(stream.get(), &graph));
  require(cudaGraphInstantiateWithFlags(&replay, graph, 0));
  for (int i = 0; i < 20; ++i) {
    first_call.reset();
    second_call.reset();
    require(cudaGraphLaunch(replay, stream.get()));
    stream.wait();
    ASSERT_EQ(second_call.result().y, expected.y) << "replay " << i;
  }
  EXPECT_EQ(census.launches(first.route_of(5)), 2u) << "one launch and one capture";
  require(cudaGraphExecDestroy(replay));
  require(cudaGraphDestroy(graph));
}

TEST(gpu_gemm_launch, does_nothing_without_rows) {
  random_source random(24);
  gpu_weight const weight = random_weight(nvfp4_tensor, 64, 64, random);
  gpu_gemm const gemm(weight, f32_problem());
  gpu_call call(gemm, random_operands(weight, 1, random));
  gemm_census census;
  call.args().census = &census;
  call.args().m = 0;
  device_stream const stream;
  call.launch(stream.get());
  stream.wait();
  EXPECT_EQ(call.result().y, std::vector<std::uint32_t>(64, 0xffffffffu));
  EXPECT_EQ(census.launches(gemm.route_of(1)), 0u);
}

TEST(gpu_gemm_launch, writes_nothing_where_a_call_is_refused) {
  random_source random(25);
  gpu_weight const weight = random_weight(nvfp4_tensor, 64, 64, random);
  gpu_gemm const gemm(weight, f32_problem());
  gpu_call call(gemm, random_operands(weight, 1, random));
  gemm_census census;
  call.args().census = &census;
  call.args().ldx = 63;
  device_stream const stream;
  EXPECT_EQ(gemm.launch(call.args(), stream.get()).code, status_code::invalid_shape);
  stream.wait();
  EXPECT_EQ(call.result().y, std::vector<std::uint32_t>(64, 0xffffffffu));
  EXPECT_EQ(census.launches(gemm.route_of(1)), 0u);
}

TEST(gpu_gemm_launch, refuses_to_set_up_workspaces_that_gemm_would_refuse) {
  random_source random(26);
  gpu_weight const weight = random_weight(nvfp4_tensor, 64, 64, random);
  gemm_plan<nvfp4> plan;
  require(make_gemm_plan(weight.layout(), {}, test_device(), plan));
  device_memory const memory(plan.workspace_bytes + workspace_alignment);
  workspace_view view{memory.data(), plan.workspace_bytes - 1};
  EXPECT_EQ(launch_init_workspace(plan, view, nullptr).code, status_code::workspace_too_small);
  view = {memory.data() + 128, plan.workspace_bytes};
  EXPECT_EQ(launch_init_workspace(plan, view, nullptr).code, status_code::misaligned);
  view.data = nullptr;
  EXPECT_EQ(launch_init_workspace(plan, view, nullptr).code, status_code::misaligned);
}

TEST(gpu_gemm_launch, works_after_a_workspace_is_set_up_again) {
  random_source random(27);
  gpu_weight const weight = random_weight(nvfp4_tensor, 64, 4096, random);
  gpu_gemm const gemm(weight, f32_problem());
  gemm_plan<nvfp4> plan;
  require(make_gemm_plan(weight.layout(), f32_problem(), test_device(), plan));
  gpu_call call(gemm, random_operands(weight, 3, random));
  device_stream const stream;
  call.launch(stream.get());
  stream.wait();
  gemm_result const expected = call.result();
  call.reset();
  // What a launch that was cut short may leave behind.
  require(cudaMemsetAsync(gemm.workspace().data, 1, gemm.workspace().bytes, stream.get()));
  require(launch_init_workspace(plan, gemm.workspace(), stream.get()));
  call.launch(stream.get());
  stream.wait();
  EXPECT_EQ(call.result().y, expected.y);
}

/// Device memory without guards, or null where the GPU has not as much.
std::shared_ptr<std::byte> large_memory(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  return {static_cast<std::byte*>(memory), [](std::byte* p) { cudaFree(p); }};
}

/// Copies rows of `bytes` between the GPU, `pitch` bytes apart, and the host, where they are dense.
void copy_rows(std::byte* device, std::size_t pitch, void* host, std::size_t bytes,
               std::int64_t rows, cudaMemcpyKind kind) {
  for (std::int64_t i = 0; i < rows; ++i) {
    std::byte* const there = device + static_cast<std::size_t>(i) * pitch;
    std::byte* const here = static_cast<std::byte*>(host) + static_cast<std::size_t>(i) * bytes;
    bool const up = kind == cudaMemcpyHostToDevice;
    require(cudaMemcpy(up ? there : here, up ? here : there, bytes, kind));
  }
  require(cudaStreamSynchronize(nullptr));
}

/// The bits of y where rows of x, y and the residual, one after another, lie `pitch` bytes apart.
void expect_same_bits_far_apart(std::int64_t m, std::size_t pitch) {
  random_source random(28);
  constexpr std::int64_t n = 130;
  constexpr std::int64_t k = 592;
  gpu_weight const weight = random_weight(nvfp4_tensor, n, k, random);
  gpu_gemm const gemm(weight, f32_problem());
  gemm_operands operands = random_operands(weight, m, random);
  operands.residual = random_values(m * n, dtype::f32, random);
  gemm_result const expected = run(gemm, operands);

  std::size_t const row_bytes = 8192;
  auto const memory = large_memory(static_cast<std::size_t>(m - 1) * pitch + row_bytes);
  if (memory == nullptr) GTEST_SKIP() << "not enough memory on the GPU";
  std::byte* const x = memory.get();
  std::byte* const y = x + 2048;
  std::byte* const residual = x + 4096;
  copy_rows(x, pitch, operands.x.data(), k * 2, m, cudaMemcpyHostToDevice);
  copy_rows(residual, pitch, operands.residual.data(), n * 4, m, cudaMemcpyHostToDevice);

  gpu_call call(gemm, operands);
  gemm_args& args = call.args();
  args.x = x;
  args.ldx = static_cast<std::int64_t>(pitch / 2);
  args.y = y;
  args.residual = residual;
  args.ldy = args.ld_residual = static_cast<std::int64_t>(pitch / 4);
  for (std::int64_t shift : {0, 1}) {  // by words and by elements
    if (shift == 1) {
      args.x = x + 2;
      copy_rows(x + 2, pitch, operands.x.data(), k * 2, m, cudaMemcpyHostToDevice);
    }
    std::vector<std::uint32_t> bits(expected.y.size(), 0xffffffffu);
    copy_rows(y, pitch, bits.data(), n * 4, m, cudaMemcpyHostToDevice);
    device_stream const stream;
    call.launch(stream.get());
    stream.wait();
    copy_rows(y, pitch, bits.data(), n * 4, m, cudaMemcpyDeviceToHost);
    EXPECT_EQ(bits, expected.y) << "shift " << shift;
  }
}

TEST(gpu_gemm_strides, may_put_rows_more_than_2_gib_apart) {
  expect_same_bits_far_apart(2, (std::size_t{1} << 31) + 4096);
}

TEST(gpu_gemm_strides, may_put_the_last_of_16_rows_beyond_2_31_elements) {
  expect_same_bits_far_apart(16, 300'000'000 / 16 * 16);
}

}  // namespace
}  // namespace qpn::test
