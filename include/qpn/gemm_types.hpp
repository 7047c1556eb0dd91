// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "qpn/detail/alignment.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/device_info.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/gemm_route.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"
#include "qpn/workspace.hpp"

// What a caller of qpn::gemm holds: plans and arguments. Host code without CUDA; the launch is in
// gemm.cuh.

namespace qpn {

/// Rows of x that one launch takes.
inline constexpr std::int64_t gemm_max_m = 96;

/// What is to be computed; with the packed layout it decides the plan.
struct gemm_problem {
  std::int64_t max_m = gemm_max_m;  ///< most rows of any call with this plan, 0 to gemm_max_m
  dtype y_type = dtype::f16;        ///< f16, bf16 or f32
  activation act = activation::none;
  overflow_policy overflow = overflow_policy::saturate;  ///< of f16 and bf16 results
  bool argmax = false;  ///< calls give the best column of each row; y may then be null
};

[[nodiscard]] constexpr bool operator==(gemm_problem const& a, gemm_problem const& b) noexcept {
  return a.max_m == b.max_m && a.y_type == b.y_type && a.act == b.act && a.overflow == b.overflow &&
         a.argmax == b.argmax;
}

/// How calls of one problem run on one weight's layout and one device. Made by make_gemm_plan; a
/// plain value.
template <class Format>
struct gemm_plan {
  gemm_problem problem;
  packed_layout layout;
  bool emulated = false;
  std::size_t workspace_bytes = 0;
  /// The first bytes of the workspace, which init_workspace sets to 0.
  std::size_t workspace_zero_bytes = 0;
};

/// The route of a call with m rows, 1 <= m <= max_m: m up to 8 runs one row tile of 8, up to 16
/// two, beyond it four for each row block of 32.
template <class Format>
[[nodiscard]] constexpr gemm_route route(gemm_plan<Format> const& plan, std::int64_t m) noexcept {
  return {gemm_arch::sm70, operand_of(plan.layout.code_type),
          m > 16  ? gemm_method::mt4
          : m > 8 ? gemm_method::mt2
                  : gemm_method::mt1,
          plan.emulated};
}

/// Columns of y: n, or n / 2 with silu_gate.
template <class Format>
[[nodiscard]] constexpr std::int64_t columns_of_y(gemm_plan<Format> const& plan) noexcept {
  return plan.problem.act == activation::silu_gate ? plan.layout.n / 2 : plan.layout.n;
}

/// One call. All pointers are to memory that the device can reach; strides are in elements.
struct gemm_args {
  std::int64_t m = 0;  ///< rows, 0 to the plan's max_m; 0 launches nothing
  void const* x =
      nullptr;           ///< f16 [m, k], row-major, 2-byte aligned; 16 where ldx % 8 == 0 is best
  std::int64_t ldx = 0;  ///< >= k
  packed_weight weight;  ///< of the plan's layout, 128-byte aligned
  void* y = nullptr;     ///< y_type [m, columns_of_y], row-major; null only with argmax
  std::int64_t ldy = 0;  ///< >= columns_of_y
  float const* bias = nullptr;       ///< [n], or null
  void const* residual = nullptr;    ///< residual_type [m, columns_of_y], or null; may be y itself
  dtype residual_type = dtype::f16;  ///< f16, bf16 or f32
  std::int64_t ld_residual = 0;      ///< >= columns_of_y
  std::int32_t* argmax_ids = nullptr;  ///< [m]; with argmax
  float* argmax_values = nullptr;      ///< [m], or null
  std::int64_t argmax_n = 0;           ///< only columns below it are chosen; 0: all n
  gemm_census* census = nullptr;       ///< host memory, or null
};

namespace detail {

/// Rows of x that one CTA has where m > 16: a row block.
inline constexpr std::int64_t row_block_m = 32;

[[nodiscard]] constexpr std::int64_t row_blocks_of(std::int64_t m) noexcept {
  return m > row_block_m ? (m - 1) / row_block_m + 1 : 1;
}

/// The workspace of a plan: tickets and keys, which are 0 between launches, then the planes. Rows:
/// max_m, rounded up to whole row tiles of 8 or 16, or row blocks.
struct gemm_workspace {
  std::uint32_t* tickets;        ///< [row blocks][tile groups]
  std::uint32_t* argmax_ticket;  ///< [row blocks]
  std::uint64_t* argmax_keys;    ///< [rows]
  float* planes;                 ///< [ctas][2][rows][64], or for each row block with its rows
  std::size_t zero_bytes;
  std::size_t bytes;
};

/// The zero part takes `zero_bytes` where that is more than it needs.
[[nodiscard]] inline gemm_workspace place_workspace(work_split const& split, std::int64_t max_m,
                                                    std::byte* base,
                                                    std::size_t zero_bytes) noexcept {
  std::int64_t const blocks = row_blocks_of(max_m);
  std::int64_t const rows = max_m > 16 ? blocks * row_block_m : max_m > 8 ? 16 : 8;
  workspace_cursor cursor(base);
  gemm_workspace placed{};
  placed.tickets = cursor.take<std::uint32_t>(blocks * split.tile_groups);
  placed.argmax_ticket = cursor.take<std::uint32_t>(blocks);
  placed.argmax_keys = cursor.take<std::uint64_t>(rows);
  if (zero_bytes > cursor.used()) cursor.skip_to(zero_bytes);
  placed.zero_bytes = cursor.used();
  placed.planes = cursor.take<float>(std::int64_t{split.ctas} * 2 * rows * 64);
  placed.bytes = cursor.used();
  return placed;
}

[[nodiscard]] constexpr bool is_y_type(dtype type) noexcept {
  return type == dtype::f16 || type == dtype::bf16 || type == dtype::f32;
}

/// Whether m rows that lie ld elements apart fit 63 bits of bytes.
[[nodiscard]] constexpr bool rows_fit(std::int64_t m, std::int64_t ld) noexcept {
  return ld <= (std::numeric_limits<std::int64_t>::max)() / 8 / (m < 1 ? 1 : m);
}

/// Bytes of the part of a workspace that must be 0 between the plan's calls.
template <class Format>
[[nodiscard]] constexpr std::size_t zero_bytes_of(gemm_plan<Format> const& plan,
                                                  workspace_view workspace) noexcept {
  return workspace.zero_bytes > plan.workspace_zero_bytes ? workspace.zero_bytes
                                                          : plan.workspace_zero_bytes;
}

template <class Format>
[[nodiscard]] status check_workspace(gemm_plan<Format> const& plan,
                                     workspace_view workspace) noexcept {
  std::size_t const extra = zero_bytes_of(plan, workspace) - plan.workspace_zero_bytes;
  if (workspace.bytes < plan.workspace_bytes || workspace.bytes - plan.workspace_bytes < extra) {
    return {status_code::workspace_too_small, 0,
            "gemm: the workspace has fewer bytes than the plan's workspace_bytes, or the needs of "
            "the plans that share it"};
  }
  if (workspace.data == nullptr || !is_aligned_to(workspace_alignment, workspace.data) ||
      workspace.zero_bytes % workspace_alignment != 0) {
    return {status_code::misaligned, 0, "gemm: the workspace must be 256-byte aligned"};
  }
  return {};
}

template <class Format>
[[nodiscard]] status check_gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                                workspace_view workspace) noexcept {
  std::int64_t const columns = columns_of_y(plan);
  if (args.m < 0 || args.m > plan.problem.max_m) {
    return {status_code::invalid_shape, 0, "gemm: m must be between 0 and the plan's max_m"};
  }
  if (args.weight.layout != plan.layout) {
    return {status_code::invalid_value, 0, "gemm: the weight's layout is not the plan's"};
  }
  if (args.m == 0) return {};
  if (args.ldx < plan.layout.k || (args.y != nullptr && args.ldy < columns) ||
      (args.residual != nullptr && args.ld_residual < columns)) {
    return {status_code::invalid_shape, 0,
            "gemm: ldx must be at least k, ldy and ld_residual at least the columns of y"};
  }
  if (!rows_fit(args.m, args.ldx) || !rows_fit(args.m, args.ldy) ||
      !rows_fit(args.m, args.ld_residual)) {
    return {status_code::invalid_shape, 0, "gemm: the size of x, y or residual exceeds 63 bits"};
  }
  if (args.x == nullptr || args.weight.data == nullptr) {
    return {status_code::invalid_value, 0, "gemm: x or the weight is null"};
  }
  if (plan.problem.argmax ? args.argmax_ids == nullptr : args.y == nullptr) {
    return {status_code::invalid_value, 0, "gemm: y is null, or argmax_ids in a plan with argmax"};
  }
  if (args.residual != nullptr && (args.y == nullptr || !is_y_type(args.residual_type))) {
    return {status_code::invalid_value, 0, "gemm: a residual needs y and type f16, bf16 or f32"};
  }
  if (args.argmax_n < 0 || args.argmax_n > plan.layout.n) {
    return {status_code::invalid_shape, 0, "gemm: argmax_n must be between 0 and n"};
  }
  if (!is_aligned_to(128, args.weight.data) || !is_element_aligned(args.x, dtype::f16) ||
      !is_element_aligned(args.y, plan.problem.y_type) ||
      !is_element_aligned(args.residual, args.residual_type) || !is_aligned_to(4, args.bias) ||
      !is_aligned_to(4, args.argmax_ids) || !is_aligned_to(4, args.argmax_values)) {
    return {status_code::misaligned, 0,
            "gemm: the weight must be 128-byte aligned, all else to its elements"};
  }
  return check_workspace(plan, workspace);
}

}  // namespace detail

