// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm80/gemm_sums.hpp"
#include "qpn/arch/sm90/gemm_group_finish.hpp"
#include "qpn/arch/sm90/gemm_group_shape.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"

// The GEMM of layout sm80_mma16 by warpgroups, a lane program: y[m, n] = x[m, k] w[n, k]^T for up
// to `Rows` rows of x in one pass over the weight. The sums are those of arch/sm80/gemm_program.hpp
// to the bit: wgmma adds the same 16 products to a sum as m16n8k16 does, slices have the same
// batches, and their sums are added in the same order. Beyond the operations of
// detail/lane_types.hpp and gemm_wide_program.hpp its lane has (arch/sm90/group_lane.cuh):
//
//   shared_load_words(offset), shared_load_pair(offset)        16 and 8 bytes
//   copy_if(condition, offset, p)          16 or 4 bytes to shared memory, or as many zeros
//   commit_copies(), wait_copies<N>()      until all but the thread's last N commits are there
//   barrier_expect_if, copy_bulk_if        if a condition holds

namespace qpn::detail::sm90 {

/// A lane's part of a slice of its warp's strip: a ring of the slice's records in shared memory.
/// A lane copies what it reads itself, so that nobody else has to wait.
template <class Operand>
struct group_weights {
  using record = typename Operand::record;
  /// What is decoded at once: one fragment of one half of the strip.
  static constexpr int groups = 2 * Operand::fragments;  ///< of a record

  std::byte const* from;  ///< of the record that is copied next, the lane's part
  int left;               ///< records of the slice that have not been copied
  int ring;               ///< offset of the lane's part
  int id;
  int at = 0;            ///< of the record that is read, in the ring
  Operand part[2] = {};  ///< of even and odd groups, only those words

  /// Fills the ring.
  template <class Lane>
  QPN_HD void start(Lane& lane) noexcept {
    QPN_UNROLL
    for (int i = 0; i < group_ring_records; ++i) copy(lane, i * Operand::record_bytes);
  }

  /// Loads a group of the record.
  template <class Lane>
  QPN_HD void load(Lane& lane, int group) noexcept {
    Operand& to = part[group % 2];
    int const half = group % 2;
    int const fragment = group / 2;
    constexpr int words = 4 / Operand::fragments;
    if (group == 0) lane.template wait_copies<group_ring_records - 2>();
    int const source = ring + at + half * record::half_bytes;
    if constexpr (words == 4) {
      to.half[half] = lane.shared_load_words(source);
    } else {
      word2 const pair = lane.shared_load_pair(source + 4 * words * fragment);
      to.half[half].w[words * fragment] = pair.w[0];
      to.half[half].w[words * fragment + 1] = pair.w[1];
    }
    if constexpr (Operand::format::group_k != 0) {
      if (group < 2) {
        to.scale_bytes =
            lane.template shared_load<std::uint32_t>(ring + at + record::scales_offset - 12 * id);
      }
    }
  }

  /// Operand A of a group that was loaded.
  template <class Lane>
  QPN_HD void decode(Lane& lane, int group, std::uint32_t (&a)[Operand::steps][4]) noexcept {
    part[group % 2].fragment(lane, group / 2, group % 2, a);
  }

  /// Goes on to the next record. The one before has been decoded: its place may be filled.
  QPN_HD void advance() noexcept {
    at = at == (group_ring_records - 1) * Operand::record_bytes ? 0 : at + Operand::record_bytes;
  }
  template <class Lane>
  QPN_HD void refill(Lane& lane) noexcept {
    copy(lane,
         at == 0 ? (group_ring_records - 1) * Operand::record_bytes : at - Operand::record_bytes);
  }

 private:
  /// Copies the next record: zeros where the slice has no more.
  template <class Lane>
  QPN_HD void copy(Lane& lane, int to) noexcept {
    QPN_UNROLL
    for (int h = 0; h < 2; ++h) {
      lane.copy_if(left > 0, ring + to + h * record::half_bytes,
                   reinterpret_cast<word4 const*>(from + h * record::half_bytes));
    }
    if constexpr (Operand::format::group_k != 0) {
      int const scales = record::scales_offset - 12 * id;
      lane.copy_if(left > 0, ring + to + scales,
                   reinterpret_cast<std::uint32_t const*>(from + scales));
    }
    lane.commit_copies();
    from += Operand::record_bytes;
    --left;
  }
};

/// Fills stages with x. All threads of the CTA run it without a branch, one of them copies.
template <class Shared>
struct group_rows {
  std::byte const* from;    ///< of the batch that is copied next
  std::int64_t step_bytes;  ///< of a step of 64 k, all rows of x
  int batches_left;

