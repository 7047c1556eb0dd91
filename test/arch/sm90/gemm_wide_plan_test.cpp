// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm90/gemm_wide_plan.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <qpn/gemm_types.hpp>

#include "support/devices.hpp"
#include "support/hopper_layout.hpp"

namespace qpn::test {
namespace {

TEST(sm90_wide_plan, takes_nvfp4_and_fp8_without_blocks_on_hopper_alone) {
  using detail::sm90::has_wide;
  EXPECT_TRUE(has_wide(hopper_layout(format_id::nvfp4, scale_mode::channel, 64, 64), 90));
  EXPECT_TRUE(has_wide(hopper_layout(format_id::fp8, scale_mode::tensor, 64, 64), 90));
  EXPECT_FALSE(has_wide(hopper_layout(format_id::fp8, scale_mode::block, 64, 64), 90));
  EXPECT_FALSE(has_wide(hopper_layout(format_id::dense16, scale_mode::none, 64, 64), 90));
  EXPECT_FALSE(has_wide(hopper_layout(format_id::nvfp4, scale_mode::tensor, 64, 64), 80));
  EXPECT_FALSE(has_wide(hopper_layout(format_id::nvfp4, scale_mode::tensor, 64, 64), 100));
}

TEST(sm90_wide_plan, routes_many_rows_to_the_fused_kernel_up_to_the_crossover) {
  packed_layout const layout = hopper_layout(format_id::nvfp4, scale_mode::tensor, 8704, 5120);
  gemm_problem problem;
  problem.max_m = 8192;
  gemm_plan<nvfp4> plan;
  ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), plan).ok());
  EXPECT_STREQ(route_name(route(plan, 97)), "sm90/nvfp4/wide");
  EXPECT_STREQ(route_name(route(plan, 8192)), "sm90/nvfp4/wide") << "no panels offered";
  EXPECT_GE(plan.workspace_bytes, plan.workspace_zero_bytes + std::size_t{8192} * 5120 * 2);
  problem.dense_bytes = dense_panel_bytes(layout, problem.max_m, 1024);
  ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), plan).ok());
  EXPECT_STREQ(route_name(route(plan, 4095)), "sm90/nvfp4/wide");
  EXPECT_STREQ(route_name(route(plan, 4096)), "sm90/nvfp4/dense");
}

TEST(sm90_wide_plan, sends_what_has_no_fused_kernel_through_panels_or_more_row_blocks) {
  packed_layout const layout = hopper_layout(format_id::dense16, scale_mode::none, 256, 256);
  gemm_problem problem;
  problem.max_m = 200;
  gemm_plan<dense16> plan;
  ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), plan).ok());
  EXPECT_STREQ(route_name(route(plan, 97)), "sm90/f16/mt4");
  EXPECT_STREQ(route_name(route(plan, 200)), "sm90/f16/mt4");
  problem.dense_bytes = dense_panel_bytes(layout, problem.max_m, 64);
  ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), plan).ok());
  EXPECT_EQ(route(plan, 97).method, gemm_method::dense);
}

TEST(sm90_wide_plan, shares_the_k_of_a_tile_only_where_tiles_do_not_fill_the_device) {
  using detail::sm90::choose_wide_shape;
  packed_layout const small = hopper_layout(format_id::fp8, scale_mode::tensor, 5120, 1536);
  packed_layout const large = hopper_layout(format_id::nvfp4, scale_mode::tensor, 34816, 5120);
  EXPECT_GT(choose_wide_shape(small, 128, 132).ranks, 1);
  EXPECT_EQ(choose_wide_shape(large, 2048, 132).ranks, 1);
  for (std::int64_t m = 97; m < 3000; m += 31) {
    for (packed_layout const& layout : {small, large}) {
      auto const shape = choose_wide_shape(layout, m, 132);
      EXPECT_TRUE(shape.rows == 96 || shape.rows == 128) << m;
      EXPECT_TRUE(shape.ranks >= 1 && shape.ranks <= 4) << m;
    }
  }
  // 544 tiles of 132 CTAs: four waves, and 16 tiles whose k clusters share.
  auto const shape = choose_wide_shape(large, 512, 132);
  EXPECT_EQ(shape.rows, 128);
  EXPECT_EQ(shape.ranks, 1);
  EXPECT_EQ(shape.tail_tiles, 16);
  EXPECT_EQ(shape.tail_ranks, 4);
  for (std::int64_t m = 97; m < 3000; m += 31) {
    for (packed_layout const& layout : {small, large}) {
      auto const chosen = choose_wide_shape(layout, m, 132);
      EXPECT_EQ(chosen.tail_tiles > 0, chosen.tail_ranks > 0) << m;
      EXPECT_LT(chosen.tail_tiles, detail::sm90::wide_tiles(layout, m, chosen.rows)) << m;
      if (chosen.tail_tiles > 0) {
        EXPECT_GT(chosen.tail_ranks, chosen.ranks) << m;
        EXPECT_LE(chosen.tail_ranks, 4) << m;
      }
    }
  }
  // A CTA must have a step at least.
  EXPECT_EQ(
      choose_wide_shape(hopper_layout(format_id::fp8, scale_mode::tensor, 64, 64), 97, 132).ranks,
      1);
}

}  // namespace
}  // namespace qpn::test
