// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm90/gemm_group_plan.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <qpn/gemm_types.hpp>
#include <string>

#include "support/devices.hpp"
#include "support/hopper_layout.hpp"

namespace qpn::test {
namespace {

template <class Format>
std::string method_of(packed_layout const& layout, std::int64_t m, device_info const& device,
                      gemm_problem const& problem = {}) {
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(layout, problem, device, plan);
  EXPECT_TRUE(planned.ok()) << planned.what;
  std::string const name = route_name(route(plan, m));
  return name.substr(name.rfind('/') + 1);
}

// By the rules: of weights that no table has.

TEST(sm90_group_plan, routes_large_weights_of_17_to_96_rows_to_warpgroups) {
  packed_layout const gate_up = hopper_layout(format_id::nvfp4, scale_mode::tensor, 34880, 5120);
  packed_layout const small = hopper_layout(format_id::nvfp4, scale_mode::tensor, 1024, 5120);
  for (std::int64_t m = 1; m <= 96; ++m) {
    EXPECT_EQ(method_of<nvfp4>(gate_up, m, hopper_h200()), m <= 8    ? "mt1"
                                                           : m <= 16 ? "mt2"
                                                                     : "group")
        << m;
    EXPECT_NE(method_of<nvfp4>(small, m, hopper_h200()), "group") << m;
  }
}

TEST(sm90_group_plan, routes_fp8_of_up_to_32_rows_to_row_tiles) {
  packed_layout const layout = hopper_layout(format_id::fp8, scale_mode::tensor, 16448, 5120);
  EXPECT_EQ(method_of<fp8>(layout, 32, hopper_h200()), "mt4");
  EXPECT_EQ(method_of<fp8>(layout, 33, hopper_h200()), "group");
}

TEST(sm90_group_plan, routes_nothing_else_there) {
  device_info blackwell = hopper_h200();
  blackwell.compute_capability = 100;
  packed_layout const layout = hopper_layout(format_id::nvfp4, scale_mode::tensor, 34880, 5120);
  EXPECT_EQ(method_of<nvfp4>(layout, 64, blackwell), "mt4");
  gemm_problem argmax;
  argmax.candidates = 1;
  EXPECT_EQ(method_of<nvfp4>(layout, 64, hopper_h200(), argmax), "mt4");
  EXPECT_EQ(method_of<fp8>(hopper_layout(format_id::fp8, scale_mode::block, 34816, 5120), 64,
                           hopper_h200()),
            "mt4");
  EXPECT_EQ(method_of<dense16>(hopper_layout(format_id::dense16, scale_mode::none, 34816, 5120), 64,
                               hopper_h200()),
            "mt4");
}

TEST(sm90_group_plan, prefers_them_for_more_rows_where_it_does_for_fewer) {
  for (format_id const format : {format_id::nvfp4, format_id::fp8}) {
    for (std::int64_t n = 512; n <= 65536; n *= 2) {
      packed_layout const layout = hopper_layout(format, scale_mode::tensor, n, 5120);
      for (std::int64_t m = 1; m < 96; ++m) {
        EXPECT_TRUE(!detail::sm90::prefers_groups(layout, m) ||
                    detail::sm90::prefers_groups(layout, m + 1))
            << n << " " << m;
      }
    }
  }
}

TEST(sm90_group_plan, has_room_for_ordered_x) {
  packed_layout const layout = hopper_layout(format_id::nvfp4, scale_mode::tensor, 5120, 17408);
  gemm_problem problem;
  problem.max_m = 16;
  gemm_plan<nvfp4> few;
  ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), few).ok());
  problem.max_m = 90;
  gemm_plan<nvfp4> many;
  ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), many).ok());
  EXPECT_LT(few.workspace_bytes, 17408u * 2);
  // 96 rows of whole batches of 128 k.
  EXPECT_GE(many.workspace_bytes, many.workspace_zero_bytes + std::size_t{96} * 17408 * 2);
  EXPECT_GE(detail::sm90::group_workspace_bytes(
                hopper_layout(format_id::nvfp4, scale_mode::tensor, 64, 64), 17),
            std::size_t{24} * 128 * 2);
}

TEST(sm90_group_plan, takes_a_shape_that_has_a_kernel) {
  using detail::sm90::choose_group_shape;
  for (std::int64_t const n : {64, 3584, 5120, 8704, 14336, 34816, 248320}) {
    packed_layout const layout = hopper_layout(format_id::fp8, scale_mode::tensor, n, 5120);
    for (std::int64_t m = 17; m <= 96; ++m) {
      for (int const sm_count : {1, 78, 132}) {
        auto const shape = choose_group_shape(layout, m, sm_count);
        EXPECT_EQ(shape.rows, m <= 32 ? 32 : m <= 64 ? 64 : 96) << n << " " << m;
        EXPECT_TRUE(shape.groups == 1 ||
                    (shape.rows > 32 && shape.groups == (shape.rows == 64 ? 2 : 3)))
            << n << " " << m;
      }
    }
  }
  // Fewer waves: measured on an H200.
  EXPECT_EQ(
      choose_group_shape(hopper_layout(format_id::fp8, scale_mode::tensor, 14336, 5120), 64, 132)
          .groups,
      2);
  EXPECT_EQ(
      choose_group_shape(hopper_layout(format_id::nvfp4, scale_mode::tensor, 5120, 17408), 96, 132)
          .groups,
      3);
}

}  // namespace
}  // namespace qpn::test
