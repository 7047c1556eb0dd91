// SPDX-License-Identifier: Apache-2.0
#include "round_kernels.hpp"

#include <algorithm>

#include "ops/cuda/attention_partitions.hpp"
#include "ops/cuda/attention_simt.hpp"
#include "ops/cuda/gdn_short.hpp"
#include "round_constants.hpp"

namespace qpn::bench::v100 {

namespace {

namespace kernels = qwen38::ops::cuda;

constexpr double f32 = 4;
constexpr double f16 = 2;
constexpr double warp_sum_trips = 5;  // shuffles
constexpr double warp_lanes = detail::warp_lanes;

double real(std::int64_t count) {
  return static_cast<double>(count);
}

/// Two passes over a row, a sum over the CTA between them, weights with the second.
void add_norm(kernel_work& work, std::int64_t rows, std::int64_t cols) {
  work.dram_bytes += real(cols) * f32;
  work.l2_bytes += real(rows * cols) * (2 * f32 + f16);
  work.l2_trips += 1;
  work.dram_trips += 1;
  work.shared_trips += 2 * warp_sum_trips + 1;
  work.barriers += 1;
}

/// A head's norm and rotation by one warp, from the row's span on.
kernel_work rotation() {
  kernel_work work;
  work.l2_trips = 3;    // span of the row, span, head
  work.dram_trips = 1;  // weights
  work.shared_trips = warp_sum_trips + 2;
  work.alone_cycles = sine_cycles.value;
  return work;
}

/// Multiply-adds of a lane for a row of its column of S: decay, two dot products and the update.
double fma_of_row(rank_model const& model) {
  return 4 * real(model.key_dim) / kernels::gdn_shares;
}

std::int64_t partitions_of(std::int64_t slots) {
  return kernels::partition_of(slots - 1) + 1;
}

std::int64_t longest_partition(std::int64_t slots) {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < partitions_of(slots); ++i) {
    std::int64_t const end = std::min(slots, kernels::first_slot_of(i + 1));
    longest = std::max(longest, end - kernels::first_slot_of(i));
  }
  return longest;
}

}  // namespace

kernel_work embed_work(std::int64_t rows, std::int64_t cols) {
  kernel_work work;
  work.dram_bytes = real(rows * cols) * f16;
  work.l2_bytes = real(rows * cols) * f32;
  work.l2_trips = 2;  // id, token
  work.dram_trips = 1;
  return work;
}

kernel_work rms_norm_work(std::int64_t rows, std::int64_t cols) {
  kernel_work work;
  work.l2_trips = 1;
  add_norm(work, rows, cols);
  return work;
}

kernel_work copy_rows_work(std::int64_t rows, std::int64_t cols, bool has_moves) {
  kernel_work work;
  work.l2_bytes = 2 * real(rows * cols) * f32;
  work.l2_trips = has_moves ? 2 : 1;
  return work;
}

kernel_work pack_tokens_work() {
  kernel_work work;
  work.l2_trips = 1;
  return work;
}

kernel_work store_kv_work(rank_model const& model, std::int64_t rows) {
  kernel_work work = rotation();
  work.l2_trips += 1;  // page
  work.shared_trips += 1;
  work.l2_bytes = 2 * real(rows * model.kv_heads * model.head_dim) * (f32 + f16);
  return work;
}

kernel_work prepare_heads_work(rank_model const& model, std::int64_t rows) {
  kernel_work work = store_kv_work(model, rows);
  work.l2_bytes += 2 * real(rows * model.heads * model.head_dim) * f32;
  return work;
}

kernel_work attention_work(rank_model const& model, std::int64_t rows, std::int64_t slots) {
  using params = kernels::attention_simt_params;
  std::int64_t const queries = rows * model.heads / model.kv_heads;
  double const tiles = real((queries - 1) / params::queries_per_block + 1);
  double const kv_bytes = 2 * real(slots * model.kv_heads * model.head_dim) * f16;
  // Scores and values: two multiply-adds for each query, slot and element.
  double const cycles_of_slot = 2.0 * params::queries_per_block * real(model.head_dim) /
                                warp_lanes * pipe_cycles.value / schedulers.value;
  double const all = tiles * real(slots * model.kv_heads) / sm_count.value;
  double const longest = real(longest_partition(slots));
  double const steps = longest / params::tile_slots;
  kernel_work work;
  work.dram_bytes = kv_bytes;
  work.l2_bytes = tiles * kv_bytes + real(rows * model.heads * model.head_dim) * f32 *
                                         (1 + real(partitions_of(slots)));
  work.l2_trips = 2;  // span and page; queries beside them
  work.dram_trips = 1;
  work.barriers = 4 * steps;
  work.shared_trips = (3 + 2 * warp_sum_trips + 1) * steps;
  work.busy_cycles = std::max(all, longest) * cycles_of_slot / attention_busy.value;
  return work;
}

kernel_work attention_output_work(rank_model const& model, std::int64_t rows, std::int64_t slots) {
  constexpr double loads_in_flight = 8;
  double const partitions = real(partitions_of(slots));
  kernel_work work;
  work.l2_bytes = real(rows * model.heads) * partitions * (real(model.head_dim) * f32 + 2 * f32) +
                  real(rows * model.heads * model.head_dim) * (f32 + f16);
  work.l2_trips = 3 + partitions / loads_in_flight;  // span of the row, span, sums, numerators
  work.shared_trips = warp_sum_trips + 1;
  work.barriers = 2;
  work.alone_cycles = 2 * add_latency.value * partitions;  // a fold: multiply, then fma
  return work;
}

