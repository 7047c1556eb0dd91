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

/// Rows of x that one launch takes, on layout sm80_mma16; on sm70_quadpair 16.
inline constexpr std::int64_t gemm_max_m = 96;

/// The same for a layout.
[[nodiscard]] constexpr std::int64_t gemm_max_m_of(layout_id id) noexcept {
  return id == layout_id::sm80_mma16 ? gemm_max_m : 16;
}

/// What is to be computed; with the packed layout it decides the plan.
struct gemm_problem {
  std::int64_t max_m = 16;  ///< most rows of any call with this plan, 0 to gemm_max_m_of its layout
  dtype y_type = dtype::f16;  ///< f16, bf16 or f32
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
  gemm_arch arch = gemm_arch::sm70;
  bool emulated = false;
  std::size_t workspace_bytes = 0;
  /// The first bytes of the workspace, which init_workspace sets to 0.
  std::size_t workspace_zero_bytes = 0;
};

/// The method of a call with m rows: the fewest row tiles that hold them.
[[nodiscard]] constexpr gemm_method method_of(std::int64_t m) noexcept {
  return m <= 8    ? gemm_method::mt1
         : m <= 16 ? gemm_method::mt2
         : m <= 32 ? gemm_method::mt4
         : m <= 64 ? gemm_method::mt8
                   : gemm_method::mt12;
}

/// Row tiles of 8 rows of x of a method.
[[nodiscard]] constexpr int row_tiles_of(gemm_method method) noexcept {
  switch (method) {
    case gemm_method::mt1: return 1;
    case gemm_method::mt2: return 2;
    case gemm_method::mt4: return 4;
    case gemm_method::mt8: return 8;
    case gemm_method::mt12: break;
  }
  return 12;
}

/// The route of a call with m rows, 1 <= m <= max_m.
template <class Format>
[[nodiscard]] constexpr gemm_route route(gemm_plan<Format> const& plan, std::int64_t m) noexcept {
  return {plan.arch, operand_of(plan.layout.code_type), method_of(m), plan.emulated};
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
  /// The kernel may begin while the stream's last kernel still runs, and reads the weight before it
  /// has ended: that kernel must not write the weight, nor share this call's workspace. Needs
  /// compute capability 9.0; it has no effect unless that kernel allows it (this library's do so
  /// when they were launched with this flag).
  bool overlap_previous = false;
};

namespace detail {

/// Most shared memory in bytes of a block of the kernels of layout sm80_mma16; their policies
/// (arch/sm80/gemm_policy.hpp) keep to it.
[[nodiscard]] constexpr int mma16_shared_bytes(gemm_arch arch, gemm_method method) noexcept {
  if (arch == gemm_arch::sm90) return 227 * 1024;
  return row_tiles_of(method) <= 4 ? 99 * 1024 : 163 * 1024;
}

/// Whether the kernels of sm90 fit: those of sm80 run on the other devices.
[[nodiscard]] constexpr bool has_large_shared_memory(device_info const& device) noexcept {
  return device.compute_capability >= 90 &&
         device.shared_bytes_per_block >= mma16_shared_bytes(gemm_arch::sm90, gemm_method::mt1);
}

/// The workspace of a plan: tickets and keys, which are 0 between launches, then the CTAs' planes.
struct gemm_workspace {
  std::uint32_t* tickets;        ///< [tile groups]
  std::uint32_t* argmax_ticket;  ///< [1]
  std::uint64_t* argmax_keys;    ///< [rows]
  float* planes;                 ///< [ctas][2][rows][weight rows of a tile group]
  std::size_t zero_bytes;
  std::size_t bytes;
};

/// The zero part takes `zero_bytes` where that is more than it needs.
/// @param group_n  weight rows of a tile group of the split
[[nodiscard]] inline gemm_workspace place_workspace(work_split const& split, std::int64_t max_m,
                                                    std::byte* base, std::size_t zero_bytes,
                                                    std::int64_t group_n = 64) noexcept {
  std::int64_t const rows = std::int64_t{8} * row_tiles_of(method_of(max_m));
  workspace_cursor cursor(base);
  gemm_workspace placed{};
  placed.tickets = cursor.take<std::uint32_t>(split.tile_groups);
  placed.argmax_ticket = cursor.take<std::uint32_t>(1);
  placed.argmax_keys = cursor.take<std::uint64_t>(rows);
  if (zero_bytes > cursor.used()) cursor.skip_to(zero_bytes);
  placed.zero_bytes = cursor.used();
  placed.planes = cursor.take<float>(std::int64_t{split.ctas} * 2 * rows * group_n);
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
  if (args.overlap_previous && plan.arch != gemm_arch::sm90) {
    return {status_code::unsupported_arch, 0,
            "gemm: overlap_previous needs a plan for compute capability 9.0 or newer"};
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
/// @return invalid_value: not a valid layout for GPUs; unsupported_format: another format, or a
///         y_type that is none; invalid_shape: max_m outside 0..gemm_max_m_of the layout, or
///         silu_gate with n not a multiple of 64; unsupported_arch: compute capability below 70,
///         for sm80_mma16 below 80, or less shared memory in a block than the kernel for max_m
///         needs
template <class Format>
[[nodiscard]] status make_gemm_plan(packed_layout const& layout, gemm_problem const& problem,
                                    device_info const& device, gemm_plan<Format>& out) noexcept {
  if (!is_valid(layout) || layout.id == layout_id::cpu_tile32) {
    return {status_code::invalid_value, 0, "gemm plan: the layout is no valid one for GPUs"};
  }
  if (layout.format != Format::id) {
    return {status_code::unsupported_format, 0, "gemm plan: the layout has another format"};
  }
  if (!detail::is_y_type(problem.y_type)) {
    return {status_code::unsupported_format, 0, "gemm plan: y must be f16, bf16 or f32"};
  }
  if (problem.max_m < 0 || problem.max_m > gemm_max_m_of(layout.id)) {
    return {status_code::invalid_shape, 0,
            "gemm plan: max_m must be between 0 and 96, on sm70_quadpair 16"};
  }
  if (problem.act == activation::silu_gate && (layout.n % (2 * tile_n) != 0 || problem.argmax)) {
    return {status_code::invalid_shape, 0,
            "gemm plan: silu_gate needs n to be a multiple of 64 and no argmax"};
  }
  bool const mma16 = layout.id == layout_id::sm80_mma16;
  if (device.compute_capability < (mma16 ? 80 : 70)) {
    return {status_code::unsupported_arch, 0,
            "gemm plan: needs compute capability 7.0 or newer, layout sm80_mma16 8.0"};
  }
  gemm_plan<Format> plan;
  plan.problem = problem;
  plan.layout = layout;
  plan.arch = !mma16                                    ? gemm_arch::sm70
              : detail::has_large_shared_memory(device) ? gemm_arch::sm90
                                                        : gemm_arch::sm80;
  if (mma16 && device.shared_bytes_per_block <
                   detail::mma16_shared_bytes(plan.arch, method_of(problem.max_m))) {
    return {status_code::unsupported_arch, 0,
            "gemm plan: a block of the device has less shared memory than max_m rows need"};
  }
  plan.emulated = !mma16 && device.compute_capability >= 80;
  detail::gemm_workspace const placed =
      detail::place_workspace(detail::split_of<Format>(layout), problem.max_m, nullptr, 0,
                              detail::groups_per_unit(layout.id) * 64);
  plan.workspace_bytes = placed.bytes;
  plan.workspace_zero_bytes = placed.zero_bytes;
  out = plan;
  return {};
}

}  // namespace qpn
