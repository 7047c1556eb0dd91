// SPDX-License-Identifier: Apache-2.0
#include "qpn/gemm_types.hpp"

#include <gtest/gtest.h>

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
  for (std::int64_t max_m : {std::int64_t{-1}, std::int64_t{17}}) {
    problem.max_m = max_m;
    EXPECT_EQ(refuse_plan(nvfp4_layout(), problem), status_code::invalid_shape);
  }
  problem = {};
  problem.act = activation::silu_gate;
  EXPECT_EQ(refuse_plan(nvfp4_layout(96), problem), status_code::invalid_shape);
  problem.argmax = true;
  EXPECT_EQ(refuse_plan(nvfp4_layout(128), problem), status_code::invalid_shape);
  device_info old = volta_v100();
  old.compute_capability = 61;
  EXPECT_EQ(refuse_plan(nvfp4_layout(), {}, old), status_code::unsupported_arch);
}

TEST(gemm_plan, takes_every_y_type_and_every_number_of_rows) {
  for (dtype type : {dtype::f16, dtype::bf16, dtype::f32}) {
    for (std::int64_t max_m = 0; max_m <= 16; ++max_m) {
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

TEST(gemm_plan, is_emulated_where_the_instruction_is) {
  for (auto const& [capability, emulated] : {std::pair{70, false}, {75, false}, {80, true}}) {
    device_info device = volta_v100();
    device.compute_capability = capability;
    gemm_plan<nvfp4> plan;
    ASSERT_TRUE(make_gemm_plan(nvfp4_layout(), {}, device, plan).ok());
    EXPECT_EQ(plan.emulated, emulated) << "sm_" << capability;
  }
}

TEST(gemm_plan, lays_a_workspace_out_in_slots_that_do_not_overlap) {
  for (std::int64_t n : {1, 64, 5120, 62080}) {
    for (std::int64_t max_m : {0, 8, 9, 16}) {
      gemm_problem problem;
      problem.max_m = max_m;
      gemm_plan<nvfp4> const plan = plan_of<nvfp4>(nvfp4_layout(n, 5120), problem);
      detail::work_split const split = detail::split_of<nvfp4>(plan.layout);
      auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{4096});
      detail::gemm_workspace const placed = detail::place_workspace(split, max_m, base, 0);
      std::int64_t const rows = max_m > 8 ? 16 : 8;
      auto const at = [base](void const* part) {
        return static_cast<std::byte const*>(part) - base;
      };
      EXPECT_EQ(at(placed.tickets), 0);
      EXPECT_GE(at(placed.argmax_ticket), 4 * split.tile_groups);
      EXPECT_GE(at(placed.argmax_keys), at(placed.argmax_ticket) + 4);
      EXPECT_GE(static_cast<std::int64_t>(placed.zero_bytes), at(placed.argmax_keys) + 8 * rows);
      EXPECT_EQ(at(placed.planes), static_cast<std::int64_t>(placed.zero_bytes));
      EXPECT_GE(static_cast<std::int64_t>(placed.bytes),
                at(placed.planes) + std::int64_t{4} * 64 * rows * 2 * split.ctas);
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

TEST(gemm_route, takes_a_second_row_tile_beyond_eight_rows) {
  auto const plan = plan_of<nvfp4>(nvfp4_layout());
  for (std::int64_t m = 1; m <= 16; ++m) {
    EXPECT_EQ(name_of(plan, m), m <= 8 ? "sm70/nvfp4/mt1" : "sm70/nvfp4/mt2") << "m " << m;
  }
}

TEST(gemm_route, is_that_of_each_projection_of_the_target_model) {
  // Qwen3.8-27B at four ranks: gate_up, down and lm_head in NVFP4; attention and GDN in FP8.
  for (auto const& [n, k] : {std::pair{8704, 5120}, {5120, 4352}, {62080, 5120}}) {
    EXPECT_EQ(name_of(plan_of<nvfp4>(nvfp4_layout(n, k)), 1), "sm70/nvfp4/mt1");
  }
  for (auto const& [n, k] : {std::pair{4096, 5120}, {3584, 5120}, {5120, 1536}}) {
    for (scale_mode scale : {scale_mode::tensor, scale_mode::channel}) {
      EXPECT_EQ(name_of(plan_of<fp8>(layout_of(format_id::fp8, scale, n, k)), 16), "sm70/fp8/mt2");
    }
  }
  auto const dense = [](dtype type) {
    return plan_of<dense16>(layout_of(format_id::dense16, scale_mode::none, 24, 5120, type));
  };
  EXPECT_EQ(name_of(dense(dtype::bf16), 1), "sm70/bf16/mt1");
  EXPECT_EQ(name_of(dense(dtype::f16), 9), "sm70/f16/mt2");
}

packed_layout mma16_layout(std::int64_t n = 128, std::int64_t k = 96) {
  packed_layout layout;
  status const made = make_packed_layout(format_id::nvfp4, scale_mode::tensor, n, k, dtype::f16,
                                         hopper_h200(), layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

constexpr device_info a100{80, 108, 2048, 164 * 1024, 163 * 1024, 40 * 1024 * 1024};
constexpr device_info ada{89, 128, 1536, 100 * 1024, 99 * 1024, 72 * 1024 * 1024};

TEST(gemm_plan, takes_96_rows_on_newer_devices_and_16_on_the_layout_of_volta) {
  gemm_problem problem;
  problem.max_m = 96;
  gemm_plan<nvfp4> plan;
  EXPECT_TRUE(make_gemm_plan(mma16_layout(), problem, hopper_h200(), plan).ok());
  EXPECT_FALSE(plan.emulated);
  EXPECT_EQ(refuse_plan(nvfp4_layout(), problem, hopper_h200()), status_code::invalid_shape);
  problem.max_m = 97;
  EXPECT_EQ(refuse_plan(mma16_layout(), problem, hopper_h200()), status_code::invalid_shape);
  EXPECT_EQ(refuse_plan(mma16_layout()), status_code::unsupported_arch) << "a V100";
}

TEST(gemm_plan, needs_the_shared_memory_of_its_kernels) {
  gemm_problem problem;
  gemm_plan<nvfp4> plan;
  for (std::int64_t max_m : {1, 32}) {
    problem.max_m = max_m;
    EXPECT_TRUE(make_gemm_plan(mma16_layout(), problem, ada, plan).ok());
    EXPECT_EQ(plan.arch, gemm_arch::sm80);
  }
  problem.max_m = 33;
  EXPECT_EQ(refuse_plan(mma16_layout(), problem, ada), status_code::unsupported_arch);
  problem.max_m = 96;
  EXPECT_TRUE(make_gemm_plan(mma16_layout(), problem, a100, plan).ok());
  EXPECT_EQ(plan.arch, gemm_arch::sm80);
}

TEST(gemm_plan, has_planes_of_128_weight_rows_on_mma16) {
  for (std::int64_t max_m : {1, 9, 17, 64, 65}) {
    gemm_problem problem;
    problem.max_m = max_m;
    gemm_plan<nvfp4> plan;
    ASSERT_TRUE(make_gemm_plan(mma16_layout(5120, 5120), problem, hopper_h200(), plan).ok());
    std::int64_t const rows = max_m <= 8    ? 8
                              : max_m <= 16 ? 16
                              : max_m <= 32 ? 32
                              : max_m <= 64 ? 64
                                            : 96;
    EXPECT_EQ(static_cast<std::int64_t>(plan.workspace_bytes - plan.workspace_zero_bytes),
              plan.layout.ctas * 2 * rows * 128 * 4);
  }
}

TEST(gemm_route, has_the_fewest_row_tiles_that_hold_the_rows) {
  gemm_problem problem;
  problem.max_m = 96;
  for (auto const& [device, arch] : {std::pair{hopper_h200(), "sm90"}, {a100, "sm80"}}) {
    gemm_plan<nvfp4> plan;
    ASSERT_TRUE(make_gemm_plan(mma16_layout(), problem, device, plan).ok());
    for (std::int64_t m = 1; m <= 96; ++m) {
      char const* const method = m <= 8    ? "mt1"
                                 : m <= 16 ? "mt2"
                                 : m <= 32 ? "mt4"
                                 : m <= 64 ? "mt8"
                                           : "mt12";
      EXPECT_EQ(name_of(plan, m), std::string(arch) + "/nvfp4/" + method) << "m " << m;
    }
  }
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

gemm_problem argmax_problem() {
  gemm_problem problem;
  problem.argmax = true;
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

  checked_call argmax(argmax_problem());
  EXPECT_EQ(argmax.code(), status_code::invalid_value) << "no argmax_ids";
  argmax.args.argmax_ids = static_cast<std::int32_t*>(address(0x60000));
  EXPECT_EQ(argmax.code(), status_code::ok);
  argmax.args.y = nullptr;
  argmax.args.ldy = 0;
  EXPECT_EQ(argmax.code(), status_code::ok) << "y is optional with argmax";
  argmax.args.residual = address(0x50000);
  EXPECT_EQ(argmax.code(), status_code::invalid_value) << "a residual without y";
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

TEST(check_gemm, refuses_an_argmax_beyond_the_columns) {
  checked_call call(argmax_problem());
  call.args.argmax_ids = static_cast<std::int32_t*>(address(0x60000));
  for (std::int64_t n : {0, 1, 128}) {
    call.args.argmax_n = n;
    EXPECT_EQ(call.code(), status_code::ok);
  }
  for (std::int64_t n : {-1, 129}) {
    call.args.argmax_n = n;
    EXPECT_EQ(call.code(), status_code::invalid_shape);
  }
}

/// The verdict on a call in which one address is `offset` bytes further on.
template <class Change>
status_code at_offset(std::uintptr_t offset, dtype y_type, Change change) {
  gemm_problem problem = argmax_problem();
  problem.y_type = y_type;
  checked_call call(problem);
  call.args.argmax_ids = static_cast<std::int32_t*>(address(0x60000));
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
    call.args.argmax_ids = static_cast<std::int32_t*>(at);
  };
  EXPECT_EQ(at_offset(2, dtype::f16, ids), misaligned);
  auto const values = [](checked_call& call, void* at) {
    call.args.argmax_values = static_cast<float*>(at);
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

TEST(check_gemm, overlaps_the_last_kernel_on_sm_90_only) {
  checked_call call;
  call.args.overlap_previous = true;
  EXPECT_EQ(call.code(), status_code::unsupported_arch);
  call.plan.arch = gemm_arch::sm90;
  EXPECT_EQ(call.code(), status_code::ok);
}

}  // namespace
}  // namespace qpn::test
