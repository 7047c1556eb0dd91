// SPDX-License-Identifier: Apache-2.0
#include "qpn/gemm_types.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "support/devices.hpp"

namespace qpn::test {
namespace {

static_assert(std::is_trivially_copyable_v<gemm_plan<nvfp4>>);
static_assert(std::is_trivially_copyable_v<gemm_args>);

packed_layout layout_of(format_id format, scale_mode scale, std::int64_t n, std::int64_t k,
                        dtype dense = dtype::f16) {
  packed_layout layout;
  status const made = make_packed_layout(format, scale, n, k, dense, volta_v100(), layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

packed_layout nvfp4_layout(std::int64_t n = 128, std::int64_t k = 96) {
  return layout_of(format_id::nvfp4, scale_mode::tensor, n, k);
}

template <class Format>
gemm_plan<Format> plan_of(packed_layout const& layout, gemm_problem const& problem = {}) {
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(layout, problem, volta_v100(), plan);
  EXPECT_TRUE(planned.ok()) << planned.what;
  return plan;
}

// Plans.

status_code refuse_plan(packed_layout const& layout, gemm_problem const& problem = {},
                        device_info const& device = volta_v100()) {
  gemm_plan<nvfp4> plan;
  plan.workspace_bytes = 12345;
  status const planned = make_gemm_plan(layout, problem, device, plan);
  EXPECT_EQ(plan.workspace_bytes, 12345u) << "a refused plan must not be written";
  EXPECT_NE(std::string(planned.what), "");
  return planned.code;
}

TEST(gemm_plan, refuses_layouts_that_no_gpu_kernel_reads) {
  EXPECT_EQ(refuse_plan({}), status_code::invalid_value);
  packed_layout cpu;
  ASSERT_TRUE(
      make_packed_layout(format_id::nvfp4, scale_mode::tensor, 128, 96, dtype::f16, cpu).ok());
  EXPECT_EQ(refuse_plan(cpu), status_code::invalid_value);
  packed_layout damaged = nvfp4_layout();
  damaged.scales_offset += 128;
  EXPECT_EQ(refuse_plan(damaged), status_code::invalid_value);
  EXPECT_EQ(refuse_plan(layout_of(format_id::fp8, scale_mode::tensor, 128, 96)),
            status_code::unsupported_format);
}

TEST(gemm_plan, refuses_problems_that_it_cannot_run) {
  gemm_problem problem;
  for (dtype type : {dtype::e2m1, dtype::e4m3, dtype::e8m0}) {
    problem.y_type = type;
    EXPECT_EQ(refuse_plan(nvfp4_layout(), problem), status_code::unsupported_format);
  }
  problem = {};
  for (std::int64_t max_m : {std::int64_t{-1}, gemm_wide_max_m + 1}) {
    problem.max_m = max_m;
    EXPECT_EQ(refuse_plan(nvfp4_layout(), problem), status_code::invalid_shape);
  }
  problem = {};
  problem.act = activation::silu_gate;
  EXPECT_EQ(refuse_plan(nvfp4_layout(96), problem), status_code::invalid_shape);
  problem.candidates = 1;
  EXPECT_EQ(refuse_plan(nvfp4_layout(128), problem), status_code::invalid_shape);
  problem = {};
  for (int candidates : {-1, max_candidates + 1}) {
    problem.candidates = candidates;
    EXPECT_EQ(refuse_plan(nvfp4_layout(), problem), status_code::invalid_value);
  }
  problem.candidates = 1;
  problem.max_m = gemm_max_m + 1;
  EXPECT_EQ(refuse_plan(nvfp4_layout(), problem), status_code::invalid_shape);
  problem.max_m = gemm_max_m;
  EXPECT_EQ(plan_of<nvfp4>(nvfp4_layout(), problem).panel_rows, 0);
  device_info old = volta_v100();
  old.compute_capability = 61;
  EXPECT_EQ(refuse_plan(nvfp4_layout(), {}, old), status_code::unsupported_arch);
}

TEST(gemm_plan, with_simt_is_for_three_rows_and_never_emulated) {
  gemm_problem problem;
  problem.algorithm = gemm_algorithm::simt;
  for (std::int64_t max_m : {gemm_simt_max_m + 1, gemm_max_m}) {
    problem.max_m = max_m;
    EXPECT_EQ(refuse_plan(nvfp4_layout(), problem), status_code::invalid_shape);
  }
  for (std::int64_t max_m = 0; max_m <= gemm_simt_max_m; ++max_m) {
    for (int capability : {70, 75, 80, 90}) {
      problem.max_m = max_m;
      device_info device = volta_v100();
      device.compute_capability = capability;
      gemm_plan<nvfp4> plan;
      ASSERT_TRUE(make_gemm_plan(nvfp4_layout(), problem, device, plan).ok());
      EXPECT_FALSE(plan.emulated) << "sm_" << capability;
      EXPECT_TRUE(plan.problem == problem);
    }
  }
  gemm_problem other = problem;
  other.algorithm = gemm_algorithm::tensor_core;
  EXPECT_FALSE(other == problem);
}

TEST(gemm_plan, lists_more_than_one_candidate_for_sixteen_rows_at_most) {
  gemm_problem problem;
  for (int candidates : {1, 2, max_candidates}) {
    for (std::int64_t max_m : {std::int64_t{0}, std::int64_t{1}, gemm_candidates_max_m}) {
      problem.candidates = candidates;
      problem.max_m = max_m;
      EXPECT_TRUE(plan_of<nvfp4>(nvfp4_layout(), problem).problem == problem);
    }
    for (std::int64_t max_m = gemm_candidates_max_m + 1; max_m <= gemm_max_m; ++max_m) {
      problem.max_m = max_m;
      gemm_plan<nvfp4> plan;
      EXPECT_EQ(make_gemm_plan(nvfp4_layout(), problem, volta_v100(), plan).code,
                candidates == 1 ? status_code::ok : status_code::invalid_shape);
    }
  }
  gemm_problem other = problem;
  other.candidates = 3;
  EXPECT_FALSE(other == problem);
}

TEST(gemm_plan, takes_every_y_type_and_every_number_of_rows) {
  for (dtype type : {dtype::f16, dtype::bf16, dtype::f32}) {
    for (std::int64_t max_m = 0; max_m <= gemm_max_m; ++max_m) {
      gemm_problem problem;
      problem.max_m = max_m;
      problem.y_type = type;
      gemm_plan<nvfp4> const plan = plan_of<nvfp4>(nvfp4_layout(), problem);
      EXPECT_TRUE(plan.problem == problem);
      EXPECT_TRUE(plan.layout == nvfp4_layout());
      EXPECT_EQ(plan.workspace_bytes % workspace_alignment, 0u);
      EXPECT_GT(plan.workspace_zero_bytes, 0u);
      EXPECT_LT(plan.workspace_zero_bytes, plan.workspace_bytes);
    }
  }
}

TEST(gemm_plan, refuses_many_rows_of_weights_that_are_too_large) {
  gemm_problem problem;
  problem.max_m = gemm_max_m + 1;
  std::int64_t const longest = (std::int64_t{1} << 31) - 16;
  EXPECT_EQ(plan_of<nvfp4>(nvfp4_layout(64, longest), problem).panel_rows, 0);
  EXPECT_EQ(refuse_plan(nvfp4_layout(64, longest + 16), problem), status_code::invalid_shape);
  EXPECT_EQ(plan_of<nvfp4>(nvfp4_layout(64, longest + 16)).panel_rows, 0) << "few rows may";
  // 2^24 + 1 blocks of rows by 127 and 128 of columns.
  problem.max_m = gemm_wide_max_m;
  EXPECT_EQ(plan_of<nvfp4>(nvfp4_layout(126 * 256, 64), problem).panel_rows, 0);
  EXPECT_EQ(refuse_plan(nvfp4_layout(127 * 256, 64), problem), status_code::invalid_shape);
}

TEST(gemm_plan, has_panels_where_the_caller_offers_bytes_and_calls_can_use_them) {
  packed_layout const layout = nvfp4_layout(640, 4096);
  gemm_problem problem;
  problem.max_m = 3000;
  problem.dense_bytes = dense_panel_bytes(layout, 3000, 320);
  gemm_plan<nvfp4> plan = plan_of<nvfp4>(layout, problem);
  EXPECT_EQ(plan.panel_rows, 320);
  EXPECT_EQ(plan.dense_min_m, 2048) << "of Volta";
  EXPECT_EQ(plan.workspace_bytes, plan.workspace_zero_bytes + problem.dense_bytes);
  EXPECT_GE(plan.workspace_bytes, plan_of<nvfp4>(layout).workspace_bytes);
  EXPECT_FALSE(uses_panels(plan, 2047));
  EXPECT_TRUE(uses_panels(plan, 2048));

  problem.dense_bytes = dense_panel_bytes(layout, 3000, 1) - 1;
  EXPECT_EQ(refuse_plan(layout, problem), status_code::workspace_too_small);
  problem.dense_bytes = 0;
  EXPECT_FALSE(uses_panels(plan_of<nvfp4>(layout, problem), 3000));
  problem.dense_bytes = 1;  // no call can use it, so it need not be enough
  problem.max_m = 2047;
  plan = plan_of<nvfp4>(layout, problem);
  EXPECT_EQ(plan.panel_rows, 0);
  EXPECT_FALSE(uses_panels(plan, 2047));

  problem.dense_bytes = dense_panel_bytes(layout, 2047, 640);
  problem.dense_min_m = 300;
  plan = plan_of<nvfp4>(layout, problem);
  EXPECT_FALSE(uses_panels(plan, 299));
  EXPECT_TRUE(uses_panels(plan, 300));
  problem.dense_min_m = gemm_max_m;
  EXPECT_EQ(refuse_plan(layout, problem), status_code::invalid_shape) << "promised bits";

  device_info emulated = volta_v100();
  emulated.compute_capability = 90;
  problem.dense_min_m = 0;
  ASSERT_TRUE(make_gemm_plan(layout, problem, emulated, plan).ok());
  EXPECT_TRUE(uses_panels(plan, gemm_max_m + 1)) << "any GEMM is faster than an emulated one";
  EXPECT_FALSE(uses_panels(plan, gemm_max_m));
}

TEST(gemm_plan, keeps_the_workspace_of_few_rows_for_many) {
  gemm_problem problem;
  problem.max_m = 5000;
  gemm_plan<nvfp4> const many = plan_of<nvfp4>(nvfp4_layout(), problem);
  gemm_plan<nvfp4> const few = plan_of<nvfp4>(nvfp4_layout());
  EXPECT_EQ(many.workspace_bytes, few.workspace_bytes);
  EXPECT_EQ(many.workspace_zero_bytes, few.workspace_zero_bytes);
}

TEST(gemm_plan, is_emulated_where_the_instruction_is) {
  for (auto const& [capability, emulated] : {std::pair{70, false}, {75, false}, {80, true}}) {
    device_info device = volta_v100();
    device.compute_capability = capability;
    gemm_plan<nvfp4> plan;
    ASSERT_TRUE(make_gemm_plan(nvfp4_layout(), {}, device, plan).ok());
    EXPECT_EQ(plan.emulated, emulated) << "sm_" << capability;
  }
}

packed_layout mma16_layout(std::int64_t n = 192, std::int64_t k = 512) {
  packed_layout layout;
  status const made = make_packed_layout(format_id::nvfp4, scale_mode::tensor, n, k, dtype::f16,
                                         hopper_h200(), layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

TEST(gemm_plan, of_an_mma16_layout_runs_the_kernels_of_its_device) {
  packed_layout const layout = mma16_layout();
  device_info device = hopper_h200();
  gemm_plan<nvfp4> plan;
  ASSERT_TRUE(make_gemm_plan(layout, {}, device, plan).ok());
  EXPECT_STREQ(route_name(route(plan, 8)), "sm90/nvfp4/mt1");
  EXPECT_STREQ(route_name(route(plan, 9)), "sm90/nvfp4/mt2");
  EXPECT_STREQ(route_name(route(plan, 96)), "sm90/nvfp4/mt4");
  EXPECT_FALSE(plan.emulated);
  device.compute_capability = 86;
  ASSERT_TRUE(make_gemm_plan(layout, {}, device, plan).ok());
  EXPECT_STREQ(route_name(route(plan, 1)), "sm80/nvfp4/mt1");
  device.compute_capability = 75;
  EXPECT_EQ(make_gemm_plan(layout, {}, device, plan).code, status_code::unsupported_arch);
}

TEST(gemm_plan, of_an_mma16_layout_refuses_what_it_has_no_kernel_for) {
  gemm_plan<nvfp4> plan;
  device_info ampere = hopper_h200();  // has no fused kernel for many rows
  ampere.compute_capability = 80;
  auto const refuse = [&](packed_layout const& layout, gemm_problem const& problem) {
    return make_gemm_plan(layout, problem, ampere, plan).code;
  };
  gemm_problem simt;
  simt.algorithm = gemm_algorithm::simt;
  simt.max_m = 1;
  EXPECT_EQ(refuse(mma16_layout(), simt), status_code::invalid_shape);
  EXPECT_EQ(refuse(mma16_layout(2097089), {}), status_code::invalid_shape);
  EXPECT_EQ(refuse(mma16_layout(2097088), {}), status_code::ok);
}

TEST(gemm_plan, of_an_mma16_layout_without_a_kernel_for_many_rows_takes_more_row_blocks) {
  gemm_plan<nvfp4> plan;
  device_info ampere = hopper_h200();
  ampere.compute_capability = 80;
  auto const refuse = [&](packed_layout const& layout, gemm_problem const& problem) {
    return make_gemm_plan(layout, problem, ampere, plan).code;
  };
  gemm_problem many;
  many.max_m = gemm_max_m + 200;
  ASSERT_EQ(refuse(mma16_layout(), many), status_code::ok);
  EXPECT_STREQ(route_name(route(plan, many.max_m)), "sm80/nvfp4/mt4");
  EXPECT_EQ(detail::cut_rows<nvfp4>(plan.layout, many.max_m).blocks, 10);
  EXPECT_FALSE(detail::is_sliced(plan.layout, many.max_m));
  many.dense_bytes = dense_panel_bytes(mma16_layout(), many.max_m, 64);
  many.dense_min_m = 200;
  ASSERT_EQ(refuse(mma16_layout(), many), status_code::ok);
  EXPECT_FALSE(uses_panels(plan, 199));
  EXPECT_TRUE(uses_panels(plan, 200));
  many.dense_min_m = 0;
  ASSERT_EQ(refuse(mma16_layout(), many), status_code::ok);
  EXPECT_TRUE(uses_panels(plan, gemm_max_m + 1));
  EXPECT_FALSE(uses_panels(plan, gemm_max_m));
}

/// What a plan says to x in bf16 on a weight for this device.
template <class Format>
status plan_bf16(format_id format, scale_mode scale, dtype dense, device_info const& device,
                 gemm_problem problem, gemm_plan<Format>& plan) {
  packed_layout layout;
  EXPECT_TRUE(make_packed_layout(format, scale, 8704, 5120, dense, device, layout).ok());
  problem.x_type = dtype::bf16;
  return make_gemm_plan(layout, problem, device, plan);
}

TEST(gemm_plan, takes_x_in_bf16_on_mma16_layouts_alone) {
  gemm_plan<nvfp4> plan;
  status const volta =
      plan_bf16(format_id::nvfp4, scale_mode::tensor, dtype::f16, volta_v100(), {}, plan);
  EXPECT_EQ(volta.code, status_code::unsupported_arch);
  EXPECT_NE(std::string(volta.what).find("bf16"), std::string::npos);
  ASSERT_TRUE(
      plan_bf16(format_id::nvfp4, scale_mode::tensor, dtype::f16, hopper_h200(), {}, plan).ok());
  EXPECT_STREQ(route_name(route(plan, 8)), "sm90/nvfp4/mt1/bf16");
  EXPECT_STREQ(route_name(route(plan, 96)), "sm90/nvfp4/group/bf16");
  gemm_problem const f16;
  EXPECT_FALSE(plan.problem == f16);
  for (dtype type : {dtype::f32, dtype::e4m3, dtype::e2m1, dtype::e8m0}) {
    gemm_problem problem;
    problem.x_type = type;
    EXPECT_EQ(make_gemm_plan(mma16_layout(), problem, hopper_h200(), plan).code,
              status_code::unsupported_format)
        << to_string(type);
  }
}

TEST(gemm_plan, with_x_in_bf16_refuses_f16_weights_and_panels_by_name) {
  gemm_plan<dense16> dense;
  status const mixed =
      plan_bf16(format_id::dense16, scale_mode::none, dtype::f16, hopper_h200(), {}, dense);
  EXPECT_EQ(mixed.code, status_code::unsupported_format);
  EXPECT_NE(std::string(mixed.what).find("f16 weights"), std::string::npos);
  EXPECT_TRUE(
      plan_bf16(format_id::dense16, scale_mode::none, dtype::bf16, hopper_h200(), {}, dense).ok());
  gemm_problem panels;
  panels.max_m = 5000;
  panels.dense_bytes = std::size_t{1} << 30;
  gemm_plan<nvfp4> plan;
  status const refused =
      plan_bf16(format_id::nvfp4, scale_mode::tensor, dtype::f16, hopper_h200(), panels, plan);
  EXPECT_EQ(refused.code, status_code::unsupported_format);
  EXPECT_NE(std::string(refused.what).find("panels"), std::string::npos);
}

TEST(gemm_plan, with_x_in_bf16_runs_many_rows_fused_or_in_more_row_blocks) {
  gemm_problem many;
  many.max_m = 1000;
  gemm_plan<nvfp4> plan;
  ASSERT_TRUE(
      plan_bf16(format_id::nvfp4, scale_mode::tensor, dtype::f16, hopper_h200(), many, plan).ok());
  EXPECT_STREQ(route_name(route(plan, 97)), "sm90/nvfp4/wide/bf16");
  device_info ampere = hopper_h200();
  ampere.compute_capability = 80;
  ASSERT_TRUE(plan_bf16(format_id::nvfp4, scale_mode::tensor, dtype::f16, ampere, many, plan).ok());
  EXPECT_STREQ(route_name(route(plan, 1000)), "sm80/nvfp4/mt4/bf16");
  EXPECT_FALSE(detail::is_sliced(plan.layout, 97));
  gemm_plan<dense16> dense;
  ASSERT_TRUE(
      plan_bf16(format_id::dense16, scale_mode::none, dtype::bf16, hopper_h200(), many, dense)
          .ok());
  EXPECT_STREQ(route_name(route(dense, 1000)), "sm90/bf16/mt4/bf16");
  EXPECT_STREQ(route_name(route(dense, 96)), "sm90/bf16/mt4/bf16") << "no warpgroups";
}

TEST(gemm_plan, of_an_mma16_layout_has_lists_for_as_many_ctas_as_it_launches) {
  gemm_problem problem;
  gemm_plan<nvfp4> plan;
  for (std::int64_t n : {64, 62080, 248320}) {
    packed_layout const layout = mma16_layout(n);
    problem.candidates = 0;
    ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), plan).ok());
    EXPECT_EQ(detail::mma16_ctas(plan, 96), layout.padded_n / 32);
    EXPECT_GT(plan.workspace_bytes, 0u);
    EXPECT_EQ(plan.workspace_bytes, plan.workspace_zero_bytes);
    problem.candidates = 20;
    problem.max_m = gemm_candidates_max_m;
    ASSERT_TRUE(make_gemm_plan(layout, problem, hopper_h200(), plan).ok());
    EXPECT_EQ(detail::mma16_ctas(plan, 96), n == 64 ? 2 : 5 * 132) << "of four warps each";
    std::int64_t const ctas = detail::mma16_ctas(plan, detail::sm80::fewest_registers);
    EXPECT_EQ(ctas, n == 64 ? 2 : 6 * 132);
    EXPECT_EQ(plan.workspace_bytes - plan.workspace_zero_bytes,
              (static_cast<std::size_t>(ctas * 16 * 20 * 8) + 255) / 256 * 256);
  }
}

TEST(gemm_plan, lays_a_workspace_out_in_slots_that_do_not_overlap) {
  for (std::int64_t n : {1, 64, 5120, 62080}) {
    for (std::int64_t max_m : {0, 8, 9, 16, 17, 32, 33, 64, 65, 96}) {
      gemm_problem problem;
      problem.max_m = max_m;
      problem.candidates = max_m % 2 == 0 && max_m <= gemm_candidates_max_m ? 20 : 1;
      gemm_plan<nvfp4> const plan = plan_of<nvfp4>(nvfp4_layout(n, 5120), problem);
      detail::work_split const split = detail::split_of<nvfp4>(plan.layout);
      auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{4096});
      detail::gemm_workspace const placed =
          detail::place_workspace<nvfp4>(plan.layout, problem, base, 0);
      bool const pairs = split.halves_alike();
      std::int64_t const block_m = max_m <= 8              ? 8
                                   : max_m <= 16 || !pairs ? 16
                                   : max_m <= 32           ? 32
                                   : max_m <= 64           ? 64
                                                           : 96;
      std::int64_t const blocks = std::max<std::int64_t>(1, (max_m + block_m - 1) / block_m);
      std::int64_t const rows = blocks * block_m;
      auto const at = [base](void const* part) {
        return static_cast<std::byte const*>(part) - base;
      };
      EXPECT_EQ(at(placed.tickets), 0);
      EXPECT_GE(at(placed.candidate_ticket), 4 * blocks * split.tile_groups);
      EXPECT_GE(at(placed.best_keys), at(placed.candidate_ticket) + 4 * blocks);
      EXPECT_GE(static_cast<std::int64_t>(placed.zero_bytes), at(placed.best_keys) + 8 * rows);
      EXPECT_EQ(at(placed.planes), static_cast<std::int64_t>(placed.zero_bytes));
      std::int64_t const planes_end =
          at(placed.planes) + std::int64_t{4} * 64 * rows * 2 * split.ctas;
      EXPECT_GE(static_cast<std::int64_t>(placed.bytes), planes_end);
      EXPECT_EQ(placed.candidate_lists == nullptr, problem.candidates <= 1);
      if (placed.candidate_lists != nullptr) {
        EXPECT_GE(at(placed.candidate_lists), planes_end);
        EXPECT_GE(static_cast<std::int64_t>(placed.bytes),
                  at(placed.candidate_lists) + 8 * rows * problem.candidates * split.ctas);
      }
      EXPECT_EQ(placed.bytes, plan.workspace_bytes);
      EXPECT_EQ(placed.zero_bytes, plan.workspace_zero_bytes);
    }
  }
}

TEST(gemm_plan, halves_the_columns_for_silu_gate) {
  gemm_problem problem;
  EXPECT_EQ(columns_of_y(plan_of<nvfp4>(nvfp4_layout(128), problem)), 128);
  problem.act = activation::silu_gate;
  EXPECT_EQ(columns_of_y(plan_of<nvfp4>(nvfp4_layout(128), problem)), 64);
}

// Routes.

template <class Format>
std::string name_of(gemm_plan<Format> const& plan, std::int64_t m) {
  return route_name(route(plan, m));
}

/// The method of each m, and that the row blocks hold m rows and none is empty.
template <class Format, class Expected>
void expect_methods(packed_layout const& layout, Expected expected) {
  auto const plan = plan_of<Format>(layout);
  for (std::int64_t m = 1; m <= gemm_max_m; ++m) {
    std::string const name = name_of(plan, m);
    EXPECT_EQ(name.substr(name.rfind('/') + 1), expected(m)) << "m " << m;
    detail::row_cut const cut = detail::cut_rows<Format>(layout, m);
    EXPECT_EQ(std::stoi(name.substr(name.rfind("mt") + 2)), cut.row_tiles) << "m " << m;
    EXPECT_GE(cut.rows(), m);
    EXPECT_LT(cut.rows() - 8 * cut.row_tiles, m);
  }
}

TEST(gemm_route, takes_two_row_tiles_beyond_eight_rows_and_four_beyond_sixteen) {
  auto const expected = [](std::int64_t m) { return m <= 8 ? "mt1" : m <= 16 ? "mt2" : "mt4"; };
  expect_methods<dense16>(layout_of(format_id::dense16, scale_mode::none, 4096, 5120), expected);
  expect_methods<fp8>(layout_of(format_id::fp8, scale_mode::block, 4096, 5120), expected);
}

TEST(gemm_route, takes_all_rows_at_once_where_scales_leave_registers) {
  auto const expected = [](std::int64_t m) {
    return m <= 8 ? "mt1" : m <= 16 ? "mt2" : m <= 32 ? "mt4" : m <= 64 ? "mt8" : "mt12";
  };
  expect_methods<fp8>(layout_of(format_id::fp8, scale_mode::tensor, 4096, 5120), expected);
  expect_methods<fp8>(layout_of(format_id::fp8, scale_mode::channel, 4096, 5120), expected);
  expect_methods<nvfp4>(nvfp4_layout(8704, 5120), expected);
}

TEST(gemm_route, takes_two_row_tiles_at_most_where_runs_come_in_no_pairs) {
  auto const expected = [](std::int64_t m) { return m <= 8 ? "mt1" : "mt2"; };
  expect_methods<nvfp4>(nvfp4_layout(5120 + 64, 5120), expected);
  expect_methods<fp8>(layout_of(format_id::fp8, scale_mode::tensor, 4096 + 64, 5120), expected);
  expect_methods<fp8>(layout_of(format_id::fp8, scale_mode::block, 4096 + 64, 5120), expected);
  expect_methods<dense16>(layout_of(format_id::dense16, scale_mode::none, 24, 5120), expected);
}

TEST(gemm_route, of_many_rows_with_block_scales_is_that_of_96) {
  gemm_problem problem;
  problem.max_m = 1000;
  auto const plan = plan_of<fp8>(layout_of(format_id::fp8, scale_mode::block, 4096, 5120), problem);
  for (std::int64_t m : {97, 192, 1000}) EXPECT_EQ(name_of(plan, m), "sm70/fp8/mt4") << m;
}

TEST(gemm_plan, cuts_many_rows_with_block_scales_into_slices_that_cover_them_once) {
  gemm_problem problem;
  problem.max_m = 1000;
  problem.y_type = dtype::f32;
  auto const plan = plan_of<fp8>(layout_of(format_id::fp8, scale_mode::block, 256, 5120), problem);
  EXPECT_FALSE(detail::is_sliced(plan.layout, gemm_max_m));
  EXPECT_TRUE(detail::is_sliced(plan.layout, gemm_max_m + 1));
  gemm_problem many;
  many.max_m = 1000;
  gemm_plan<fp8> const channel =
      plan_of<fp8>(layout_of(format_id::fp8, scale_mode::channel, 256, 5120), many);
  EXPECT_FALSE(detail::is_sliced(channel.layout, 1000));
  gemm_args args;
  args.m = 200;
  args.x = reinterpret_cast<void const*>(std::uintptr_t{1} << 20);
  args.ldx = 5128;
  args.y = reinterpret_cast<void*>(std::uintptr_t{1} << 30);
  args.ldy = 300;
  std::int64_t rows = 0;
  for (std::int64_t first = 0; first < args.m; first += gemm_max_m) {
    for (bool with_residual : {false, true}) {
      args.residual =
          with_residual ? reinterpret_cast<void const*>(std::uintptr_t{1} << 40) : nullptr;
      args.residual_type = dtype::bf16;
      args.ld_residual = 400;
      gemm_args const slice = detail::slice_rows(plan, args, first);
      auto const offset = [](void const* from, void const* to) {
        return static_cast<std::byte const*>(to) - static_cast<std::byte const*>(from);
      };
      EXPECT_EQ(slice.m, first < 192 ? 96 : 8);
      EXPECT_EQ(offset(args.x, slice.x), first * 5128 * 2);
      EXPECT_EQ(offset(args.y, slice.y), first * 300 * 4);
      EXPECT_EQ(offset(args.residual, slice.residual), with_residual ? first * 400 * 2 : 0);
      rows += with_residual ? slice.m : 0;
    }
  }
  EXPECT_EQ(rows, args.m);
}

TEST(gemm_plan, refuses_block_scales_where_no_kernel_takes_them) {
  packed_layout const layout = layout_of(format_id::fp8, scale_mode::block, 256, 5120);
  auto const refused = [&](gemm_problem const& problem) {
    gemm_plan<fp8> plan;
    return make_gemm_plan(layout, problem, volta_v100(), plan).code;
  };
  gemm_problem problem;
  problem.max_m = 4096;
  EXPECT_EQ(refused(problem), status_code::ok);
  problem.dense_bytes = std::size_t{1} << 30;
  EXPECT_EQ(refused(problem), status_code::unsupported_format);
  problem.max_m = 3;
  EXPECT_EQ(refused(problem), status_code::ok) << "no call can use panels";
  problem.algorithm = gemm_algorithm::simt;
  EXPECT_EQ(refused(problem), status_code::unsupported_format);
}

TEST(gemm_route, is_wide_beyond_the_narrow_kernels_and_dense_where_the_plan_has_panels) {
  gemm_problem problem;
  problem.max_m = 4096;
  gemm_plan<nvfp4> const fused = plan_of<nvfp4>(nvfp4_layout(), problem);
  EXPECT_EQ(name_of(fused, gemm_max_m + 1), "sm70/nvfp4/wide");
  EXPECT_EQ(name_of(fused, 4096), "sm70/nvfp4/wide");
  problem.dense_bytes = std::size_t{1} << 30;
  gemm_plan<nvfp4> const dense = plan_of<nvfp4>(nvfp4_layout(), problem);
  EXPECT_EQ(name_of(dense, 8), "sm70/nvfp4/mt1");
  EXPECT_EQ(name_of(dense, 2047), "sm70/nvfp4/wide");
  EXPECT_EQ(name_of(dense, 2048), "sm70/nvfp4/dense");
  device_info emulated = volta_v100();
  emulated.compute_capability = 90;
  gemm_plan<nvfp4> plan;
  ASSERT_TRUE(make_gemm_plan(nvfp4_layout(), problem, emulated, plan).ok());
  EXPECT_EQ(name_of(plan, 8), "sm70/nvfp4/mt1/emulated");
  EXPECT_EQ(name_of(plan, gemm_max_m + 1), "sm70/nvfp4/dense") << "panels emulate nothing";
  problem.dense_bytes = 0;
  ASSERT_TRUE(make_gemm_plan(nvfp4_layout(), problem, emulated, plan).ok());
  EXPECT_EQ(name_of(plan, gemm_max_m + 1), "sm70/nvfp4/wide/emulated");
}

TEST(gemm_route, is_simt_where_the_problem_asks_for_it) {
  gemm_problem problem;
  problem.algorithm = gemm_algorithm::simt;
  problem.max_m = gemm_simt_max_m;
  auto const plan = plan_of<nvfp4>(nvfp4_layout(), problem);
  for (std::int64_t m = 1; m <= gemm_simt_max_m; ++m)
    EXPECT_EQ(name_of(plan, m), "sm70/nvfp4/simt");
}

TEST(gemm_route, is_that_of_each_projection_of_the_target_model) {
  // Qwen3.8-27B at four ranks: gate_up, down and lm_head in NVFP4; attention and GDN in FP8.
  for (auto const& [n, k] : {std::pair{8704, 5120}, {5120, 4352}, {62080, 5120}}) {
    EXPECT_EQ(name_of(plan_of<nvfp4>(nvfp4_layout(n, k)), 1), "sm70/nvfp4/mt1");
  }
  for (auto const& [n, k] : {std::pair{4096, 5120}, {3584, 5120}, {5120, 1536}}) {
    for (scale_mode scale : {scale_mode::tensor, scale_mode::channel}) {
      auto const plan = plan_of<fp8>(layout_of(format_id::fp8, scale, n, k));
      EXPECT_EQ(name_of(plan, 16), "sm70/fp8/mt2");
      EXPECT_EQ(name_of(plan, 64), "sm70/fp8/mt8");
    }
  }
  auto const dense = [](dtype type) {
    return plan_of<dense16>(layout_of(format_id::dense16, scale_mode::none, 24, 5120, type));
  };
  EXPECT_EQ(name_of(dense(dtype::bf16), 1), "sm70/bf16/mt1");
  EXPECT_EQ(name_of(dense(dtype::f16), 9), "sm70/f16/mt2");
  EXPECT_EQ(name_of(dense(dtype::bf16), 96), "sm70/bf16/mt2");
}

// What check_gemm asks of a call. Addresses are never followed, so any numbers do.

void* address(std::uintptr_t value) {
  return reinterpret_cast<void*>(value);
}

/// A call that passes, and what a test changes in it.
struct checked_call {
  explicit checked_call(gemm_problem const& problem = {})
      : plan(plan_of<nvfp4>(nvfp4_layout(), problem)) {
    args.m = 3;
    args.x = address(0x10000);
    args.ldx = 96;
    args.weight = {plan.layout, static_cast<std::byte const*>(address(0x20000))};
    args.y = address(0x30000);
    args.ldy = 128;
    args.residual_type = problem.y_type;
    args.ld_residual = 128;
    workspace = {address(0x40000), plan.workspace_bytes};
  }

