// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "qpn/detail/slice_split.hpp"
#include "qpn/format.hpp"

namespace qpn::detail::sm80 {

/// An operand of a kernel that leaves room for more CTAs on a multiprocessor (gemm_choice::tight):
/// with two row tiles of nvfp4 three of 8 slices in place of two.
template <class Operand>
struct tight_operand : Operand {};

template <class Operand>
inline constexpr bool is_tight = false;
template <class Operand>
inline constexpr bool is_tight<tight_operand<Operand>> = true;

/// What a kernel takes of a multiprocessor: so little that many warps are resident, whose loads are
/// on their way together, and so much that nothing spills in a loop. Sums and their order do not
/// depend on it.
template <class Operand, int RowTiles>
struct gemm_policy {
  static constexpr bool is_nvfp4 = std::is_same_v<typename Operand::format, nvfp4>;
  static constexpr int registers = is_tight<Operand>       ? 80
                                   : RowTiles == 4         ? 128
                                   : RowTiles == 2         ? (is_nvfp4 ? 96 : 128)
                                   : Operand::block_scales ? 112
                                   : is_nvfp4              ? 80
                                                           : 96;
  /// Records that a warp loads at once: of a batch, which has 2 or 4, as many as have room.
  static constexpr int records = is_tight<Operand> ? 1
                                 : RowTiles == 4 || (RowTiles == 2 && Operand::block_scales)
                                     ? 2
                                     : Operand::batch;

  static_assert(registers * 32 * max_slices <= 65536, "a CTA of the most slices must fit");
};

}  // namespace qpn::detail::sm80
