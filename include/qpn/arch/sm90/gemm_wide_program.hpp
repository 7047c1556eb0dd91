// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm80/weight_operand.hpp"
#include "qpn/arch/sm90/gemm_wide_finish.hpp"
#include "qpn/arch/sm90/gemm_wide_shape.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/mma16_map.hpp"

// The body of the GEMM for many rows on Hopper, a lane program: y[m, n] = x[m, k] w[n, k]^T. Beyond
// those of detail/lane_types.hpp its lane has (arch/sm90/wide_lane.cuh):
//
//   blocks(), cluster_size(), cluster_rank(), cluster_sync(), cluster_load(offset, rank)
//   barrier_init, barrier_expect, barrier_wait, barrier_arrive_if    mbarriers of shared memory
//   copy_bulk(offset, p, bytes, barrier)     global to shared memory, counted by the barrier
//   copy_words(offset, p), copies_arrive(barrier)    16 bytes; arrives when the thread's are there
//   fence_bulk_copies()      orders this thread's shared memory accesses before later bulk copies
//   begin_products(a), end_products(), wait_products<N>(), rows_at(offset), multiply_rows(...)
//   sync_consumers(), take_registers<N>(), release_registers<N>(), hold(words)
//   shared_store_transposed(offset, row_bytes, pairs), convert_bf16(low, high)

namespace qpn::detail::sm90 {

/// Fills the stages: a warpgroup, `id` its thread. x comes by one bulk copy for each stage; records
/// by 16-byte copies, since a bulk copy for each strip takes longer than the products do.
template <class Operand, int Rows>
struct wide_producer {
  using shared = wide_shared<Operand, Rows>;

  wide_cursor<shared::stages> weights_at;
  wide_cursor<shared::stages> x_at;
  int id;
  bool x_is_there = false;

  /// A stage holds the records of a strip side by side, as the weight does.
  template <class Lane>
  QPN_HD void fill_weights(Lane& lane, gemm_wide_params const& p, wide_place const& place, int step,
                           int x_bytes) noexcept {
    int const stage = weights_at.stage;
    int const records_left = p.record_steps - step * shared::records;
    int const bytes =
        (records_left < shared::records ? records_left : shared::records) * Operand::record_bytes;
    int const strips_left = p.strips - place.strip;
    int const strips = strips_left < wide_strips ? strips_left : wide_strips;
    std::int64_t const strip_stride = std::int64_t{p.record_steps} * Operand::record_bytes;
    std::byte const* from =
        p.records + place.strip * strip_stride + std::int64_t{step} * shared::strip_bytes + 16 * id;
    int to = stage * shared::stage_bytes + shared::x_bytes + 16 * id;
    lane.barrier_wait(shared::empty(stage), weights_at.parity ^ 1);
    if (id == 0) lane.barrier_expect(shared::full(stage), x_bytes);
    QPN_UNROLL_BY_4
    for (int strip = 0; strip < strips; ++strip) {
      QPN_UNROLL
      for (int at = 0; at < shared::strip_bytes; at += 16 * wide_group_threads) {
        if (16 * id + at < bytes) {
          lane.copy_words(to + at, reinterpret_cast<word4 const*>(from + at));
        }
      }
      from += strip_stride;
      to += shared::strip_bytes;
    }
    lane.copies_arrive(shared::full(stage));
    weights_at.advance();
  }

  template <class Lane>
  QPN_HD void fill_x(Lane& lane, gemm_wide_params const& p, wide_place const& place, int step,
                     int x_bytes) noexcept {
    if (id == 0) {
      std::int64_t const row = std::int64_t{step} * p.padded_m + place.first_row;
      lane.copy_bulk(x_at.stage * shared::stage_bytes, p.ordered_x + row * wide_x_row_bytes,
                     x_bytes, shared::full(x_at.stage));
    }
    x_at.advance();
  }