  [[nodiscard]] status_code code() const {
    status const checked = detail::check_gemm(plan, args, workspace);
    EXPECT_EQ(checked.what[0] == '\0', checked.ok());
    return checked.code;
  }

  gemm_plan<nvfp4> plan;
  gemm_args args;
  workspace_view workspace;
};

gemm_problem candidates_problem() {
  gemm_problem problem;
  problem.max_m = gemm_candidates_max_m;
  problem.candidates = 5;
  return problem;
}

TEST(check_gemm, takes_a_plain_call_and_one_without_rows) {
  checked_call call;
  EXPECT_EQ(call.code(), status_code::ok);
  call.args = {};
  call.args.weight.layout = call.plan.layout;
  call.workspace = {};
  EXPECT_EQ(call.code(), status_code::ok) << "m = 0 looks at no pointer";
}

TEST(check_gemm, refuses_row_counts_beyond_the_plan) {
  gemm_problem problem;
  problem.max_m = 8;
  checked_call call(problem);
  for (std::int64_t m : {-1, 9}) {
    call.args.m = m;
    EXPECT_EQ(call.code(), status_code::invalid_shape) << "m " << m;
  }
  call.args.m = 8;
  EXPECT_EQ(call.code(), status_code::ok);
}

TEST(check_gemm, refuses_a_weight_of_another_layout) {
  checked_call call;
  call.args.weight.layout = nvfp4_layout(128, 112);
  EXPECT_EQ(call.code(), status_code::invalid_value);
  call.args.m = 0;
  EXPECT_EQ(call.code(), status_code::invalid_value);
}

TEST(check_gemm, refuses_strides_that_make_rows_overlap) {
  checked_call call;
  call.args.ldx = 95;
  EXPECT_EQ(call.code(), status_code::invalid_shape);
  call = checked_call();
  call.args.ldy = 127;
  EXPECT_EQ(call.code(), status_code::invalid_shape);
  call = checked_call();
  call.args.residual = address(0x50000);
  call.args.ld_residual = 127;
  EXPECT_EQ(call.code(), status_code::invalid_shape);
  call.args.residual = nullptr;
  EXPECT_EQ(call.code(), status_code::ok) << "a stride without its matrix counts for nothing";
}

TEST(check_gemm, refuses_strides_whose_matrix_has_no_size) {
  std::int64_t const largest = (std::numeric_limits<std::int64_t>::max)() / 8 / 3;
  for (std::int64_t gemm_args::*stride :
       {&gemm_args::ldx, &gemm_args::ldy, &gemm_args::ld_residual}) {
    checked_call call;
    call.args.residual = address(0x50000);
    call.args.*stride = largest;
    EXPECT_EQ(call.code(), status_code::ok);
    call.args.*stride = largest + 1;
    EXPECT_EQ(call.code(), status_code::invalid_shape);
  }
}

TEST(check_gemm, refuses_null_where_something_is_read_or_written) {
  checked_call call;
  call.args.x = nullptr;
  EXPECT_EQ(call.code(), status_code::invalid_value);
  call = checked_call();
  call.args.weight.data = nullptr;
  EXPECT_EQ(call.code(), status_code::invalid_value);
  call = checked_call();
  call.args.y = nullptr;
  EXPECT_EQ(call.code(), status_code::invalid_value);

  checked_call head(candidates_problem());
  EXPECT_EQ(head.code(), status_code::invalid_value) << "no candidate_ids";
  head.args.candidate_ids = static_cast<std::int32_t*>(address(0x60000));
  EXPECT_EQ(head.code(), status_code::ok);
  head.args.y = nullptr;
  head.args.ldy = 0;
  EXPECT_EQ(head.code(), status_code::ok) << "y is optional with candidates";
  head.args.residual = address(0x50000);
  EXPECT_EQ(head.code(), status_code::invalid_value) << "a residual without y";
}

TEST(check_gemm, refuses_residuals_of_other_types) {
  checked_call call;
  call.args.residual = address(0x50000);
  for (dtype type : {dtype::f16, dtype::bf16, dtype::f32}) {
    call.args.residual_type = type;
    EXPECT_EQ(call.code(), status_code::ok);
  }
  for (dtype type : {dtype::e2m1, dtype::e4m3, dtype::e8m0}) {
    call.args.residual_type = type;
    EXPECT_EQ(call.code(), status_code::invalid_value);
  }
}

TEST(check_gemm, refuses_ids_that_an_int32_does_not_hold) {
  checked_call call(candidates_problem());
  call.args.candidate_ids = static_cast<std::int32_t*>(address(0x60000));
  std::int32_t const last = (std::numeric_limits<std::int32_t>::max)() - 128;
  for (std::int32_t first : {0, 1, last}) {
    call.args.first_id = first;
    for (std::int32_t limit : {-5, 0, first, first + 128}) {
      call.args.id_limit = limit;
      EXPECT_EQ(call.code(), status_code::ok);
    }
  }
  for (std::int32_t first : {-1, last + 1}) {
    call.args.first_id = first;
    EXPECT_EQ(call.code(), status_code::invalid_shape);
  }
  checked_call without;
  without.args.first_id = -1;
  EXPECT_EQ(without.code(), status_code::ok) << "a first id without candidates counts for nothing";
}

/// The verdict on a call in which one address is `offset` bytes further on.
template <class Change>
status_code at_offset(std::uintptr_t offset, dtype y_type, Change change) {
  gemm_problem problem = candidates_problem();
  problem.y_type = y_type;
  checked_call call(problem);
  call.args.candidate_ids = static_cast<std::int32_t*>(address(0x60000));
  change(call, address(0x70000 + offset));
  return call.code();
}

TEST(check_gemm, asks_each_address_for_the_alignment_of_its_elements) {
  using status_code::misaligned;
  using status_code::ok;
  auto const weight = [](checked_call& call, void* at) {
    call.args.weight.data = static_cast<std::byte const*>(at);
  };
  EXPECT_EQ(at_offset(64, dtype::f16, weight), misaligned);
  EXPECT_EQ(at_offset(128, dtype::f16, weight), ok);
  auto const x = [](checked_call& call, void* at) { call.args.x = at; };
  EXPECT_EQ(at_offset(1, dtype::f16, x), misaligned);
  EXPECT_EQ(at_offset(2, dtype::f16, x), ok);
  auto const y = [](checked_call& call, void* at) { call.args.y = at; };
  EXPECT_EQ(at_offset(1, dtype::bf16, y), misaligned);
  EXPECT_EQ(at_offset(2, dtype::bf16, y), ok);
  EXPECT_EQ(at_offset(2, dtype::f32, y), misaligned);
  EXPECT_EQ(at_offset(4, dtype::f32, y), ok);
  auto const residual = [](checked_call& call, void* at) { call.args.residual = at; };
  EXPECT_EQ(at_offset(2, dtype::f16, residual), ok);
  EXPECT_EQ(at_offset(2, dtype::f32, residual), misaligned);
  auto const bias = [](checked_call& call, void* at) { call.args.bias = static_cast<float*>(at); };
  EXPECT_EQ(at_offset(2, dtype::f16, bias), misaligned);
  EXPECT_EQ(at_offset(4, dtype::f16, bias), ok);
  auto const ids = [](checked_call& call, void* at) {
    call.args.candidate_ids = static_cast<std::int32_t*>(at);
  };
  EXPECT_EQ(at_offset(2, dtype::f16, ids), misaligned);
  auto const values = [](checked_call& call, void* at) {
    call.args.candidate_values = static_cast<float*>(at);
  };
  EXPECT_EQ(at_offset(2, dtype::f16, values), misaligned);
  EXPECT_EQ(at_offset(4, dtype::f16, values), ok);
}

TEST(check_gemm, refuses_workspaces_that_are_too_small_or_misaligned) {
  checked_call call;
  --call.workspace.bytes;
  EXPECT_EQ(call.code(), status_code::workspace_too_small);
  call.workspace = {};
  EXPECT_EQ(call.code(), status_code::workspace_too_small);
  call = checked_call();
  call.workspace.data = nullptr;
  EXPECT_EQ(call.code(), status_code::misaligned);
  call.workspace.data = address(0x40080);
  EXPECT_EQ(call.code(), status_code::misaligned);
}

}  // namespace
}  // namespace qpn::test
