// SPDX-License-Identifier: Apache-2.0
#include "qpn/x_fragments.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <qpn/detail/mma16_map.hpp>
#include <qpn/gemm_types.hpp>
#include <string>
#include <vector>

#include "support/devices.hpp"
#include "support/hopper_layout.hpp"

namespace qpn::test {
namespace {

TEST(x_fragments, give_each_element_of_whole_row_tiles_a_place_of_its_own) {
  for (std::int64_t const m : {8, 16}) {
    for (std::int64_t const k : {128, 384, 5120}) {
      std::int64_t const count = x_fragments_count(m, k);
      EXPECT_EQ(count, m * k);
      std::vector<int> seen(static_cast<std::size_t>(count));
      for (std::int64_t row = 0; row < m; ++row) {
        for (std::int64_t at = 0; at < k; ++at) {
          std::int64_t const offset = x_fragments_offset(row, at, k);
          ASSERT_TRUE(offset >= 0 && offset < count) << "row " << row << " k " << at;
          ++seen[static_cast<std::size_t>(offset)];
        }
      }
      for (int const times : seen) ASSERT_EQ(times, 1);
    }
  }
}

TEST(x_fragments, take_whole_row_tiles) {
  EXPECT_EQ(x_fragments_count(0, 128), 0);
  EXPECT_EQ(x_fragments_count(1, 128), 8 * 128);
  EXPECT_EQ(x_fragments_count(9, 256), 16 * 256);
  EXPECT_LT(x_fragments_offset(8, 255, 256), x_fragments_count(9, 256));
}

TEST(x_fragments, have_the_same_place_for_a_row_whatever_m_is) {
  EXPECT_EQ(x_fragments_offset(0, 0, 128), 0);
  EXPECT_EQ(x_fragments_offset(0, 7, 128), 7);
  EXPECT_EQ(x_fragments_offset(0, 8, 128), 8) << "the next lane";
  EXPECT_EQ(x_fragments_offset(1, 0, 128), 32) << "four lanes further on";
  EXPECT_EQ(x_fragments_offset(0, 32, 128), 256) << "the next record";
  EXPECT_EQ(x_fragments_offset(8, 0, 128), 1024) << "the next row tile";
}

// Weight row g and x row g are in the same four lanes of m16n8k16, and the same k of both in one.
TEST(x_fragments, give_a_lane_the_k_that_it_has_of_the_weights) {
  using record = detail::mma16_record<fp8>;
  static_assert(record::k == x_fragments_record_k && record::batch_k == x_fragments_k_unit);
  constexpr std::int64_t k = 256;
  for (int row = 0; row < 16; ++row) {
    for (int at = 0; at < k; ++at) {
      std::int64_t const offset = x_fragments_offset(row, at, k);
      int const word = at % record::k / record::codes_per_word;
      EXPECT_EQ(offset / x_fragments_lane_k % 32, record::word_offset(0, row % 8, word) / 16);
      EXPECT_EQ(offset / (32 * x_fragments_lane_k), row / 8 * (k / record::k) + at / record::k);
      EXPECT_EQ(offset % x_fragments_lane_k, at % x_fragments_lane_k);
    }
  }
}

static_assert(x_fragments_offset(15, 127, 128) == 2047, "constant expressions");

/// What check_gemm says to a call with x in fragment order.
struct fragments_call {
  std::int64_t m = 16;
  std::int64_t k = 1536;
  scale_mode scale = scale_mode::channel;
  device_info device = hopper_h200();
  gemm_problem problem;
  std::uintptr_t x = 0x10000;
  std::int64_t ldx = -1;  ///< not read
  status_code code = status_code::ok;

