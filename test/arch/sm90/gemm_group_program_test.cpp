// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm90/gemm_group_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <qpn/arch/sm90/gemm_group_params.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/emulated_gemm.hpp"
#include "support/serial_lane.hpp"
#include "support/wide_emulator.hpp"

// The GEMM by warpgroups must give what the kernel of m16n8k16 gives, to the bit. That one is held
// to fp64 sums in arch/sm80/gemm_program_test.cpp.

namespace qpn::test {
namespace {

struct order_lane : serial_lane {
  using serial_lane::serial_lane;
  void allow_next() {}
};

struct group_case {
  weight_kind kind{format_id::nvfp4, scale_mode::tensor, dtype::f16};
  dtype x_type = dtype::f16;
  std::int64_t m = 32;
  std::int64_t n = 320;
  std::int64_t k = 1040;
  int slices = 8;  ///< at most the batches of k
  dtype y_type = dtype::f32;
  std::int64_t y_gap = 0;
  bool gate = false;
  bool bias = false;
  bool residual = false;
  std::int64_t x_gap = 0;
  float outlier = 1.0F;  ///< what some elements of x are multiplied by
  lost_operation lost = lost_operation::none;
  std::uint64_t seed = 1;
};

std::string text(group_case const& c) {
  return to_string(operand_kinds{c.kind, c.x_type}) + " m " + std::to_string(c.m) + " n " +
         std::to_string(c.n) + " k " + std::to_string(c.k) + " slices " + std::to_string(c.slices) +
         " y " + to_string(c.y_type) + " seed " + std::to_string(c.seed);
}

/// What differs from the kernel of m16n8k16, and the emulator's problems; empty: nothing.
template <class Format, class Operand, int Rows, int Groups>
std::string run_as(group_case const& c) {
  using shared = detail::sm90::group_shared<Operand, Rows, Groups>;
  random_source random(c.seed);
  packed_gpu_weight weight(published_weight(c.kind, {c.n}, c.k, random), hopper_h200());
  std::int64_t const batches = detail::visit_batches(weight.layout);
  weight.layout.ctas = static_cast<std::int32_t>(std::min<std::int64_t>(c.slices, batches));

  gemm_problem problem;
  problem.x_type = c.x_type;
  problem.y_type = c.y_type;
  problem.act = c.gate ? activation::silu_gate : activation::none;
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(weight.layout, problem, hopper_h200(), plan);
  if (!planned.ok()) return planned.what;
  std::int64_t const ldx = c.k + c.x_gap;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * ldx), 0x7fff);  // NaN between rows
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < c.k; ++j) {
      float const value = random.normal() * (random.integer(0, 40) == 0 ? c.outlier : 1.0F);
      x[static_cast<std::size_t>(i * ldx + j)] =
          detail::encode_16(value, c.x_type, overflow_policy::infinite);
    }
  }
  std::int64_t const ldy = columns_of_y(plan) + c.y_gap;
  std::vector<float> const bias = random.normals(c.n);
  std::vector<float> const residual = random.normals(c.m * ldy);
  auto const y_bytes = static_cast<std::size_t>(c.m * ldy * bits(c.y_type) / 8);
  aligned_bytes expected(y_bytes);
  aligned_bytes found(y_bytes);
  std::size_t const ordered = detail::sm90::group_workspace_bytes(weight.layout, c.m);
  aligned_bytes workspace(plan.workspace_bytes + ordered, std::byte{0});
  std::fill_n(workspace.data() + plan.workspace_zero_bytes, ordered, std::byte{0xff});
  workspace_view const view{workspace.data(), workspace.size()};
  gemm_args args;
  args.m = c.m;
  args.x = x.data();
  args.ldx = ldx;
  args.weight = weight.view();
  args.y = expected.data();
  args.ldy = ldy;
  if (c.bias) args.bias = bias.data();
  if (c.residual) {
    args.residual = residual.data();
    args.residual_type = dtype::f32;
    args.ld_residual = ldy;
  }
  std::fill_n(expected.data(), y_bytes, std::byte{0xee});
  std::fill_n(found.data(), y_bytes, std::byte{0xee});
  emulated_call const call = emulate_gemm(plan, args, view);
  if (!call.report.ok()) return call.report.text();

  args.y = found.data();
  detail::sm90::order_params const order = detail::sm90::make_group_order_params(plan, args, view);
  for (std::int64_t i = 0; i < (order.chunks - 1) / detail::sm90::order_threads + 1; ++i) {
    for (int thread = 0; thread < detail::sm90::order_threads; ++thread) {
      order_lane lane(static_cast<int>(i), thread);
      detail::sm90::order_rows_program<Operand>(lane, order);
    }
  }
  auto const params = detail::sm90::make_group_params<Operand>(plan, args, view);
  int const slices = params.gemm.split.slices;
  int const clusters = (params.gemm.strips - 1) / shared::strips + 1;
  std::string problems;
  for (int i = 0; i < clusters; ++i) {
    wide_cluster cluster(slices, i * slices, clusters * slices, shared::threads, shared::bytes,
                         c.seed, c.lost);
    cluster.run([&params](wide_test_lane& lane) {
      detail::sm90::gemm_group_program<Operand, Rows, Groups>(lane, params);
    });
    problems += cluster.problems();
  }
  if (std::memcmp(expected.data(), found.data(), y_bytes) != 0) problems += "y differs";
  return problems;
}