bool is_gdn_short(rank_model const& model, std::int64_t rows) {
  kernels::gdn_sizes const sizes{
      static_cast<int>(model.key_heads), static_cast<int>(model.value_heads),
      static_cast<int>(model.value_dim), static_cast<int>(model.conv_taps), 0};
  return kernels::gdn_short_params<1>::has_sizes(sizes) &&
         rows <= kernels::gdn_short_params<1>::most_rows_on(70);
}

kernel_work gdn_short_work(rank_model const& model, std::int64_t rows, bool keeps) {
  using params = kernels::gdn_short_params<1>;
  double const channels = real(model.conv_channels());
  double const state_columns = real(model.conv_taps - 1);
  double const channels_of_head = real(2 * model.key_dim + 2 * model.value_dim);
  double const warps = params::threads / warp_lanes;
  double const warps_of_scheduler = warps / schedulers.value;
  double const heads_of_sm = std::max(1.0, real(model.value_heads) / sm_count.value);
  double const row_batches = real((rows - 1) / params::rows_at_once);  // behind the first
  double const key_tasks = real((2 * rows - 1) / (params::threads / detail::warp_lanes) + 1);
  kernel_work work;
  work.dram_bytes = real(model.value_channels() * model.key_dim) * f32 * (keeps ? 2 : 1) +
                    channels * f32 * (2 * state_columns + 1 + (keeps ? state_columns : 0));
  work.l2_bytes = real(rows * model.value_heads) * channels_of_head * f32 +
                  real(rows * model.value_channels()) * f16 +
                  (keeps ? 0 : real(rows) * channels * 2 * f32);  // a record
  work.l2_trips = 1 + row_batches;                                // span
  work.dram_trips = 1;                                            // S, taps and columns
  // A row: the first of k and q, two column sums.
  work.shared_trips =
      (warp_sum_trips + 2) * key_tasks + (1 + 2 * 2) * real(rows) + warp_sum_trips + 2;
  work.barriers = 3;
  // Nothing hides what a CTA computes, since all of it comes behind its loads.
  work.alone_cycles = heads_of_sm * warps_of_scheduler * real(rows) *
                      (fma_of_row(model) * pipe_cycles.value + silu_cycles.value);
  return work;
}

kernel_work gdn_prepare_work(rank_model const& model, std::int64_t rows) {
  double const taps = real(model.conv_taps);
  double const channels = real(model.conv_channels());
  kernel_work work;
  work.dram_bytes = channels * f32 * (2 * taps - 1);  // taps, columns of the state
  work.l2_bytes = real(rows) * channels * f32 * (taps + 3);
  work.l2_trips = 3;  // span of the row, span, projections
  work.dram_trips = 1;
  work.shared_trips = warp_sum_trips;
  return work;
}

namespace {

/// @param lane_columns  of S
kernel_work recurrence(rank_model const& model, std::int64_t rows, std::int64_t layers, bool keeps,
                       int lane_columns) {
  double const columns = real(layers * model.value_channels());
  double const warps = columns / (kernels::gdn_columns * lane_columns);
  double const fma_cycles = lane_columns * fma_of_row(model) * pipe_cycles.value;
  double const shared_of_row = 2 + 2 * 2;  // k and q through shared memory, two column sums
  double const warps_of_sm = std::max(1.0, warps / sm_count.value);
  kernel_work work;
  work.dram_bytes = columns * real(model.key_dim) * f32 * (keeps ? 2 : 1);
  work.l2_bytes = real(rows * layers) * f32 * real(model.conv_channels() + model.value_channels());
  work.l2_trips = 2;  // span, first row
  work.dram_trips = 1;
  work.shared_trips = shared_of_row * real(rows);
  work.alone_cycles = fma_cycles * real(rows);
  work.busy_cycles = warps_of_sm * fma_cycles / schedulers.value * real(rows);
  return work;
}

}  // namespace

kernel_work gdn_recurrence_work(rank_model const& model, std::int64_t rows, bool keeps) {
  return recurrence(model, rows, 1, keeps, 1);
}

kernel_work gdn_replay_work(rank_model const& model, std::int64_t rows) {
  return recurrence(model, rows, model.gdn_layers, true, 2);
}

kernel_work gdn_norm_work(rank_model const& model, std::int64_t rows) {
  kernel_work work;
  work.l2_bytes = real(rows * model.value_channels()) * (2 * f32 + f16);
  work.l2_trips = 1;
  work.dram_trips = 1;  // weights
  work.shared_trips = warp_sum_trips;
  return work;
}

kernel_work gdn_shift_work(rank_model const& model, std::int64_t layers, bool keeps) {
  kernel_work work;
  work.l2_trips = 1;
  if (!keeps) return work;  // tentative rows leave the state as it is
  work.dram_trips = 1;
  work.dram_bytes = 2 * real(layers * (model.conv_taps - 1) * model.conv_channels()) * f32;
  return work;
}

kernel_work peer_reduce_work(rank_model const& model, std::int64_t rows) {
  double const row_bytes = real(rows * model.hidden) * f32;
  kernel_work work;
  work.peer_bytes = row_bytes;
  work.l2_bytes = row_bytes * (model.ranks + 2);
  work.l2_trips = 3;  // epoch, partial sums, inbox
  work.barriers = 2;
  work.hops = 3;  // the rows and word that they came, then the flag
  add_norm(work, rows, model.hidden);
  return work;
}

kernel_work gather_ids_work(std::int64_t rows) {
  constexpr double token_bytes = 8;
  kernel_work work;
  work.peer_bytes = real(rows) * token_bytes;
  work.l2_trips = 2;  // epoch, token
  work.barriers = 3;
  work.hops = 4;  // that there is room, the token and word that it came, the flag
  return work;
}

kernel_work best_of_ranks_work(rank_model const& model) {
  kernel_work work;
  work.l2_trips = model.ranks;
  return work;
}

}  // namespace qpn::bench::v100
