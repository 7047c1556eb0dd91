// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/device_gdn_state.hpp"

#include <algorithm>
#include <string>

#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

constexpr char const* use = "the GDN state";

void require_shape(gdn_shape const& shape) {
  auto const refuse = [](char const* name, std::int64_t value, std::string const& expected) {
    throw error(error_kind::unsupported, std::string(name) + " " + std::to_string(value) +
                                             ": the CUDA backend expects " + expected);
  };
  if (shape.key_dim != gdn_key_dim) {
    refuse("linear_key_head_dim", shape.key_dim, std::to_string(gdn_key_dim));
  }
  if (shape.value_dim % gdn_columns != 0 || shape.value_dim > gdn_largest_head) {
    refuse("linear_value_head_dim", shape.value_dim,
           "a multiple of " + std::to_string(gdn_columns) + " of at most " +
               std::to_string(gdn_largest_head));
  }
}

gdn_sizes sizes_of(gdn_shape const& shape) {
  return {static_cast<int>(shape.num_key_heads), static_cast<int>(shape.num_value_heads),
          static_cast<int>(shape.value_dim), static_cast<int>(shape.conv_kernel), shape.eps};
}

}  // namespace

device_gdn_state::device_gdn_state(device& owner, gdn_shape const& shape, std::int64_t layers,
                                   std::int64_t lanes, std::int64_t max_tentative_rows,
                                   std::int64_t snapshots, bool in_one_launch)
    : owner_(owner), layers_(layers), snapshots_(snapshots) {
  require_shape(shape);
  memory_.sizes = sizes_of(shape);
  if (in_one_launch && gdn_short_params<1>::has_sizes(memory_.sizes)) {
    rows_in_one_launch_ = gdn_short_params<1>::most_rows_on(owner.info().compute_capability);
    arrivals_ = make_array<std::uint32_t>(owner, lanes * shape.num_key_heads, use);
  }
  has_chunks_ =
      owner.info().compute_capability >= 80 &&
      owner.info().shared_bytes_per_block >=
          std::max(gdn_chunk_factors_params::shared_bytes, gdn_chunk_scan_params::shared_bytes) &&
      shape.value_dim % gdn_chunk_columns == 0;
  memory_.lanes = static_cast<int>(lanes);
  memory_.record_rows = static_cast<int>(max_tentative_rows);
  std::int64_t const records = layers * lanes * max_tentative_rows;
  s_ = make_array<float>(owner, layers * lanes * memory_.s_values(), use);
  conv_ = make_array<float>(owner, layers * lanes * memory_.conv_values(), use);
  raw_ = make_array<float>(owner, records * shape.conv_channels(), use);
  mixed_ = make_array<float>(owner, records * shape.conv_channels(), use);
  decay_ = make_array<float>(owner, records * shape.num_value_heads, use);
  beta_ = make_array<float>(owner, records * shape.num_value_heads, use);
  saved_ = make_array<float>(
      owner, layers * snapshots * (memory_.s_values() + memory_.conv_values()), use);
  memory_.first = {s_.as<float>(),
                   conv_.as<float>(),
                   raw_.as<float>(),
                   {mixed_.as<float>(), decay_.as<float>(), beta_.as<float>()}};
}

std::size_t device_gdn_state::resident_bytes() const noexcept {
  return s_.bytes() + conv_.bytes() + raw_.bytes() + mixed_.bytes() + decay_.bytes() +
         beta_.bytes() + arrivals_.bytes() + saved_.bytes();
}