  template <class Format = fp8>
  std::string refusal() {
    packed_layout layout;
    EXPECT_TRUE(make_packed_layout(Format::id, scale, 5120, k, dtype::f16, device, layout).ok());
    gemm_plan<Format> plan;
    status const planned = make_gemm_plan(layout, problem, device, plan);
    EXPECT_TRUE(planned.ok()) << planned.what;
    gemm_args args;
    args.m = m;
    args.x = reinterpret_cast<void const*>(x);
    args.ldx = ldx;
    args.order = x_order::fragments;
    args.weight = {layout, reinterpret_cast<std::byte const*>(0x20000)};
    args.y = reinterpret_cast<void*>(0x30000);
    args.ldy = 5120;
    args.candidate_ids = reinterpret_cast<std::int32_t*>(0x50000);
    status const checked =
        detail::check_gemm(plan, args, {reinterpret_cast<void*>(0x40000), plan.workspace_bytes});
    code = checked.code;
    bool const x_is_fit = x != 0 && x % 16 == 0;
    if (m > 0 && x_is_fit) {
      EXPECT_EQ(takes_fragments(plan, m), checked.ok()) << checked.what;
    }
    return checked.what;
  }
};

TEST(x_in_fragment_order, is_taken_with_fp8_weights_and_few_rows) {
  for (scale_mode const scale : {scale_mode::tensor, scale_mode::channel}) {
    for (std::int64_t m = 1; m <= 16; ++m) {
      fragments_call call;
      call.m = m;
      call.scale = scale;
      call.problem.max_m = m == 16 ? 2048 : 96;
      EXPECT_EQ(call.refusal(), "") << m;
    }
  }
  fragments_call call;
  call.device.compute_capability = 80;
  EXPECT_EQ(call.refusal(), "");
  call.problem.act = activation::silu_gate;
  EXPECT_EQ(call.refusal(), "");
  fragments_call nothing;
  nothing.m = 0;
  nothing.x = 0;
  EXPECT_EQ(nothing.refusal(), "") << "m = 0 looks at no pointer";
}

TEST(x_in_fragment_order, is_refused_in_one_sentence_where_no_kernel_reads_it) {
  std::string const operands =
      "gemm: x in fragment order needs layout sm80_mma16, fp8 weights with tensor or channel "
      "scales, and x in f16";
  fragments_call block;
  block.scale = scale_mode::block;
  EXPECT_EQ(block.refusal(), operands);
  EXPECT_EQ(block.code, status_code::unsupported_format);
  fragments_call nvfp4_weight;
  EXPECT_EQ(nvfp4_weight.refusal<nvfp4>(), operands);
  fragments_call dense;
  dense.scale = scale_mode::none;
  EXPECT_EQ(dense.refusal<dense16>(), operands);
  fragments_call bf16;
  bf16.problem.x_type = dtype::bf16;
  EXPECT_EQ(bf16.refusal(), operands);
  fragments_call volta;
  volta.device = volta_v100();
  EXPECT_EQ(volta.refusal(), operands);

  fragments_call candidates;
  candidates.problem.candidates = 1;
  EXPECT_EQ(candidates.refusal(), "gemm: x in fragment order needs a plan without candidates");
  EXPECT_EQ(candidates.code, status_code::invalid_value);

  for (std::int64_t const k : {16, 64, 127, 1600}) {
    fragments_call ragged;
    ragged.k = k;
    EXPECT_EQ(ragged.refusal(), "gemm: x in fragment order needs k to be a multiple of 128");
    EXPECT_EQ(ragged.code, status_code::invalid_shape);
  }

  for (std::int64_t const m : {17, 96, 97}) {
    fragments_call many;
    many.m = m;
    many.problem.max_m = 128;
    EXPECT_EQ(many.refusal(), "gemm: x in fragment order needs m to be at most 16");
    EXPECT_EQ(many.code, status_code::invalid_shape);
  }

  for (gemm_choice const choice :
       {gemm_choice{gemm_method::mt4}, gemm_choice{gemm_method::group, 32, 1}}) {
    gemm_tuning_row const row = {format_id::fp8, 5120, 1536, 9, 16, choice};
    fragments_call tuned;
    tuned.problem.tuning = {&row, 1};
    EXPECT_EQ(tuned.refusal(),
              "gemm: x in fragment order needs mt1 or mt2, and the plan's table chooses another "
              "method for m");
    EXPECT_EQ(tuned.code, status_code::invalid_value);
    tuned.m = 8;
    EXPECT_EQ(tuned.refusal(), "");
  }

  for (std::uintptr_t const offset : {1, 2, 8}) {
    fragments_call misaligned;
    misaligned.x += offset;
    EXPECT_EQ(misaligned.refusal(), "gemm: x in fragment order must be 16-byte aligned");
    EXPECT_EQ(misaligned.code, status_code::misaligned);
  }
  fragments_call null;
  null.x = 0;
  EXPECT_EQ(null.refusal(), "gemm: x or the weight is null");
}

}  // namespace
}  // namespace qpn::test
