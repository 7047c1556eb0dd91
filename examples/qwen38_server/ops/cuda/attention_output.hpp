// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cuda/attention_block.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// out[row, head, :] = the partitions folded in order, divided by their mass, times sigmoid(gate).
/// One CTA a row and head, one thread an element.
struct attention_output_params {
  static constexpr int threads = head_dim;
  static constexpr int min_blocks = 1;
  static constexpr bool waits_itself = true;
  static constexpr int factors_at = 0;  ///< {f32 before, next, mass, unused}[threads]
  static constexpr int maxima_at = threads * 16;
  static constexpr int shared_bytes = maxima_at + threads / warp_size * 4;

  pass_view pass;
  attention_sums in;
  float const* q_gate = nullptr;
  std::int64_t q_gate_stride = 0;
  output_rows out;
  int heads = 0;

  [[nodiscard]] std::int64_t blocks() const { return std::int64_t{in.rows} * heads; }
};

/// The factors of up to `threads` partitions, one a thread, to shared memory. `maximum` is that of
/// the partitions before them, and then of these, too. A maximum has no order, so this is what
/// fold() would find one after another.
template <class Lane>
QPN_HD void find_factors(Lane& lane, softmax_sum const& own, float& maximum) {
  using params = attention_output_params;
  int const warp = lane.thread() / warp_size;
  int const id = lane.thread() % warp_size;
  float before = -INFINITY;
  float all = own.maximum;
  for (int mask = 1; mask < warp_size; mask *= 2) {
    float const other = shuffle(lane, all, mask);
    if ((id & mask) != 0) before = other > before ? other : before;
    all = other > all ? other : all;
  }
  if (id == 0) lane.shared_store(params::maxima_at + warp * 4, all);
  lane.sync_block();
  before = maximum > before ? maximum : before;
  for (int i = 0; i < params::threads / warp_size; ++i) {
    float const other = lane.template shared_load<float>(params::maxima_at + i * 4);
    if (i < warp) before = other > before ? other : before;
    maximum = other > maximum ? other : maximum;
  }
  fold_factors const factors = factors_of(lane, before, own.maximum);
  lane.shared_store(params::factors_at + lane.thread() * 16,
                    float4_pack{{factors.before, factors.next, own.mass, 0.0F}});
  lane.sync_block();
}

template <class Lane>
QPN_HD void run_program(Lane& lane, attention_output_params const& p) {
  using params = attention_output_params;
  std::int64_t const row = p.in.first_row + lane.block() / p.heads;
  std::int64_t const head = lane.block() % p.heads;
  int const d = lane.thread();
  span_entry const span = lane.load(p.pass.spans + lane.load(p.pass.row_spans + row));
  lane.wait_previous();
  float const gate = lane.load(p.q_gate + row * p.q_gate_stride + (2 * head + 1) * head_dim + d);
  std::int64_t const slot = position_of(span, row) + p.pass.slot_offset;
  std::int64_t const partitions = partition_of(slot) + 1;
  std::int64_t const entry = p.in.entry(row * p.heads + head, p.heads);
  float const* const numerators = p.in.numerators + entry * head_dim + d;
  if (p.in.folded) {  // the bits that one partition would give below
    float const quotient = lane.load(numerators) / lane.load(&p.in.sums[entry].mass);
    store_value(lane, p.out, row, head * head_dim + d, quotient * sigmoid(lane, gate));
    return;
  }
  float maximum = -INFINITY;
  float mass = 0;
  float sum = 0;
  for (std::int64_t first = 0; first < partitions; first += params::threads) {
    int const left = static_cast<int>(partitions - first);
    int const count = left < params::threads ? left : params::threads;
    softmax_sum own{-INFINITY, 0.0F};
    if (d < count) own = lane.load(p.in.sums + entry + first + d);
    if (first > 0) lane.sync_block();  // the factors before are still in use
    find_factors(lane, own, maximum);
    auto const add = [&](int i, float numerator) {
      float4_pack const factors =
          lane.template shared_load<float4_pack>(params::factors_at + i * 16);
      sum = lane.fma(numerator, factors.v[1], sum * factors.v[0]);
      mass = lane.fma(factors.v[2], factors.v[1], mass * factors.v[0]);
    };
    constexpr int batch = 8;  // loads in flight
    int i = 0;
    for (; i + batch <= count; i += batch) {
      float numerator[batch];
      QPN_UNROLL
      for (int j = 0; j < batch; ++j) {
        numerator[j] = lane.load(numerators + (first + i + j) * head_dim);
      }
      QPN_UNROLL
      for (int j = 0; j < batch; ++j) add(i + j, numerator[j]);
    }
    for (; i < count; ++i) add(i, lane.load(numerators + (first + i) * head_dim));
  }
  store_value(lane, p.out, row, head * head_dim + d, sum / mass * sigmoid(lane, gate));
}

}  // namespace qwen38::ops::cuda