void device_gdn_state::run(std::int64_t layer, device_pass const& p, tensor const& qkvz,
                           tensor const& ba, gdn_constants const& w, output_rows const& out) {
  gdn_sizes const& g = memory_.sizes;
  for (span_entry const& span : p.spans()) {
    if (span.tentative == 0 || span.rows <= memory_.record_rows) continue;
    throw error(error_kind::internal, "gdn: " + std::to_string(span.rows) +
                                          " tentative rows, but a record holds " +
                                          std::to_string(memory_.record_rows));
  }
  if (p.longest_span() <= rows_in_one_launch_) {
    using of_two = gdn_short_params<2>;
    bool const in_clusters = owner_.has_clusters() && of_two::has_sizes(g) &&
                             of_two::have_room(g, p.view().span_count, owner_.info().sm_count);
    if (in_clusters) {
      run_short<2>(layer, p, qkvz, ba, w, out);
    } else {
      run_short<1>(layer, p, qkvz, ba, w, out);
    }
    return;
  }
  written_ = owner_.borders();
  std::int64_t const most = p.limits().rows;
  auto const* const q = static_cast<float const*>(qkvz.data);
  gdn_rows const scratch{pass_mixed_.at_least<float>(owner_, most * g.channels(), use),
                         pass_decay_.at_least<float>(owner_, most * g.value_heads, use),
                         pass_beta_.at_least<float>(owner_, most * g.value_heads, use)};

  gdn_prepare_params prepare;
  prepare.pass = p.view();
  prepare.memory = memory_;
  prepare.scratch = scratch;
  prepare.layer = layer;
  prepare.rows = p.rows();
  prepare.qkvz = q;
  prepare.qkvz_stride = qkvz.stride;
  prepare.ba = static_cast<float const*>(ba.data);
  prepare.ba_stride = ba.stride;
  prepare.taps = w.conv;
  prepare.a_log = w.a_log;
  prepare.dt_bias = w.dt_bias;
  owner_.launch(prepare);

  gdn_recurrence_params<1> recurrence;
  recurrence.pass = p.view();
  recurrence.memory = memory_;
  recurrence.scratch = scratch;
  recurrence.layer = layer;
  recurrence.out = pass_out_.at_least<float>(owner_, most * g.value_channels(), use);
  recurrence.chunked = has_chunks_ && p.longest_span() >= gdn_chunk;
  if (recurrence.chunked) {
    run_chunks(layer, p, scratch, p.longest_span() / gdn_chunk, recurrence.out);
  }
  bool const is_done = recurrence.chunked && std::ranges::all_of(p.spans(), [](auto const& span) {
                         return gdn_chunks_of(span) * gdn_chunk == span.rows;
                       });
  if (!is_done) owner_.launch(recurrence);

  gdn_norm_params norm;
  norm.sizes = g;
  norm.o = recurrence.out;
  norm.z = q + g.channels();
  norm.z_stride = qkvz.stride;
  norm.w = w.norm;
  norm.out = out;
  norm.rows = p.rows();
  owner_.launch(norm);

  gdn_shift_params shift;
  shift.pass = p.view();
  shift.memory = memory_;
  shift.layer = layer;
  shift.qkvz = q;
  shift.qkvz_stride = qkvz.stride;
  owner_.launch(shift);
}

template <int Ctas>
void device_gdn_state::run_short(std::int64_t layer, device_pass const& p, tensor const& qkvz,
                                 tensor const& ba, gdn_constants const& w, output_rows const& out) {
  gdn_short_params<Ctas> kernel;
  kernel.pass = p.view();
  kernel.memory = memory_;
  kernel.layer = layer;
  kernel.qkvz = static_cast<float const*>(qkvz.data);
  kernel.qkvz_stride = qkvz.stride;
  kernel.ba = static_cast<float const*>(ba.data);
  kernel.ba_stride = ba.stride;
  kernel.taps = w.conv;
  kernel.a_log = w.a_log;
  kernel.dt_bias = w.dt_bias;
  kernel.w = w.norm;
  kernel.arrivals = arrivals_.as<std::uint32_t>();
  kernel.out = out;
  kernel.state_is_there = owner_.borders() > written_;
  owner_.launch(kernel);
  written_ = owner_.borders();
}

