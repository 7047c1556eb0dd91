// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm70/gemm_shape.hpp"
#include "qpn/config.hpp"

// The sums of the shares of a part in one warp's registers.

namespace qpn::detail::sm70 {

/// What a warp has of a row block and a tile group.
template <class Operand, int RowTiles>
using warp_sums = float[cta_shape<Operand, RowTiles>::warp_row_tiles][tiles_per_group][8];

/// Adds one share after the other: a warp calls it behind each step of a part.
template <class Operand, int RowTiles>
struct share_sums {
  using shape = cta_shape<Operand, RowTiles>;

  warp_sums<Operand, RowTiles>& acc;    ///< of the share that the steps are of
  warp_sums<Operand, RowTiles>& total;  ///< of those before
  int count;                            ///< steps of the part
  int done = 0;
  int share = -1;
  int border = 0;  ///< steps behind which the share ends

  QPN_HD void next_share() noexcept {
    while (share + 1 < shares_per_part && border <= done) {  // some have no steps
      ++share;
      border = count * (share + 1) / shares_per_part;
    }
  }
  QPN_HD void step() noexcept {
    if (++done < border) return;
    QPN_UNROLL
    for (int i = 0; i < shape::warp_row_tiles; ++i) {
      QPN_UNROLL
      for (int tile = 0; tile < tiles_per_group; ++tile) {
        QPN_UNROLL
        for (int j = 0; j < 8; ++j) {
          total[i][tile][j] += acc[i][tile][j];
          acc[i][tile][j] = 0;
        }
      }
    }
    next_share();
  }
};

}  // namespace qpn::detail::sm70
