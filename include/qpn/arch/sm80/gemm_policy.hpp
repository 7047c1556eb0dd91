// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "qpn/config.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/slice_split.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/x_fragments.hpp"

namespace qpn::detail::sm80 {

/// Counts of registers of a thread, ascending.
struct register_choices {
  int count = 0;
  int values[3] = {};
  int for_one_wave = 0;  ///< so many of the first are for launches whose CTAs are all resident

  [[nodiscard]] constexpr bool has(int registers) const noexcept {
    for (int i = 0; i < count; ++i) {
      if (values[i] == registers) return true;
    }
    return false;
  }
};

/// Those of which a launch without candidates takes one, for x in f16; none where nothing is free.
[[nodiscard]] constexpr register_choices free_registers(format_id format, int row_tiles) noexcept {
  if (format == format_id::nvfp4 && row_tiles == 1) return {3, {56, 64, 128}, 1};
  if (format == format_id::nvfp4 && row_tiles == 2) return {2, {96, 128}};
  return {};
}

/// Strips for each multiprocessor up to which launches have CTAs of half a strip, for x in f16; 0:
/// there is no such kernel.
[[nodiscard]] constexpr int most_halved_strips(format_id format, int row_tiles) noexcept {
  bool const is_tuned = format == format_id::nvfp4 || format == format_id::fp8;
  return is_tuned && row_tiles <= 2 ? 2 : 0;
}

/// Of kernels with candidates.
inline constexpr int fewest_registers = 80;

/// What a kernel takes of a multiprocessor. Sums and their order do not depend on it, and nothing
/// spills in a loop.
template <class Operand, int RowTiles>
struct gemm_policy {
  static constexpr bool is_nvfp4 = std::is_same_v<typename Operand::format, nvfp4>;
  static constexpr bool is_fp8 = std::is_same_v<typename Operand::format, fp8>;
  static constexpr bool f16_x = Operand::x_type == dtype::f16;
  static constexpr bool is_tuned = (is_nvfp4 || is_fp8) && f16_x && !Operand::block_scales;

  /// Of kernels with candidates, whose CTAs are as many as are resident, and of those that have no
  /// choice.
  static constexpr int registers = RowTiles == 4           ? 128
                                   : is_nvfp4              ? (RowTiles == 1 ? 80 : 96)
                                   : RowTiles == 2         ? 128
                                   : Operand::block_scales ? 112
                                   : is_fp8 && f16_x       ? 128
                                                           : 96;
  /// Of kernels without: gemm_choice::registers, or choose_registers.
  static constexpr register_choices free = free_registers(Operand::format::id, RowTiles);
  static constexpr register_choices choices =
      free.count == 0 || !is_tuned ? register_choices{1, {registers}} : free;

  /// Whether there are kernels without candidates for x in fragment order. nvfp4 gains nothing.
  static constexpr bool has_fragments = is_tuned && is_fp8 && RowTiles <= 2;

  /// Batches that a warp has registers for: two where halves have 80 and whole strips 128. Two row
  /// tiles are slower with two of them, but for halves of 128 that read x in fragment order.
  [[nodiscard]] QPN_HD static constexpr int batches(int of_registers, bool candidates,
                                                    int halves = 2,
                                                    x_order order = x_order::rows) noexcept {
    bool const two = RowTiles == 1 ? of_registers >= (halves == 1 ? 80 : 128)
                                   : RowTiles == 2 && halves == 1 && order == x_order::fragments &&
                                         of_registers >= 128;
    return is_tuned && !candidates && two ? 2 : 1;
  }

  /// Whether launches beside the one before have half a strip for a CTA, and few registers: 8 warps
  /// find room where that one leaves the place of 4 with 128.
  static constexpr bool halves_beside =
      Operand::format::id == format_id::dense16 && f16_x && RowTiles <= 2;

  /// Whether there are kernels whose CTAs have half a strip each, and their registers: with 80 a
  /// multiprocessor has three CTAs of 8 warps.
  static constexpr bool has_halves =
      halves_beside || (is_tuned && most_halved_strips(Operand::format::id, RowTiles) != 0);
  static constexpr register_choices half_choices = halves_beside   ? register_choices{1, {64}}
                                                   : RowTiles == 1 ? register_choices{1, {80}}
                                                                   : register_choices{2, {80, 128}};
  [[nodiscard]] static constexpr register_choices choices_of(int halves) noexcept {
    return halves == 1 ? half_choices : choices;
  }

  /// Records that a warp loads at once: of a batch, which has 2 or 4, as many as have room.
  static constexpr int records =
      RowTiles == 4 || (RowTiles == 2 && Operand::block_scales) ? 2 : Operand::batch;

  static_assert(registers >= fewest_registers, "a workspace has the lists of as many CTAs");
  static_assert(registers * warp_lanes * max_slices <= 65536, "a CTA of the most slices must fit");
};

/// CTAs of so many warps that a multiprocessor of compute capability 8.0 or 9.0 holds at once.
[[nodiscard]] constexpr int resident_ctas(int registers, int warps) noexcept {
  int const by_registers = 65536 / (registers * warp_lanes * warps);
  int const by_warps = 64 / warps;
  return by_registers < by_warps ? by_registers : by_warps;
}

/// Bytes for each multiprocessor that a launch asks for before it waits for the one before: what
/// that one still reads waits behind more. Measured: docs/sm90_gemm.md.
inline constexpr std::int64_t most_early_bytes = 96 * 1024;

/// Whether the warps of an overlapping launch start with two batches where they have registers for
/// them.
[[nodiscard]] constexpr bool starts_with_two(std::int64_t warps, std::int64_t batch_bytes,
                                             std::int32_t sm_count) noexcept {
  return 2 * warps * batch_bytes <= most_early_bytes * sm_count;
}

/// Whether a launch takes half a strip for a CTA, where nothing needs both halves: of few strips
/// some multiprocessors have one more than others, and half of one costs them less. Several row
/// blocks are slower with halves.
[[nodiscard]] constexpr bool prefers_halves(format_id format, int row_tiles, std::int64_t strips,
                                            std::int64_t row_blocks,
                                            std::int32_t sm_count) noexcept {
  return row_blocks == 1 &&
         strips <= std::int64_t{most_halved_strips(format, row_tiles)} * sm_count;
}

/// Waves from which on warps count for more than what the last wave leaves empty.
inline constexpr int many_waves = 4;

/// Which of the choices a launch of so many CTAs takes. Registers let a warp load its next weights
/// earlier, warps hide each other's waits; but what costs most is a last wave with few CTAs. So:
/// the most registers with which all CTAs are resident at once, else those whose waves have the
/// fewest empty places, and of these, or of many waves, the fewest. Measured: docs/sm90_gemm.md.
[[nodiscard]] constexpr int choose_registers(register_choices const& choices, std::int64_t ctas,
                                             int warps, std::int32_t sm_count) noexcept {
  int best = 0;
  std::int64_t best_places = 0;
  for (int i = 0; i < choices.count; ++i) {
    int const registers = choices.values[i];
    std::int64_t const wave = std::int64_t{resident_ctas(registers, warps)} * sm_count;
    if (wave == 0) continue;  // a CTA does not fit
    bool const is_one = ctas <= wave;
    if (!is_one && i < choices.for_one_wave) continue;
    if (best == 0 && ctas > many_waves * wave) return registers;
    std::int64_t const places = is_one ? 0 : (ctas + wave - 1) / wave * wave;
    if (best == 0 || places < best_places || is_one) {
      best = registers;
      best_places = places;
    }
  }
  return best;
}

}  // namespace qpn::detail::sm80