/// Decides how calls of `problem` run on a weight of this layout on this device. Touches neither
/// memory nor GPU.
/// @param layout  from make_packed_layout for a GPU, of format Format
/// @param device  the device that will run the calls; the bits of a result depend on the layout,
///                not on it
/// @return invalid_value: not a valid sm70_quadpair layout; unsupported_format: another format, or
///         a y_type that is none; invalid_shape: max_m outside 0..96, or silu_gate with n not a
///         multiple of 64; unsupported_arch: compute capability below 70
template <class Format>
[[nodiscard]] status make_gemm_plan(packed_layout const& layout, gemm_problem const& problem,
                                    device_info const& device, gemm_plan<Format>& out) noexcept {
  if (!is_valid(layout) || layout.id != layout_id::sm70_quadpair) {
    return {status_code::invalid_value, 0, "gemm plan: the layout is no valid sm70_quadpair"};
  }
  if (layout.format != Format::id) {
    return {status_code::unsupported_format, 0, "gemm plan: the layout has another format"};
  }
  if (!detail::is_y_type(problem.y_type)) {
    return {status_code::unsupported_format, 0, "gemm plan: y must be f16, bf16 or f32"};
  }
  if (problem.max_m < 0 || problem.max_m > gemm_max_m) {
    return {status_code::invalid_shape, 0, "gemm plan: max_m must be between 0 and 96"};
  }
  if (problem.act == activation::silu_gate && (layout.n % (2 * tile_n) != 0 || problem.argmax)) {
    return {status_code::invalid_shape, 0,
            "gemm plan: silu_gate needs n to be a multiple of 64 and no argmax"};
  }
  if (device.compute_capability < 70) {
    return {status_code::unsupported_arch, 0, "gemm plan: needs compute capability 7.0 or newer"};
  }
  gemm_plan<Format> plan;
  plan.problem = problem;
  plan.layout = layout;
  plan.emulated = device.compute_capability >= 80;
  detail::gemm_workspace const placed =
      detail::place_workspace(detail::split_of<Format>(layout), problem.max_m, nullptr, 0);
  plan.workspace_bytes = placed.bytes;
  plan.workspace_zero_bytes = placed.zero_bytes;
  out = plan;
  return {};
}

}  // namespace qpn