void device_gdn_state::run_chunks(std::int64_t layer, device_pass const& p, gdn_rows const& rows,
                                  std::int64_t chunks, float* out) {
  gdn_sizes const& g = memory_.sizes;
  std::int64_t const places = divide_up(p.limits().rows, gdn_chunk);
  std::int64_t const keys = places * g.key_heads * gdn_key_operand;
  std::int64_t const squares = places * g.value_heads * gdn_row_operand;
  gdn_chunk_scratch const scratch{
      chunk_keys_.at_least<std::uint16_t>(owner_, keys, use),
      chunk_queries_.at_least<std::uint16_t>(owner_, keys, use),
      chunk_solve_.at_least<std::uint16_t>(owner_, squares, use),
      chunk_recall_.at_least<std::uint16_t>(owner_, squares, use),
      chunk_gates_.at_least<gdn_chunk_gates>(owner_, places * g.value_heads, use)};

  gdn_chunk_factors_params factors;
  factors.pass = p.view();
  factors.memory = memory_;
  factors.rows = rows;
  factors.out = scratch;
  factors.chunks = chunks;
  owner_.launch(factors);

  gdn_chunk_scan_params scan;
  scan.pass = p.view();
  scan.memory = memory_;
  scan.rows = rows;
  scan.in = scratch;
  scan.layer = layer;
  scan.out = out;
  owner_.launch(scan);
}

void device_gdn_state::keep(int lane, std::int64_t rows) {
  written_ = owner_.borders();
  auto const replay = [&](auto kernel) {
    kernel.memory = memory_;
    kernel.replay = true;
    kernel.layers = layers_;
    kernel.lane = lane;
    kernel.rows = static_cast<int>(rows);
    owner_.launch(kernel);
  };
  if (memory_.sizes.value_dim % gdn_recurrence_params<2>::warp_columns == 0) {
    replay(gdn_recurrence_params<2>());
  } else {
    replay(gdn_recurrence_params<1>());
  }
  replay(gdn_shift_params());
}

byte_lines device_gdn_state::lane_lines(device_block const& memory, int lane,
                                        std::int64_t values) const {
  return {memory.as<float>() + lane * values,
          static_cast<std::size_t>(memory_.lanes * values) * sizeof(float)};
}

byte_lines device_gdn_state::saved_lines(std::int64_t snapshot, std::int64_t first) const {
  std::int64_t const values = memory_.s_values() + memory_.conv_values();
  return {saved_.as<float>() + snapshot * layers_ * values + first,
          static_cast<std::size_t>(values) * sizeof(float)};
}

void device_gdn_state::require_snapshot(std::int64_t snapshot) const {
  if (snapshot >= 0 && snapshot < snapshots_) return;
  throw error(error_kind::internal, "gdn: snapshot " + std::to_string(snapshot) +
                                        " is none of the " + std::to_string(snapshots_) +
                                        " places");
}

void device_gdn_state::reset(int lane) {
  written_ = owner_.borders();
  std::size_t const s_bytes = static_cast<std::size_t>(memory_.s_values()) * sizeof(float);
  std::size_t const conv_bytes = static_cast<std::size_t>(memory_.conv_values()) * sizeof(float);
  auto const height = static_cast<std::size_t>(layers_);
  owner_.clear(lane_lines(s_, lane, memory_.s_values()), s_bytes, height);
  owner_.clear(lane_lines(conv_, lane, memory_.conv_values()), conv_bytes, height);
}

void device_gdn_state::save(int lane, std::int64_t snapshot) {
  require_snapshot(snapshot);
  std::size_t const s_bytes = static_cast<std::size_t>(memory_.s_values()) * sizeof(float);
  std::size_t const conv_bytes = static_cast<std::size_t>(memory_.conv_values()) * sizeof(float);
  auto const height = static_cast<std::size_t>(layers_);
  owner_.copy(saved_lines(snapshot, 0), lane_lines(s_, lane, memory_.s_values()), s_bytes, height);
  owner_.copy(saved_lines(snapshot, memory_.s_values()),
              lane_lines(conv_, lane, memory_.conv_values()), conv_bytes, height);
}

void device_gdn_state::load(int lane, std::int64_t snapshot) {
  require_snapshot(snapshot);
  written_ = owner_.borders();
  std::size_t const s_bytes = static_cast<std::size_t>(memory_.s_values()) * sizeof(float);
  std::size_t const conv_bytes = static_cast<std::size_t>(memory_.conv_values()) * sizeof(float);
  auto const height = static_cast<std::size_t>(layers_);
  owner_.copy(lane_lines(s_, lane, memory_.s_values()), saved_lines(snapshot, 0), s_bytes, height);
  owner_.copy(lane_lines(conv_, lane, memory_.conv_values()),
              saved_lines(snapshot, memory_.s_values()), conv_bytes, height);
}

}  // namespace qwen38::ops::cuda
