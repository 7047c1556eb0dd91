// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm90/gemm_group_plan.hpp"
#include "qpn/arch/sm90/gemm_wide_plan.hpp"
#include "qpn/candidates.hpp"
#include "qpn/detail/alignment.hpp"
#include "qpn/detail/dense_panels.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/gemm_rules.hpp"
#include "qpn/detail/row_cut.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/device_info.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/gemm_choice.hpp"
#include "qpn/gemm_route.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"
#include "qpn/workspace.hpp"
#include "qpn/x_fragments.hpp"

// What a caller of qpn::gemm holds: plans and arguments. Host code without CUDA; the launch is in
// gemm.cuh.

namespace qpn {

/// Rows of x that one call takes.
inline constexpr std::int64_t gemm_wide_max_m = std::int64_t{1} << 30;

/// Rows of x that one launch of gemm_algorithm::simt takes.
inline constexpr std::int64_t gemm_simt_max_m = 3;

/// Rows of x that one launch takes where it lists more than one candidate.
inline constexpr std::int64_t gemm_candidates_max_m = 16;

/// What multiplies. Nothing but an explicit request makes a plan take simt.
enum class gemm_algorithm : std::uint8_t {
  tensor_core,  ///< matrix instructions
  /// fp32 FMAs, for m up to gemm_simt_max_m: runs natively on every GPU. Its sums are more exact,
  /// |error| <= k 2^-24 sum |x w'|, and not the bits of tensor_core. Among calls with simt a row's
  /// bits are the same for every m and place; do not mix the two where a row must keep its bits.
  simt,
};

/// What is to be computed; with the packed layout it decides the plan.
struct gemm_problem {
  /// Most rows of any call with this plan: 0 to gemm_wide_max_m, with simt to gemm_simt_max_m.
  std::int64_t max_m = gemm_max_m;
  gemm_algorithm algorithm = gemm_algorithm::tensor_core;
  /// f16; or bf16 with layout sm80_mma16 and any but f16 weights, for calls of gemm<dtype::bf16>:
  /// programs without such a call contain none of its kernels.
  dtype x_type = dtype::f16;
  dtype y_type = dtype::f16;  ///< f16, bf16 or f32
  activation act = activation::none;
  overflow_policy overflow = overflow_policy::saturate;  ///< of f16 and bf16 results
  /// Calls list so many best columns of each row (candidates.hpp), and y may be null: 0 none, 1 the
  /// argmax with max_m up to gemm_max_m, up to max_candidates with max_m up to
  /// gemm_candidates_max_m.
  int candidates = 0;
  /// Of gemm_dense: workspace bytes for panels of dequantised weights, as dense_panel_bytes counts
  /// them; 0: no panels, the fused kernels take every m.
  std::size_t dense_bytes = 0;
  /// Of gemm_dense: rows from which on calls go through panels, above gemm_max_m; 0: by the device.
  std::int64_t dense_min_m = 0;
  /// How calls on layout sm80_mma16 without candidates run, where a row is for them.
  gemm_tuning tuning;
};

[[nodiscard]] constexpr bool operator==(gemm_problem const& a, gemm_problem const& b) noexcept {
  return a.max_m == b.max_m && a.algorithm == b.algorithm && a.x_type == b.x_type &&
         a.y_type == b.y_type && a.act == b.act && a.overflow == b.overflow &&
         a.candidates == b.candidates && a.dense_bytes == b.dense_bytes &&
         a.dense_min_m == b.dense_min_m && a.tuning == b.tuning;
}

/// How calls of one problem run on one weight's layout and one device. Made by make_gemm_plan; a
/// plain value.
template <class Format>
struct gemm_plan {
  gemm_problem problem;
  packed_layout layout;
  gemm_arch arch = gemm_arch::sm70;  ///< of the kernels
  bool emulated = false;
  bool fused_wide = true;  ///< m above gemm_max_m has kernels of its own; else those of fewer rows
  gemm_tuning tuned[2];  ///< rows of the weight: those of the problem, those of the device's table
  std::int32_t sm_count = 0;             ///< of the device
  std::int32_t shared_bytes_per_sm = 0;  ///< of the device
  std::int64_t dense_min_m = 0;  ///< rows from which on calls go through panels, where it has them
  std::int64_t panel_rows = 0;   ///< weight rows of a panel; 0: the plan has no panels
  std::size_t workspace_bytes = 0;
  /// The first bytes of the workspace, which init_workspace sets to 0.
  std::size_t workspace_zero_bytes = 0;
};

/// Whether calls with m rows go through dequantised panels: gemm_dense runs them, gemm does not.
template <class Format>
[[nodiscard]] constexpr bool uses_panels(gemm_plan<Format> const& plan, std::int64_t m) noexcept {
  return plan.panel_rows != 0 && m >= plan.dense_min_m;
}

namespace detail {

/// Whether calls with more than gemm_max_m rows run the narrow kernels over slices of so many rows:
/// fp32 scales along k have no kernel of their own for many rows, and those of layout sm80_mma16
/// take any number of row blocks at once.
[[nodiscard]] constexpr bool is_sliced(packed_layout const& layout, std::int64_t m) noexcept {
  return layout.id != layout_id::sm80_mma16 && layout.scale == scale_mode::block && m > gemm_max_m;
}

/// The method of a call on layout sm70_quadpair that does not go through panels.
template <class Format>
[[nodiscard]] constexpr gemm_method quadpair_method(gemm_plan<Format> const& plan,
                                                    std::int64_t m) noexcept {
  if (plan.problem.algorithm == gemm_algorithm::simt) return gemm_method::simt;
  bool const sliced = is_sliced(plan.layout, m);
  if (m > gemm_max_m && !sliced) return gemm_method::wide;
  return narrow_method(cut_rows<Format>(plan.layout, sliced ? gemm_max_m : m).row_tiles);
}

}  // namespace detail

/// How a call with m rows, 1 <= m <= max_m, runs on layout sm80_mma16 where it does not go through
/// panels: by the problem's tuning, by the library's table of the device, or by the rules.
template <class Format>
[[nodiscard]] constexpr gemm_choice choice_of(gemm_plan<Format> const& plan,
                                              std::int64_t m) noexcept {
  for (gemm_tuning const& table : plan.tuned) {
    gemm_tuning_row const* const row = detail::find_row(table, plan.layout, m);
    if (row != nullptr) return row->choice;
  }
  return detail::rule_choice<Format>(plan.layout, plan.fused_wide, plan.problem.candidates != 0,
                                     plan.sm_count, m);
}

/// The route of a call with m rows, 1 <= m <= max_m. Layout sm80_mma16: that of choice_of. Layout
/// sm70_quadpair: m up to 8 runs one row tile of 8, up to 16 two, up to gemm_max_m as many as
/// detail::cut_rows says for each row block; weights with block scales run more rows as calls of
/// gemm_max_m.
/// Panels need no matrix instruction of ours, so they are emulated nowhere.
template <class Format>
[[nodiscard]] constexpr gemm_route route(gemm_plan<Format> const& plan, std::int64_t m) noexcept {
  gemm_operand const operand = operand_of(plan.layout.code_type);
  bool const bf16_x = plan.problem.x_type == dtype::bf16;
  if (uses_panels(plan, m)) return {plan.arch, operand, gemm_method::dense, false, bf16_x};
  gemm_method const method = plan.layout.id == layout_id::sm80_mma16
                                 ? choice_of(plan, m).method
                                 : detail::quadpair_method(plan, m);
  return {plan.arch, operand, method, plan.emulated, bf16_x};
}

namespace detail {

/// Whether calls with m rows of a plan, m >= 1, have kernels for x in fragment order.
template <class Format>
[[nodiscard]] constexpr status check_fragments(gemm_plan<Format> const& plan,
                                               std::int64_t m) noexcept {
  packed_layout const& layout = plan.layout;
  if (layout.id != layout_id::sm80_mma16 || layout.format != format_id::fp8 ||
      layout.scale == scale_mode::block || plan.problem.x_type != dtype::f16) {
    return {status_code::unsupported_format, 0,
            "gemm: x in fragment order needs layout sm80_mma16, fp8 weights with tensor or channel "
            "scales, and x in f16"};
  }
  if (plan.problem.candidates != 0) {
    return {status_code::invalid_value, 0,
            "gemm: x in fragment order needs a plan without candidates"};
  }
  if (layout.k % x_fragments_k_unit != 0) {
    return {status_code::invalid_shape, 0,
            "gemm: x in fragment order needs k to be a multiple of 128"};
  }
  if (m > x_fragments_max_m) {
    return {status_code::invalid_shape, 0, "gemm: x in fragment order needs m to be at most 16"};
  }
  gemm_method const method = choice_of(plan, m).method;
  if (method != gemm_method::mt1 && method != gemm_method::mt2) {
    return {status_code::invalid_value, 0,
            "gemm: x in fragment order needs mt1 or mt2, and the plan's table chooses another "
            "method for m"};
  }
  return {};
}

}  // namespace detail

/// Whether calls with m rows, 1 <= m <= max_m, may have x in fragment order: gemm_args::order.
template <class Format>
[[nodiscard]] constexpr bool takes_fragments(gemm_plan<Format> const& plan,
                                             std::int64_t m) noexcept {
  return detail::check_fragments(plan, m).ok();
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
      nullptr;  ///< x_type [m, k], row-major, 2-byte aligned; 16 where ldx % 8 == 0 is best
  std::int64_t ldx = 0;  ///< >= k
  /// Of x. With fragments x is as x_fragments.hpp says and 16-byte aligned, which calls can have
  /// for which takes_fragments is true; ldx is not read. y has the bits of the same x in rows.
  x_order order = x_order::rows;
  packed_weight weight;         ///< of the plan's layout, 128-byte aligned
  void* y = nullptr;            ///< y_type [m, columns_of_y], row-major; null only with candidates
  std::int64_t ldy = 0;         ///< >= columns_of_y
  float const* bias = nullptr;  ///< [n], or null
  void const* residual = nullptr;    ///< residual_type [m, columns_of_y], or null; may be y itself
  dtype residual_type = dtype::f16;  ///< f16, bf16 or f32
  std::int64_t ld_residual = 0;      ///< >= columns_of_y
  std::int32_t* candidate_ids = nullptr;  ///< [m][candidates]; with candidates
  float* candidate_values = nullptr;      ///< [m][candidates], or null
  std::int32_t first_id = 0;              ///< id of column 0, >= 0: where a shard begins
  /// Columns with this id and beyond are never chosen; ids are below 2^31 - 1 in any case.
  std::int32_t id_limit = (std::numeric_limits<std::int32_t>::max)();
  gemm_census* census = nullptr;  ///< host memory, or null
  /// With the kernels of sm_90: the launch may begin while the stream's kernel before it still
  /// runs, whose results it waits for before it reads anything but the weight. So that kernel must
  /// not write the weight, nor use this call's workspace. Not read by other kernels. With CUDA 13
  /// and newer the launch asks for 64 KB of a multiprocessor's shared memory: one that wants
  /// another split of it and L1 does not overlap with its neighbours (docs/sm90_gemm.md).
  bool overlap_previous = false;
  /// With overlap_previous: the call neither reads nor writes what the kernel before writes, and
  /// writes nothing that one reads, as of two products of one x. It then waits for that kernel at
  /// its end alone. x must be complete when that kernel is past its own wait: it is where that
  /// kernel is qpn::gemm's of the same x, or was launched plainly behind what wrote x.
  bool beside_previous = false;
};

/// The bytes that panels of `rows` weight rows take in the workspace of calls with up to max_m
/// rows: what a caller may offer as gemm_problem::dense_bytes. The largest value where they exceed
/// 64 bits.
/// @param layout  a valid layout
/// @param rows    >= 1; counts as the next multiple of 64, and not beyond the weight's rows
[[nodiscard]] constexpr std::size_t dense_panel_bytes(packed_layout const& layout,
                                                      std::int64_t max_m,
                                                      std::int64_t rows) noexcept {
  std::int64_t const units = ((rows < layout.n ? rows : layout.n) - 1) / detail::panel_unit + 1;
  std::int64_t bytes = 0;
  bool const fits = layout.k < (std::int64_t{1} << 31) && max_m <= gemm_wide_max_m &&
                    detail::checked_multiply(units * detail::panel_unit,
                                             detail::panel_row_bytes(layout, max_m), bytes);
  return fits ? static_cast<std::size_t>(bytes) : (std::numeric_limits<std::size_t>::max)();
}

namespace detail {

/// Whether the kernels may load the rows of x 16 bytes at a time.
[[nodiscard]] inline bool reads_x_by_words(gemm_args const& args) noexcept {
  return (args.ldx % 8 == 0 && is_aligned_to(16, args.x)) || args.order != x_order::rows;
}

/// The rows of a call from `first` on, gemm_max_m at most, as a call of their own.
template <class Format>
[[nodiscard]] gemm_args slice_rows(gemm_plan<Format> const& plan, gemm_args const& args,
                                   std::int64_t first) noexcept {
  auto const row = [first](void const* rows, std::int64_t ld, dtype type) {
    return static_cast<std::byte const*>(rows) + first * ld * (bits(type) / 8);
  };
  gemm_args slice = args;
  slice.m = args.m - first < gemm_max_m ? args.m - first : gemm_max_m;
  slice.x = row(args.x, args.ldx, plan.problem.x_type);
  slice.y = const_cast<std::byte*>(row(args.y, args.ldy, plan.problem.y_type));
  if (args.residual != nullptr) {
    slice.residual = row(args.residual, args.ld_residual, args.residual_type);
  }
  return slice;
}

/// The workspace of a plan's narrow calls: tickets and keys, which are 0 between launches, then the
/// planes and lists. Rows: max_m, rounded up to whole row blocks; fewer rows need no more of them.
struct gemm_workspace {
  std::uint32_t* tickets;           ///< [row blocks][tile groups]
  std::uint32_t* candidate_ticket;  ///< [row blocks]
  std::uint64_t* best_keys;         ///< [rows]
  float* planes;                    ///< [row blocks][ctas][2][rows of a row block][64]
  std::uint64_t* candidate_lists;   ///< [ctas][16][candidates] where there is more than one
  std::size_t zero_bytes;
  std::size_t bytes;
};

/// The most rows of a call that the narrow kernels take, and their workspace is for.
[[nodiscard]] constexpr std::int64_t narrow_max_m(gemm_problem const& problem) noexcept {
  return problem.max_m < gemm_max_m ? problem.max_m : gemm_max_m;
}

/// The zero part takes `zero_bytes` where that is more than it needs.
template <class Format>
[[nodiscard]] gemm_workspace place_workspace(packed_layout const& layout,
                                             gemm_problem const& problem, std::byte* base,
                                             std::size_t zero_bytes) noexcept {
  work_split const split = split_of<Format>(layout);
  row_cut const cut = cut_rows<Format>(layout, narrow_max_m(problem));
  std::int64_t const blocks = cut.blocks;
  std::int64_t const rows = cut.rows();
  workspace_cursor cursor(base);
  gemm_workspace placed{};
  placed.tickets = cursor.take<std::uint32_t>(blocks * split.tile_groups);
  placed.candidate_ticket = cursor.take<std::uint32_t>(blocks);
  placed.best_keys = cursor.take<std::uint64_t>(rows);
  if (zero_bytes > cursor.used()) cursor.skip_to(zero_bytes);
  placed.zero_bytes = cursor.used();
  placed.planes = cursor.take<float>(std::int64_t{split.ctas} * 2 * rows * 64);
  if (problem.candidates > 1) {
    placed.candidate_lists =
        cursor.take<std::uint64_t>(std::int64_t{split.ctas} * rows * problem.candidates);
  }
  placed.bytes = cursor.used();
  return placed;
}

/// CTAs of layout sm80_mma16 for each row block: one for each strip; with candidates, of which each
/// CTA keeps lists, as many as are resident at once with so many registers.
template <class Format>
[[nodiscard]] constexpr std::int64_t mma16_ctas(gemm_plan<Format> const& plan,
                                                int registers) noexcept {
  constexpr std::int64_t most_lists = 2048;  // of merge_lists
  std::int64_t const strips = plan.layout.padded_n / tile_n;
  if (plan.problem.candidates == 0) return strips;
  std::int64_t const resident =
      std::int64_t{sm80::resident_ctas(registers, plan.layout.ctas)} * plan.sm_count;
  std::int64_t const ctas = resident < most_lists ? resident : most_lists;
  return strips < ctas ? strips : ctas;
}

/// The workspace of a plan's narrow calls, in any layout. That of sm80_mma16 has no planes.
template <class Format>
[[nodiscard]] gemm_workspace place_workspace(gemm_plan<Format> const& plan, std::byte* base,
                                             std::size_t zero_bytes) noexcept {
  gemm_problem const& problem = plan.problem;
  if (plan.layout.id != layout_id::sm80_mma16) {
    return place_workspace<Format>(plan.layout, problem, base, zero_bytes);
  }
  row_cut const cut = cut_rows<Format>(plan.layout, narrow_max_m(problem));
  std::int64_t const rows = cut.rows();
  workspace_cursor cursor(base);
  gemm_workspace placed{};
  placed.candidate_ticket = cursor.take<std::uint32_t>(cut.blocks);
  placed.best_keys = cursor.take<std::uint64_t>(rows);
  if (zero_bytes > cursor.used()) cursor.skip_to(zero_bytes);
  placed.zero_bytes = cursor.used();
  if (problem.candidates > 1) {
    placed.candidate_lists = cursor.take<std::uint64_t>(mma16_ctas(plan, sm80::fewest_registers) *
                                                        rows * problem.candidates);
  }
  placed.bytes = cursor.used();
  return placed;
}

/// Rows from which on panels are taken where the caller offers some. On Volta that is an estimate,
/// not a measurement: docs/sm70_gemm_wide.md; on Hopper docs/sm90_gemm_wide.md has it. Where m8n8k4
/// is emulated any GEMM is faster.
template <class Format>
[[nodiscard]] constexpr std::int64_t default_dense_min_m(gemm_plan<Format> const& plan) noexcept {
  bool const by_few = !plan.fused_wide && plan.layout.scale != scale_mode::block;
  return plan.emulated || by_few ? gemm_max_m + 1 : plan.arch == gemm_arch::sm70 ? 2048 : 4096;
}

/// Whether the device and the weight allow all rows of a plan's tables.
template <class Format>
[[nodiscard]] constexpr bool can_be_tuned(gemm_plan<Format> const& plan) noexcept {
  for (gemm_tuning const& table : plan.tuned) {
    for (gemm_tuning_row const& row : table) {
      if (is_of(row, plan.layout) && !is_possible(row, plan.layout, plan.fused_wide)) return false;
    }
  }
  return true;
}

/// Bytes of x as ordered for warpgroups in the narrow calls of a plan; 0 where none runs by them.
template <class Format>
[[nodiscard]] constexpr std::size_t group_bytes(gemm_plan<Format> const& plan) noexcept {
  if (plan.layout.id != layout_id::sm80_mma16) return 0;
  for (std::int64_t m = narrow_max_m(plan.problem); m > 0; --m) {
    if (choice_of(plan, m).method == gemm_method::group) {
      return sm90::group_workspace_bytes(plan.layout, m);
    }
  }
  return 0;
}

/// What a plan with rows beyond the narrow kernels must keep, and its panels.
template <class Format>
[[nodiscard]] status plan_many_rows(gemm_plan<Format>& plan) noexcept {
  gemm_problem const& problem = plan.problem;
  packed_layout const& layout = plan.layout;
  constexpr std::int64_t most_blocks = (std::numeric_limits<std::int32_t>::max)();
  if (problem.dense_min_m != 0 && problem.dense_min_m <= gemm_max_m) {
    return {status_code::invalid_shape, 0,
            "gemm plan: dense_min_m must be above gemm_max_m, or 0 for the device's own"};
  }
  plan.dense_min_m = problem.dense_min_m != 0 ? problem.dense_min_m : default_dense_min_m(plan);
  if (problem.max_m <= gemm_max_m) return {};
  if (problem.candidates != 0) {
    return {status_code::invalid_shape, 0,
            "gemm plan: candidates need max_m to be at most gemm_max_m"};
  }
  if (layout.k > most_blocks) {
    return {status_code::invalid_shape, 0,
            "gemm plan: k must be below 2^31 where max_m is above gemm_max_m"};
  }
  if ((problem.max_m / 64 + 1) * (layout.padded_n / 256 + 1) > most_blocks) {
    return {status_code::invalid_shape, 0,
            "gemm plan: max_m by n are more than 2^31 - 1 blocks of 64 rows by 256 columns"};
  }
  bool const with_panels = problem.dense_bytes != 0 && problem.max_m >= plan.dense_min_m;
  if (with_panels && layout.scale == scale_mode::block) {
    return {status_code::unsupported_format, 0,
            "gemm plan: panels hold no block scales exactly, so dense_bytes must be 0"};
  }
  std::int64_t const fused_m = with_panels ? plan.dense_min_m - 1 : problem.max_m;
  if (plan.fused_wide && plan.arch == gemm_arch::sm90 && fused_m > gemm_max_m) {
    if (sm90::wide_steps(layout) > most_blocks / (sm90::wide_padded_m(fused_m) / 8)) {
      return {status_code::invalid_shape, 0,
              "gemm plan: max_m by k are more than 2^31 - 1 blocks of 8 rows by 64 k"};
    }
    std::size_t const bytes =
        plan.workspace_zero_bytes + sm90::wide_workspace_bytes(layout, fused_m);
    if (bytes > plan.workspace_bytes) plan.workspace_bytes = bytes;
  }
  if (!with_panels) return {};
  plan.panel_rows = choose_panel_rows(layout, problem.max_m, problem.dense_bytes);
  if (plan.panel_rows == 0) {
    return {status_code::workspace_too_small, 0,
            "gemm plan: dense_bytes is less than panels of 64 weight rows take, see "
            "dense_panel_bytes"};
  }
  if (dense_epilogue_blocks(plan.panel_rows / panel_unit, problem.max_m) > most_blocks) {
    return {status_code::invalid_shape, 0,
            "gemm plan: max_m by the rows of a panel are more than 2^31 - 1 blocks"};
  }
  std::size_t const bytes = plan.workspace_zero_bytes +
                            place_panels(layout, problem.max_m, plan.panel_rows, nullptr).bytes;
  if (bytes > plan.workspace_bytes) plan.workspace_bytes = bytes;
  return {};
}

[[nodiscard]] constexpr bool is_y_type(dtype type) noexcept {
  return type == dtype::f16 || type == dtype::bf16 || type == dtype::f32;
}

/// Whether the kernels of a layout multiply rows of x of the problem's type.
[[nodiscard]] constexpr status check_x_type(packed_layout const& layout,
                                            gemm_problem const& problem) noexcept {
  if (problem.x_type == dtype::f16) return {};
  if (problem.x_type != dtype::bf16) {
    return {status_code::unsupported_format, 0, "gemm plan: x must be f16 or bf16"};
  }
  if (layout.id != layout_id::sm80_mma16) {
    return {status_code::unsupported_arch, 0,
            "gemm plan: x in bf16 needs layout sm80_mma16, that of compute capability 8.0 and "
            "newer"};
  }
  if (layout.code_type == dtype::f16) {
    return {status_code::unsupported_format, 0,
            "gemm plan: f16 weights take x in f16: no matrix instruction multiplies f16 by bf16"};
  }
  if (problem.dense_bytes != 0) {
    return {status_code::unsupported_format, 0,
            "gemm plan: panels are f16, so dense_bytes must be 0 where x is bf16"};
  }
  return {};
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
  bool const in_rows = args.order == x_order::rows;
  if (!in_rows) {
    if (status const taken = check_fragments(plan, args.m); !taken.ok()) return taken;
    if (!is_aligned_to(16, args.x)) {
      return {status_code::misaligned, 0, "gemm: x in fragment order must be 16-byte aligned"};
    }
  }
  if ((in_rows && args.ldx < plan.layout.k) || (args.y != nullptr && args.ldy < columns) ||
      (args.residual != nullptr && args.ld_residual < columns)) {
    return {status_code::invalid_shape, 0,
            "gemm: ldx must be at least k, ldy and ld_residual at least the columns of y"};
  }
  if ((in_rows && !rows_fit(args.m, args.ldx)) || !rows_fit(args.m, args.ldy) ||
      !rows_fit(args.m, args.ld_residual)) {
    return {status_code::invalid_shape, 0, "gemm: the size of x, y or residual exceeds 63 bits"};
  }
  if (args.x == nullptr || args.weight.data == nullptr) {
    return {status_code::invalid_value, 0, "gemm: x or the weight is null"};
  }
  if (plan.problem.candidates != 0 ? args.candidate_ids == nullptr : args.y == nullptr) {
    return {status_code::invalid_value, 0,
            "gemm: y is null, or candidate_ids in a plan with candidates"};
  }
  if (args.residual != nullptr && (args.y == nullptr || !is_y_type(args.residual_type))) {
    return {status_code::invalid_value, 0, "gemm: a residual needs y and type f16, bf16 or f32"};
  }
  if (plan.problem.candidates != 0 &&
      (args.first_id < 0 ||
       plan.layout.n > (std::numeric_limits<std::int32_t>::max)() - args.first_id)) {
    return {status_code::invalid_shape, 0,
            "gemm: first_id must be at least 0, and the ids of all columns below 2^31 - 1"};
  }
  if (!is_aligned_to(128, args.weight.data) || !is_element_aligned(args.x, plan.problem.x_type) ||
      !is_element_aligned(args.y, plan.problem.y_type) ||
      !is_element_aligned(args.residual, args.residual_type) || !is_aligned_to(4, args.bias) ||
      !is_aligned_to(4, args.candidate_ids) || !is_aligned_to(4, args.candidate_values)) {
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
/// @return invalid_value: no valid layout for GPUs, or candidates outside 0..64;
///         unsupported_format: another format, an x_type or y_type that is none, bf16 rows of x
///         with f16 weights or panels, or block scales with simt or where the plan would have
///         panels; invalid_shape: max_m outside 0..2^30, with simt 0..3, with more than one
///         candidate 0..16, with candidates above gemm_max_m, k or the number of blocks of y too
///         large for max_m above gemm_max_m, silu_gate with candidates or n not a multiple of 64,
///         a choice of tuning that has no kernel, dense_min_m not above gemm_max_m, or with layout
///         sm80_mma16 n above 2097088 or simt; workspace_too_small: dense_bytes for less than 64
///         rows of a panel; unsupported_arch: compute capability below 70, for layout sm80_mma16
///         below 80; bf16 rows of x with another layout
template <class Format>
[[nodiscard]] status make_gemm_plan(packed_layout const& layout, gemm_problem const& problem,
                                    device_info const& device, gemm_plan<Format>& out) noexcept {
  bool const mma16 = layout.id == layout_id::sm80_mma16;
  if (!is_valid(layout) || (layout.id != layout_id::sm70_quadpair && !mma16)) {
    return {status_code::invalid_value, 0,
            "gemm plan: the layout is no valid sm70_quadpair or sm80_mma16"};
  }
  if (layout.format != Format::id) {
    return {status_code::unsupported_format, 0, "gemm plan: the layout has another format"};
  }
  if (!detail::is_y_type(problem.y_type)) {
    return {status_code::unsupported_format, 0, "gemm plan: y must be f16, bf16 or f32"};
  }
  if (status const taken = detail::check_x_type(layout, problem); !taken.ok()) return taken;
  if (problem.max_m < 0 || problem.max_m > gemm_wide_max_m) {
    return {status_code::invalid_shape, 0, "gemm plan: max_m must be between 0 and 2^30"};
  }
  bool const simt = problem.algorithm == gemm_algorithm::simt;
  if (simt && problem.max_m > gemm_simt_max_m) {
    return {status_code::invalid_shape, 0,
            "gemm plan: the algorithm simt takes at most 3 rows, so max_m must be between 0 and 3"};
  }
  if (simt && layout.scale == scale_mode::block) {
    return {status_code::unsupported_format, 0,
            "gemm plan: the algorithm simt takes no block scales"};
  }
  if (problem.act == activation::silu_gate &&
      (layout.n % (2 * tile_n) != 0 || problem.candidates != 0)) {
    return {status_code::invalid_shape, 0,
            "gemm plan: silu_gate needs n to be a multiple of 64 and no candidates"};
  }
  if (problem.candidates < 0 || problem.candidates > max_candidates) {
    return {status_code::invalid_value, 0, "gemm plan: candidates must be between 0 and 64"};
  }
  if (problem.candidates > 1 && problem.max_m > gemm_candidates_max_m) {
    return {status_code::invalid_shape, 0,
            "gemm plan: more than one candidate is listed for at most 16 rows, so max_m must be "
            "between 0 and 16"};
  }
  if (device.compute_capability < 70) {
    return {status_code::unsupported_arch, 0, "gemm plan: needs compute capability 7.0 or newer"};
  }
  if (mma16 && device.compute_capability < 80) {
    return {status_code::unsupported_arch, 0,
            "gemm plan: layout sm80_mma16 needs compute capability 8.0 or newer"};
  }
  if (mma16 && (simt || layout.padded_n / tile_n > 65535)) {
    return {status_code::invalid_shape, 0,
            "gemm plan: layout sm80_mma16 takes n up to 2097088 and not the algorithm simt"};
  }
  gemm_plan<Format> plan;
  plan.problem = problem;
  plan.layout = layout;
  plan.arch = !mma16                            ? gemm_arch::sm70
              : device.compute_capability >= 90 ? gemm_arch::sm90
                                                : gemm_arch::sm80;
  plan.emulated = !simt && !mma16 && device.compute_capability >= 80;
  plan.fused_wide = !mma16 || detail::sm90::has_wide(layout, device.compute_capability);
  plan.sm_count = device.sm_count;
  plan.shared_bytes_per_sm = device.shared_bytes_per_sm;
  if (problem.candidates == 0) {
    plan.tuned[0] = detail::rows_of(problem.tuning, layout);
    plan.tuned[1] = detail::rows_of(detail::table_of(device), layout);
  }
  if (!detail::can_be_tuned(plan)) {
    return {status_code::invalid_shape, 0,
            "gemm plan: a row of tuning has a choice that no kernel takes for its rows of x, the "
            "weight and the device"};
  }
  detail::gemm_workspace const placed = detail::place_workspace(plan, nullptr, 0);
  plan.workspace_bytes = placed.bytes + detail::group_bytes(plan);
  plan.workspace_zero_bytes = placed.zero_bytes;
  if (status const planned = detail::plan_many_rows(plan); !planned.ok()) return planned;
  out = plan;
  return {};
}

}  // namespace qpn