template <int Rows, int Groups>
std::string run(group_case const& c) {
  using detail::sm80::bf16_operand;
  using detail::sm80::weight_operand;
  if (c.x_type == dtype::bf16) {
    return c.kind.format == format_id::nvfp4 ? run_as<nvfp4, bf16_operand<nvfp4>, Rows, Groups>(c)
                                             : run_as<fp8, bf16_operand<fp8>, Rows, Groups>(c);
  }
  return c.kind.format == format_id::nvfp4
             ? run_as<nvfp4, weight_operand<nvfp4, dtype::e2m1>, Rows, Groups>(c)
             : run_as<fp8, weight_operand<fp8, dtype::e4m3>, Rows, Groups>(c);
}

constexpr weight_kind kinds[] = {
    {format_id::nvfp4, scale_mode::tensor, dtype::f16},
    {format_id::nvfp4, scale_mode::channel, dtype::f16},
    {format_id::fp8, scale_mode::tensor, dtype::f16},
    {format_id::fp8, scale_mode::channel, dtype::f16},
};

TEST(sm90_gemm_group_program, has_the_bits_of_m16n8k16_for_every_kind_and_shape) {
  std::uint64_t seed = 1;
  for (weight_kind const kind : kinds) {
    group_case c;
    c.kind = kind;
    // The last batch of nvfp4 lacks a record, the last of fp8 two and a half.
    c.k = kind.format == format_id::nvfp4 ? 688 : 688 + 11;
    c.m = 17;
    c.seed = seed++;
    EXPECT_EQ((run<32, 1>(c)), "") << text(c);
    c.m = 40;
    c.slices = 4;
    c.seed = seed++;
    EXPECT_EQ((run<64, 1>(c)), "") << text(c);
    c.n = 290;  // strips and rows that no CTA needs
    c.m = 64;
    c.seed = seed++;
    EXPECT_EQ((run<64, 2>(c)), "") << text(c);
    c.m = 96;
    c.slices = 3;
    c.seed = seed++;
    EXPECT_EQ((run<96, 1>(c)), "") << text(c);
    c.m = 71;
    c.seed = seed++;
    EXPECT_EQ((run<96, 3>(c)), "") << text(c);
  }
}

TEST(sm90_gemm_group_program, has_the_bits_of_m16n8k16_for_x_in_bf16) {
  std::uint64_t seed = 60;
  for (weight_kind const kind : {kinds[0], kinds[3]}) {
    group_case c;
    c.kind = kind;
    c.x_type = dtype::bf16;
    c.k = kind.format == format_id::nvfp4 ? 688 : 688 + 11;
    c.outlier = 1e30F;
    c.m = 17;
    c.x_gap = 1;
    c.seed = seed++;
    EXPECT_EQ((run<32, 1>(c)), "") << text(c);
    c.m = 64;
    c.slices = 4;
    c.seed = seed++;
    EXPECT_EQ((run<64, 2>(c)), "") << text(c);
    c.m = 71;
    c.slices = 3;
    c.seed = seed++;
    EXPECT_EQ((run<96, 3>(c)), "") << text(c);
  }
}

TEST(sm90_gemm_group_program, takes_as_few_rows_as_a_choice_may_say) {
  std::uint64_t seed = 80;
  for (weight_kind const kind : {kinds[0], kinds[2]}) {
    group_case c;
    c.kind = kind;
    c.k = 400;
    for (std::int64_t const m : {1, 5, 16}) {
      c.m = m;
      c.seed = seed++;
      EXPECT_EQ((run<32, 1>(c)), "") << text(c);
      EXPECT_EQ((run<64, 2>(c)), "") << text(c);
    }
    c.m = 9;
    c.seed = seed++;
    EXPECT_EQ((run<64, 1>(c)), "") << text(c);
    EXPECT_EQ((run<96, 1>(c)), "") << text(c);
    EXPECT_EQ((run<96, 3>(c)), "") << text(c);
  }
}

TEST(sm90_gemm_group_program, takes_slices_of_one_batch_and_of_many) {
  for (weight_kind const kind : {kinds[0], kinds[2]}) {
    for (std::int64_t const k : {16, 64, 128, 144, 1536}) {
      for (int const slices : {1, 5}) {
        group_case c;
        c.kind = kind;
        c.n = 64;
        c.k = k;
        c.slices = slices;
        c.m = 33;
        c.seed = static_cast<std::uint64_t>(k) + 7;
        EXPECT_EQ((run<64, 1>(c)), "") << text(c);
      }
    }
  }
}

TEST(sm90_gemm_group_program, finishes_y_of_every_type_and_alignment) {
  std::uint64_t seed = 40;
  for (dtype const y_type : {dtype::f16, dtype::bf16, dtype::f32}) {
    for (bool const gate : {false, true}) {
      for (std::int64_t const gap : {0, 1}) {
        group_case c;
        c.y_type = y_type;
        c.gate = gate;
        c.y_gap = gap;
        c.k = 272;
        c.n = 192;
        c.m = 27;
        c.bias = true;
        c.residual = gap == 1;
        c.x_gap = gap;
        c.outlier = 3000.0F;  // beyond f16
        c.seed = seed++;
        EXPECT_EQ((run<32, 1>(c)), "") << text(c) << " gap " << gap << " gate " << gate;
      }
    }
  }
}

TEST(sm90_gemm_group_program, each_missing_wait_is_found) {
  for (lost_operation const lost :
       {lost_operation::barrier_wait, lost_operation::product_wait, lost_operation::cluster_sync,
        lost_operation::copy_wait, lost_operation::block_sync}) {
    group_case c;
    c.n = 128;
    c.lost = lost;
    EXPECT_NE((run<32, 1>(c)), "") << static_cast<int>(lost);
  }
}

}  // namespace
}  // namespace qpn::test