  template <class Lane>
  QPN_HD void fill_tile(Lane& lane, gemm_wide_params const& p, wide_place const& place) noexcept {
    int const rows_left = p.padded_m - place.first_row;
    int const x_bytes = (rows_left < Rows ? rows_left : Rows) * wide_x_row_bytes;
    int step = place.first_step;
    if (!x_is_there) {
      // The weights of a whole ring travel while the kernel before orders x.
      int const steps = place.end_step - step;
      int const ahead = steps < shared::stages ? steps : shared::stages;
      QPN_NO_UNROLL
      for (int i = 0; i < ahead; ++i) fill_weights(lane, p, place, step + i, x_bytes);
      if (id == 0) lane.wait_previous();
      QPN_NO_UNROLL
      for (int i = 0; i < ahead; ++i) fill_x(lane, p, place, step + i, x_bytes);
      step += ahead;
      x_is_there = true;
    }
    QPN_NO_UNROLL
    for (; step < place.end_step; ++step) {
      fill_weights(lane, p, place, step, x_bytes);
      fill_x(lane, p, place, step, x_bytes);
    }
  }
};

/// A warp of the two warpgroups that multiply: the warp's strip by all rows of x of a tile.
template <class Operand, int Rows>
struct wide_consumer {
  using shared = wide_shared<Operand, Rows>;
  /// Register 4 j + i of a half is weight row mma16_weight_row(id, i) of it and row 8 j +
  /// mma16_x_row(id, i) of x.
  using sums = float[2][Rows / 2];

  wide_cursor<shared::stages> at;
  int warp;
  int id;

  /// acc = the products of a tile's steps.
  ///
  /// A group of products is one fragment of one half of the strip. Groups are decoded two ahead,
  /// while the tensor cores work on those before, into four buffers in turns.
  template <class Lane>
  QPN_HD void multiply(Lane& lane, gemm_wide_params const& p, wide_place const& place,
                       sums& acc) noexcept {
    constexpr int groups = 2 * shared::records * Operand::fragments;
    // Where the weight ends a warp repeats the tile's first strip: all four multiply together.
    int const strip = place.strip + warp < p.strips ? warp : 0;
    int const records = shared::x_bytes + strip * shared::strip_bytes;
    Operand weights[shared::records];
    std::uint32_t a[4][Operand::steps][4];
    auto const load = [&](wide_cursor<shared::stages> const& from) {
      lane.barrier_wait(shared::full(from.stage), from.parity);
      QPN_UNROLL
      for (int r = 0; r < shared::records; ++r) {
        int const record = from.stage * shared::stage_bytes + records + r * Operand::record_bytes;
        load_record(lane, record, weights[r]);
      }
    };
    auto const decode = [&](int group) {
      int const f = group / 2;
      Operand& from = weights[f / Operand::fragments];
      lane.hold(from.half[group % 2]);
      from.fragment(lane, f % Operand::fragments, group % 2, a[group % 4]);
    };
    load(at);
    decode(0);
    decode(1);
    int last = 0;  // stage
    QPN_NO_UNROLL
    for (int step = place.first_step; step < place.end_step; ++step) {
      // Behind the last step comes the same again: a branch would end the compiler's view of the
      // products under way.
      bool const more = step + 1 < place.end_step;
      wide_cursor<shared::stages> next = at;
      next.advance();
      wide_cursor<shared::stages> const from = more ? next : at;
      auto const rows = lane.rows_at(at.stage * shared::stage_bytes);
      QPN_UNROLL
      for (int group = 0; group < groups; ++group) {
        lane.begin_products(a[group % 4]);
        QPN_UNROLL
        for (int s = 0; s < Operand::steps; ++s) {
          int const slice = group / 2 * Operand::steps + s;
          lane.template multiply_rows<Operand::x_type>(acc[group % 2], a[group % 4][s], rows, slice,
                                                       slice != 0 || step != place.first_step);
        }
        lane.end_products();
        lane.template wait_products<2>();  // those that read the buffer of the next decode are done
        if (group == 1) release(lane, last, step != place.first_step);
        if (group == groups - 2) load(from);
        decode((group + 2) % groups);
      }
      last = at.stage;
      at = next;
    }
    lane.template wait_products<0>();
    release(lane, last, true);
  }

  /// Finishes the warp's strip of a tile. The CTAs of a cluster store their sums where the ring
  /// was, and each adds those of all, in the CTAs' order, for its share of the rows of x.
  template <class Lane>
  QPN_HD void finish(Lane& lane, gemm_wide_params const& p, wide_place const& place, int rank,
                     int ranks, sums const& acc) noexcept {
    if (ranks > 1) {
      lane.sync_consumers();  // the ring is read
      QPN_UNROLL
      for (int j = 0; j < Rows / 8; ++j) {
        QPN_UNROLL
        for (int h = 0; h < 2; ++h) {
          float4_quad const quad{
              {acc[h][4 * j], acc[h][4 * j + 1], acc[h][4 * j + 2], acc[h][4 * j + 3]}};
          lane.shared_store(sums_at(j, h), quad);
        }
      }
      lane.cluster_sync();  // the sums of all CTAs are there
    }
    bool const gated = p.epilogue.act == activation::silu_gate;
    if (p.output == wide_output::halves) {
      if (gated) {
        finish_rows<true, true>(lane, p, place, rank, ranks, acc);
      } else {
        finish_rows<true, false>(lane, p, place, rank, ranks, acc);
      }
    } else if (gated) {
      finish_rows<false, true>(lane, p, place, rank, ranks, acc);
    } else {
      finish_rows<false, false>(lane, p, place, rank, ranks, acc);
    }
    if (ranks > 1) {
      lane.fence_bulk_copies();
      lane.cluster_sync();  // the sums are read: the stages may be filled
    }
  }

