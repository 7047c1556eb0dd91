// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm90/gemm_group_shape.hpp"
#include "qpn/arch/sm90/gemm_wide_finish.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"

// From the accumulators of the slices to y: a warp finishes its strip, for those blocks of 8 rows
// of x that are its CTA's.

namespace qpn::detail::sm90 {

template <class Shared, bool Halves, bool Gated, class Lane>
QPN_HD void finish_group_blocks(Lane& lane, group_params const& params, int warp, int id, int slice,
                                wide_finisher const& finisher) noexcept {
  sm80::gemm_params const& p = params.gemm;
  QPN_NO_UNROLL
  for (int first = 8 * slice; first < p.m; first += 8 * p.split.slices) {
    auto const add = [&](int from, bool is_first, float(&sum)[2][4]) {
      QPN_UNROLL
      for (int h = 0; h < 2; ++h) {
        float4_quad const more = lane.cluster_load(Shared::sums_at(warp, first / 8, h, id), from);
        QPN_UNROLL
        for (int i = 0; i < 4; ++i) sum[h][i] = is_first ? more.v[i] : sum[h][i] + more.v[i];
      }
    };
    float sum[2][4];
    add(0, true, sum);
    QPN_UNROLL_BY_4
    for (int s = 1; s < p.split.slices; ++s) add(s, false, sum);
    lane.sync_warp();  // the block before is stored
    finisher.template put<Halves, Gated>(lane, p.epilogue, 0, sum);
    lane.sync_warp();  // all of the block is there
    finisher.template store<Halves, Gated, 8>(lane, p.epilogue, params.output, first,
                                              p.m - first < 8 ? p.m - first : 8);
  }
}

/// Adds the sums of the slices in their order and finishes them. Shared is a group_shared.
template <class Shared, int Registers, class Lane>
QPN_HD void finish_group(Lane& lane, group_params const& params, int first_strip, int slice,
                         float const (&acc)[2][Registers]) noexcept {
  epilogue_params const& e = params.gemm.epilogue;
  int const thread = lane.keep(lane.thread());  // or all that follows is kept through the loop
  int const id = thread % warp_lanes;
  int const warp = thread / warp_lanes;
  lane.sync_block();  // stages and rings are not needed any more
  QPN_UNROLL
  for (int j = 0; j < Registers / 4; ++j) {
    QPN_UNROLL
    for (int h = 0; h < 2; ++h) {
      lane.shared_store(
          Shared::sums_at(warp, j, h, id),
          float4_quad{{acc[h][4 * j], acc[h][4 * j + 1], acc[h][4 * j + 2], acc[h][4 * j + 3]}});
    }
  }
  wide_finisher const finisher(lane, e, first_strip + warp, id,
                               Shared::turned + warp * Shared::turned_bytes);
  lane.cluster_sync();  // the sums of all slices are there
  bool const gated = e.act == activation::silu_gate;
  if (params.output == wide_output::halves) {
    if (gated) {
      finish_group_blocks<Shared, true, true>(lane, params, warp, id, slice, finisher);
    } else {
      finish_group_blocks<Shared, true, false>(lane, params, warp, id, slice, finisher);
    }
  } else if (gated) {
    finish_group_blocks<Shared, false, true>(lane, params, warp, id, slice, finisher);
  } else {
    finish_group_blocks<Shared, false, false>(lane, params, warp, id, slice, finisher);
  }
  lane.cluster_sync();  // other CTAs have read this one's sums
}

}  // namespace qpn::detail::sm90