  /// Copies the next batch, if there is one, to a stage that is free.
  template <class Lane>
  QPN_HD void copy(Lane& lane, int stage) noexcept {
    bool const copies = batches_left > 0 && lane.thread() == 0;
    int const bytes = static_cast<int>(step_bytes);
    lane.barrier_expect_if(copies, Shared::full(stage), Shared::steps * bytes);
    QPN_UNROLL
    for (int step = 0; step < Shared::steps; ++step) {
      lane.copy_bulk_if(copies, stage * Shared::stage_bytes + step * Shared::step_bytes,
                        from + step * step_bytes, bytes, Shared::full(stage));
    }
    from += Shared::steps * step_bytes;
    --batches_left;
  }
};

/// acc = the products of the batches of a slice, at least one.
///
/// A group of weights is decoded while the tensor cores work on the one before, into two buffers in
/// turns. Behind the last batch one more record is loaded: a branch would end the compiler's view
/// of the products under way.
template <class Operand, int Rows, int Groups, class Lane>
QPN_HD void multiply_batches(Lane& lane, group_weights<Operand>& weights,
                             group_rows<group_shared<Operand, Rows, Groups>>& rows, int batches,
                             float (&acc)[2][Rows / 2]) noexcept {
  using shared = group_shared<Operand, Rows, Groups>;
  constexpr int of_record = group_weights<Operand>::groups;
  constexpr int groups = Operand::batch * of_record;
  std::uint32_t a[2][Operand::steps][4];
  bool const first_lane = lane.thread() % warp_lanes == 0;
  wide_cursor<group_stages> at;
  wide_cursor<group_stages> before;  // the stage of the batch before
  before.stage = group_stages - 1;
  before.parity = 1;
  weights.load(lane, 0);
  QPN_NO_UNROLL
  for (int batch = 0; batch < batches; ++batch) {
    weights.load(lane, 1);
    weights.decode(lane, 0, a[0]);
    lane.barrier_wait(shared::full(at.stage), at.parity);
    auto const first_rows = lane.rows_at(at.stage * shared::stage_bytes);
    auto const more_rows = lane.rows_at(at.stage * shared::stage_bytes + shared::step_bytes);
    QPN_UNROLL
    for (int group = 0; group < groups; ++group) {
      lane.begin_products(a[group % 2]);
      QPN_UNROLL
      for (int s = 0; s < Operand::steps; ++s) {
        int const instruction = group / 2 * Operand::steps + s;
        lane.template multiply_rows<Operand::x_type>(
            acc[group % 2], a[group % 2][s], instruction < 4 ? first_rows : more_rows,
            instruction % 4, instruction != 0 || batch != 0);
      }
      lane.end_products();
      int const coming = group + 2;
      if (coming % of_record == 0) weights.advance();
      if (coming <= groups) weights.load(lane, coming % of_record);
      lane.template wait_products<1>();  // those that read the buffer of the next decode are done
      if (group == 1) {                  // as are all of the batch before
        lane.barrier_arrive_if(batch != 0 && first_lane, shared::empty(before.stage));
      }
      if (group + 1 < groups) weights.decode(lane, (group + 1) % of_record, a[(group + 1) % 2]);
      if (coming % of_record == 0) weights.refill(lane);
      if (group == 4) {
        // Before the first batch that stage has never been filled: the wait is over at once.
        lane.barrier_wait(shared::empty(before.stage), before.parity);
        rows.copy(lane, before.stage);
      }
    }
    before = at;
    at.advance();
  }
  lane.template wait_products<0>();
  lane.template wait_copies<0>();  // the sums will be where the ring is
}

/// The kernel: for each 4 * Groups strips a cluster of as many CTAs as there are slices,
/// group_shared::threads threads and group_shared::bytes of shared memory each. No candidates.
template <class Operand, int Rows, int Groups, class Lane>
QPN_HD void gemm_group_program(Lane& lane, group_params const& params) noexcept {
  using shared = group_shared<Operand, Rows, Groups>;
  sm80::gemm_params const& p = params.gemm;
  int const slice = lane.cluster_rank();
  int const first_strip = lane.block() / p.split.slices * shared::strips;
  int const warp = lane.thread() / warp_lanes;
  int const id = lane.thread() % warp_lanes;
  int const batch = p.split.first(slice);
  int const batches = p.split.first(slice + 1) - batch;
  int const record = batch * Operand::batch;
  int const records =
      p.steps - record < batches * Operand::batch ? p.steps - record : batches * Operand::batch;
  // Where the weight ends a warp repeats the last strip: all four of a group multiply together.
  int const strip = first_strip + warp < p.strips ? first_strip + warp : p.strips - 1;
  group_weights<Operand> weights{
      p.records + (std::int64_t{strip} * p.steps + record) * Operand::record_bytes + 16 * id,
      records, shared::rings + warp * shared::ring_bytes + 16 * id, id};
  weights.start(lane);
  if (lane.thread() == 0) {
    for (int stage = 0; stage < group_stages; ++stage) {
      lane.barrier_init(shared::full(stage), 1);
      lane.barrier_init(shared::empty(stage), shared::strips);
    }
    lane.publish_barriers();
  }
  lane.sync_block();  // the barriers are there
  std::int64_t const step_bytes = std::int64_t{params.padded_m} * wide_x_row_bytes;
  group_rows<shared> rows{params.ordered_x + std::int64_t{batch} * shared::steps * step_bytes,
                          step_bytes, batches};
  for (int stage = 0; stage < group_stages - 1; ++stage) rows.copy(lane, stage);
  float acc[2][Rows / 2];
  multiply_batches<Operand, Rows, Groups>(lane, weights, rows, batches, acc);
  finish_group<shared>(lane, params, first_strip, slice, acc);
}

}  // namespace qpn::detail::sm90