 private:
  /// The lane's words of a record in shared memory. Where the weight has no such record they are
  /// older bytes: finite numbers, as any bits of e2m1 and e4m3 are once decoded, which x multiplies
  /// by 0.
  template <class Lane>
  QPN_HD void load_record(Lane& lane, int record, Operand& weights) const noexcept {
    QPN_UNROLL
    for (int h = 0; h < 2; ++h) {
      weights.half[h] =
          lane.template shared_load<word4>(record + h * Operand::record::half_bytes + 16 * id);
    }
    if constexpr (Operand::format::group_k != 0) {
      weights.scale_bytes = lane.template shared_load<std::uint32_t>(
          record + Operand::record::scales_offset + 4 * id);
    }
  }

  /// If `used`, the stage may be filled again: all of the warp's lanes have read it, or they would
  /// not have come to the products, which are the whole warp's.
  template <class Lane>
  QPN_HD void release(Lane& lane, int stage, bool used) noexcept {
    lane.barrier_arrive_if(used && id == 0, shared::empty(stage));
  }

  /// Where the lane's sums of 8 rows of x are for the cluster: in the lanes' order.
  [[nodiscard]] QPN_HD int sums_at(int block, int half) const noexcept {
    return warp * shared::strip_sum_bytes + block * shared::block_sum_bytes +
           16 * (half * warp_lanes + id);
  }

  template <class Lane>
  QPN_HD void add_ranks(Lane& lane, int block, int ranks, float (&values)[2][4]) const noexcept {
    QPN_UNROLL
    for (int h = 0; h < 2; ++h) {
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) values[h][i] = 0.0f;
    }
    QPN_UNROLL_BY_4
    for (int r = 0; r < ranks; ++r) {
      QPN_UNROLL
      for (int h = 0; h < 2; ++h) {
        float4_quad const more = lane.cluster_load(sums_at(block, h), r);
        QPN_UNROLL
        for (int i = 0; i < 4; ++i) values[h][i] += more.v[i];
      }
    }
  }

  template <bool Halves, bool Gated, class Lane>
  QPN_HD void finish_rows(Lane& lane, gemm_wide_params const& p, wide_place const& place, int rank,
                          int ranks, sums const& acc) noexcept {
    constexpr int all_blocks = Rows / 8;
    constexpr int chunk_blocks = wide_chunk_rows / 8;
    // Kept, or all of this would be computed before the products.
    wide_finisher const finisher(lane, p.epilogue, place.strip + lane.keep(warp), lane.keep(id),
                                 shared::chunks + lane.keep(warp) * shared::chunk_bytes);
    float values[2][4];
    if (ranks == 1) {
      QPN_UNROLL
      for (int first = 0; first < all_blocks; first += chunk_blocks) {
        int const left = p.m - place.first_row - 8 * first;
        if (left <= 0) break;
        lane.sync_warp();  // the last chunk is read
        QPN_UNROLL
        for (int j = first; j < first + chunk_blocks && j < all_blocks; ++j) {
          QPN_UNROLL
          for (int i = 0; i < 4; ++i) {
            values[0][i] = acc[0][4 * j + i];
            values[1][i] = acc[1][4 * j + i];
          }
          finisher.template put<Halves, Gated>(lane, p.epilogue, 8 * (j - first), values);
        }
        lane.sync_warp();  // all of the chunk is there
        finisher.template store<Halves, Gated, wide_chunk_rows>(
            lane, p.epilogue, p.output, std::int64_t{place.first_row} + 8 * first,
            left < wide_chunk_rows ? left : wide_chunk_rows);
      }
      return;
    }
    int const end = all_blocks * (rank + 1) / ranks;
    QPN_NO_UNROLL
    for (int first = all_blocks * rank / ranks; first < end; first += chunk_blocks) {
      int const blocks = end - first < chunk_blocks ? end - first : chunk_blocks;
      int const left = p.m - place.first_row - 8 * first;
      if (left <= 0) break;
      lane.sync_warp();  // the last chunk is read
      QPN_NO_UNROLL
      for (int b = 0; b < blocks; ++b) {
        add_ranks(lane, first + b, ranks, values);
        finisher.template put<Halves, Gated>(lane, p.epilogue, 8 * b, values);
      }
      lane.sync_warp();  // all of the chunk is there
      finisher.template store<Halves, Gated, wide_chunk_rows>(
          lane, p.epilogue, p.output, std::int64_t{place.first_row} + 8 * first,
          left < 8 * blocks ? left : 8 * blocks);
    }
  }
};

