// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/detail/tile_map.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"

namespace qpn::detail {

/// How a call of the narrow kernels cuts its rows: `blocks` row blocks of `row_tiles` * 8 rows,
/// each of which reads the weight for itself. The bits of a row are the same for every cut.
struct row_cut {
  int row_tiles = 1;
  std::int64_t blocks = 1;

  [[nodiscard]] constexpr std::int64_t rows() const noexcept { return blocks * 8 * row_tiles; }
};

/// That of m rows, m up to gemm_max_m, or any on layout sm80_mma16, where a row block has up to
/// four row tiles. On sm70_quadpair more than two need runs in pairs, which share what they stage
/// of x (arch/sm70/gemm_program.hpp). In nvfp4, and in fp8 with scales of tensors or rows, a block
/// then has all rows: no weight is read again.
template <class Format>
[[nodiscard]] constexpr row_cut cut_rows(packed_layout const& layout, std::int64_t m) noexcept {
  bool const mma16 = layout.id == layout_id::sm80_mma16;
  bool const pairs = mma16 || split_of<Format>(layout).halves_alike();
  bool const many = !mma16 && Format::id != format_id::dense16 && layout.scale != scale_mode::block;
  int const row_tiles = m <= 8              ? 1
                        : m <= 16 || !pairs ? 2
                        : m <= 32 || !many  ? 4
                        : m <= 64           ? 8
                                            : 12;
  return {row_tiles, m < 1 ? 1 : (m - 1) / (8 * row_tiles) + 1};
}

}  // namespace qpn::detail