/// The kernel: clusters of `cluster_size` CTAs of wide_threads threads take the tiles in turns.
template <class Operand, int Rows, class Lane>
QPN_HD void gemm_wide_program(Lane& lane, gemm_wide_params const& p) noexcept {
  using shared = wide_shared<Operand, Rows>;
  int const ranks = lane.cluster_size();
  int const rank = lane.cluster_rank();
  int const first = lane.block() / ranks;
  int const clusters = lane.blocks() / ranks;
  if (lane.thread() == 0) {
    for (int stage = 0; stage < shared::stages; ++stage) {
      lane.barrier_init(shared::full(stage),
                        1 + wide_group_threads);  // x, and each thread's copies
      lane.barrier_init(shared::empty(stage), wide_strips);
    }
    lane.publish_barriers();
  }
  lane.sync_block();  // the barriers are there
  int const warp = lane.thread() / warp_lanes;
  int const id = lane.thread() % warp_lanes;
  if (warp >= wide_strips) {
    lane.template release_registers<wide_producer_registers>();
    wide_producer<Operand, Rows> producer{{}, {}, lane.thread() - wide_consumer_threads};
    for (int tile = p.first_tile + first; tile < p.end_tile; tile += clusters) {
      producer.fill_tile(lane, p, place_of_tile(p, tile, Rows, rank, ranks));
      if (ranks > 1) {  // as the consumers: all threads of a cluster come together
        lane.cluster_sync();
        lane.cluster_sync();
      }
    }
  } else {
    lane.template take_registers<wide_consumer_registers>();
    wide_consumer<Operand, Rows> consumer{{}, warp, id};
    for (int tile = p.first_tile + first; tile < p.end_tile; tile += clusters) {
      wide_place const place = place_of_tile(p, tile, Rows, rank, ranks);
      float acc[2][Rows / 2];
      consumer.multiply(lane, p, place, acc);
      consumer.finish(lane, p, place, rank, ranks, acc);
    }
  }
}

/// Writes x as the stages want it, 16 bytes a thread; zeros beyond m and k.
template <class Operand, class Lane>
QPN_HD void order_rows_program(Lane& lane, order_params const& p) noexcept {
  lane.allow_next();
  std::int64_t const id = std::int64_t{lane.block()} * order_threads + lane.thread();
  if (id >= p.chunks) return;
  int const q = static_cast<int>(id % 8);
  std::int64_t const row_of_steps = id / 8;
  std::int64_t const row = row_of_steps % p.padded_m;
  std::int64_t const k0 = row_of_steps / p.padded_m * wide_step_k;
  word4 chunk{};
  if (row < p.m) {
    std::uint16_t const* const from = p.x + row * p.ldx + k0;
    QPN_UNROLL
    for (int c = 0; c < 4; ++c) {
      int const k = wide_pair_k<Operand>(q, c);
      if (p.x_by_pairs && k0 + k + 1 < p.k) {
        chunk.w[c] = lane.load(reinterpret_cast<std::uint32_t const*>(from + k));
      } else {
        std::uint32_t const low = k0 + k < p.k ? lane.load(from + k) : std::uint16_t{0};
        std::uint32_t const high = k0 + k + 1 < p.k ? lane.load(from + k + 1) : std::uint16_t{0};
        chunk.w[c] = low | high << 16;
      }
    }
  }
  std::int64_t const at = row_of_steps * wide_x_row_bytes + 16 * (q ^ static_cast<int>(row % 8));
  lane.store(reinterpret_cast<word4*>(p.ordered_x + at), chunk);
}

}  // namespace qpn::detail::sm90
