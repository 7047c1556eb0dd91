// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/lane_types.hpp>

#include "ops/cuda/byte_range.hpp"
#include "ops/cuda/gdn_norm.hpp"
#include "ops/cuda/gdn_prepare.hpp"
#include "ops/cuda/gdn_recurrence.hpp"
#include "ops/cuda/gdn_shift.hpp"

namespace qwen38::ops::cuda {

/// All that gdn_prepare, gdn_recurrence, gdn_norm and gdn_shift do for a pass whose spans have few
/// rows, in one launch and with the same bits. One CTA for each span and value head, or a cluster
/// of two that share its columns of v, z and S; S is loaded first and stays in registers as in
/// gdn_recurrence, rows lie in shared memory. Each CTA computes q and k of its key head for itself;
/// the first one of those that do records them. CTAs of a cluster give each other their columns of
/// the output, of which the norm takes all.
///
/// Rows of no counted span, which fill a pass up, have no output.
/// @tparam Ctas  of a head: 1, or 2 where kernels have clusters
template <int Ctas>
struct gdn_short_params {
  static_assert(Ctas == 1 || Ctas == 2);
  static constexpr int cluster = Ctas;
  static constexpr int most_rows = 16;
  static constexpr int most_value_dim = gdn_key_dim;
  static constexpr int most_columns = most_value_dim / Ctas;  ///< of v that a CTA has
  static constexpr int rows_at_once = 8;                      ///< whose loads travel together
  static constexpr int kernel = 4;                            ///< taps: a thread has its channel's
  static constexpr int threads = 2 * gdn_key_dim + 2 * most_columns;  ///< channels of q | k | v | z
  static constexpr int min_blocks = 1;
  static constexpr bool waits_itself = true;
  /// Of S: what shared memory gives of k and q, a lane multiplies in all of its columns.
  static constexpr int lane_columns = 2 / Ctas;
  static constexpr int warp_columns = gdn_columns * lane_columns;

  // Shared memory: rows of k | q | v | output | silu(z) | decay, beta, with all columns of the
  // output; behind them w, and whether this CTA is the last of its key head.
  static constexpr int head_bytes = gdn_key_dim * 4;
  static constexpr int keys_at = 0;
  static constexpr int queries_at = head_bytes;
  static constexpr int values_at = 2 * head_bytes;
  static constexpr int outputs_at = 3 * head_bytes;
  static constexpr int gates_at = 4 * head_bytes;
  static constexpr int decay_at = 5 * head_bytes;
  static constexpr int beta_at = decay_at + 4;
  static constexpr int row_bytes = decay_at + 16;
  static constexpr int weights_at = most_rows * row_bytes;
  static constexpr int last_at = weights_at + head_bytes;
  static constexpr int shared_bytes = last_at + 16;

  pass_view pass;
  gdn_memory memory;
  std::int64_t layer = 0;
  float const* qkvz = nullptr;
  std::int64_t qkvz_stride = 0;
  float const* ba = nullptr;
  std::int64_t ba_stride = 0;
  float const* taps = nullptr;        ///< [channels][kernel]
  float const* a_log = nullptr;       ///< [value heads]
  float const* dt_bias = nullptr;     ///< [value heads]
  float const* w = nullptr;           ///< [value_dim]
  std::uint32_t* arrivals = nullptr;  ///< [lane][key head], 0 between launches
  output_rows out;
  byte_range ahead;  ///< fetched into the cache while S travels
  /// No launch that may still run writes the state: it is read before the wait for them.
  bool state_is_there = false;

  /// One multiprocessor has a head's arithmetic, which gdn_recurrence spreads over several: with
  /// more rows that costs more than three launches do, before sm_90 by bench/v100_model.
  [[nodiscard]] static constexpr int most_rows_on(int compute_capability) {
    return compute_capability >= 90 ? most_rows : most_rows / 2;
  }
  [[nodiscard]] static bool has_sizes(gdn_sizes const& sizes) {
    return sizes.kernel == kernel && sizes.value_dim <= most_value_dim &&
           sizes.value_dim % (Ctas * gdn_columns) == 0;
  }
  [[nodiscard]] QPN_HD std::int64_t blocks() const {
    return std::int64_t{pass.span_count} * memory.sizes.value_heads * Ctas;
  }
  /// Whether each CTA has a multiprocessor for itself.
  [[nodiscard]] static bool have_room(gdn_sizes const& sizes, std::int64_t spans,
                                      std::int32_t sm_count) {
    return spans * sizes.value_heads * Ctas <= sm_count;
  }
};

/// The steps of a CTA for its span and value head, as one thread sees them.
template <int Ctas, class Lane>
class gdn_short_head {
 public:
  using params = gdn_short_params<Ctas>;
  static constexpr int lane_columns = params::lane_columns;

  QPN_HD gdn_short_head(Lane& lane, params const& p)
      : lane_(lane),
        p_(p),
        span_(lane.load(p.pass.spans + lane.block() / (Ctas * p.memory.sizes.value_heads))),
        at_(p.memory.at(p.layer, span_.lane)),
        rows_(p.qkvz + span_.first_row * p.qkvz_stride),
        head_(lane.block() / Ctas % p.memory.sizes.value_heads),
        group_(p.memory.sizes.value_heads / p.memory.sizes.key_heads),
        columns_(p.memory.sizes.value_dim / Ctas),
        first_column_(lane.block() % Ctas * columns_),
        column_(lane.thread() / warp_size * params::warp_columns +
                lane.thread() % gdn_columns * lane_columns) {
    int const behind_keys = lane.thread() - 2 * gdn_key_dim;
    part_ =
        behind_keys < 0 ? lane.thread() / gdn_key_dim : v_part + behind_keys / params::most_columns;
    place_ = behind_keys < 0 ? lane.thread() % gdn_key_dim : behind_keys % params::most_columns;
  }

  [[nodiscard]] QPN_HD int rows() const { return span_.rows; }

  // The state is read past L1: before the wait that may have what was there rounds ago.

  QPN_HD void load_columns(float (&s)[gdn_lane_keys][lane_columns]) {
    if (!has_columns()) return;
    QPN_UNROLL
    for (int i = 0; i < gdn_lane_keys; ++i) {
      float const* const from = columns() + key_step(i);
      if constexpr (lane_columns == 1) {
        s[i][0] = lane_.load_volatile(from);
      } else {
        auto const two = lane_.load_volatile(reinterpret_cast<columns_of_key const*>(from));
        s[i][0] = two.low;
        s[i][1] = two.high;
      }
    }
  }
  /// The channel's constants and state, or the weight of the norm and what gates are made with.
  QPN_HD void load_channel() {
    if (part_ == z_part) gate_constants_ = gate_constants_of(lane_, p_, head_);
    if (!has_channel()) return;
    if (part_ == z_part) {
      lane_.shared_store(params::weights_at + place_ * 4,
                         lane_.load(p_.w + first_column_ + place_));
      return;
    }
    gdn_sizes const& g = p_.memory.sizes;
    std::int64_t const channel = channel_of(part_, place_);
    taps_ = lane_.load(reinterpret_cast<float4_pack const*>(p_.taps) + channel);
    float const* const state = at_.conv + channel;
    QPN_UNROLL
    for (int i = 0; i < params::kernel - 1; ++i) {
      before_[i] = lane_.load_volatile(state + i * g.channels());
    }
  }
  /// By the last warp of each CTA: the pieces are dealt out to the warps in turn.
  QPN_HD void fetch_ahead() {
    int const id = lane_.thread() - (params::threads - warp_size);
    if (id < 0) return;
    std::size_t const step = static_cast<std::size_t>(p_.blocks()) * warp_size * ahead_piece_bytes;
    std::size_t at = static_cast<std::size_t>(lane_.block() * warp_size + id) * ahead_piece_bytes;
    for (; at < p_.ahead.bytes; at += step) lane_.fetch_ahead(p_.ahead, at);
  }
  QPN_HD void prepare() {
    if (part_ == z_part) {
      load_gates();
    } else if (has_channel()) {
      convolve();
    }
    lane_.sync_block();  // all channels of the span have been read
    std::uint32_t const arrived = arrive();
    scale_keys();
    lane_.sync_block();
    tell_whether_last(arrived);
  }
  QPN_HD void advance(int row_count, float (&s)[gdn_lane_keys][lane_columns]) {
    bool const warp_has_columns = lane_.thread() / warp_size * params::warp_columns < columns_;
    if (!warp_has_columns) return;
    QPN_NO_UNROLL
    for (int at = 0; at < row_count * params::row_bytes; at += params::row_bytes) {
      advance_row(at, s);
    }
  }
  QPN_HD void finish(float const (&s)[gdn_lane_keys][lane_columns]) {
    if constexpr (Ctas == 1) {
      lane_.sync_block();
    } else {
      lane_.arrive_cluster();
    }
    if (span_.tentative == 0) store_columns(s);  // the warps of z go on
    if constexpr (Ctas != 1) lane_.wait_cluster();
    norm();
    if (span_.tentative == 0) shift();
  }

 private:
  static constexpr int q_part = 0;
  static constexpr int v_part = 2;
  static constexpr int z_part = 3;
  static constexpr int rows_at_once = params::rows_at_once;
  using columns_of_key = qpn::detail::float2_pair;

  /// Whether the thread has a channel: of v and z there may be fewer than threads.
  [[nodiscard]] QPN_HD bool has_channel() const { return part_ < v_part || place_ < columns_; }
  /// Of the convolution.
  [[nodiscard]] QPN_HD std::int64_t channel_of(int part, int place) const {
    gdn_sizes const& g = p_.memory.sizes;
    return part == v_part
               ? 2 * g.key_channels() + std::int64_t{head_} * g.value_dim + first_column_ + place
               : part * g.key_channels() + std::int64_t{head_ / group_} * gdn_key_dim + place;
  }
  /// Whether the span has a record and this CTA writes that part of it.
  [[nodiscard]] QPN_HD bool records(int part) const {
    return span_.tentative != 0 &&
           (part == v_part || (first_column_ == 0 && (part == z_part || head_ % group_ == 0)));
  }
  /// In a row of shared memory.
  [[nodiscard]] QPN_HD static int key_at(int part) {
    return part == q_part   ? params::queries_at
           : part == v_part ? params::values_at
                            : params::keys_at;
  }

  /// silu of the convolution's rows in the thread's channel, in the order of gdn_prepare.
  QPN_HD void convolve() {
    gdn_sizes const& g = p_.memory.sizes;
    std::int64_t const channel = channel_of(part_, place_);
    float const* const column = rows_ + channel;
    int const to = key_at(part_) + place_ * 4;
    QPN_NO_UNROLL
    for (int first = 0; first < span_.rows; first += rows_at_once) {
      float raw[rows_at_once];
      QPN_UNROLL
      for (int i = 0; i < rows_at_once; ++i) {
        if (first + i < span_.rows) raw[i] = lane_.load(column + (first + i) * p_.qkvz_stride);
      }
      QPN_UNROLL
      for (int i = 0; i < rows_at_once; ++i) {
        int const t = first + i;
        if (t >= span_.rows) break;
        float value = lane_.fma(taps_.v[0], before_[0], 0.0F);
        value = lane_.fma(taps_.v[1], before_[1], value);
        value = lane_.fma(taps_.v[2], before_[2], value);
        value = silu(lane_, lane_.fma(taps_.v[3], raw[i], value));
        before_[0] = before_[1];
        before_[1] = before_[2];
        before_[2] = raw[i];
        lane_.shared_store(t * params::row_bytes + to, value);
        if (!records(part_)) continue;
        lane_.store(at_.raw + t * g.channels() + channel, raw[i]);
        if (part_ != v_part) continue;
        lane_.store(at_.record.mixed + t * g.channels() + channel, value);
      }
    }
  }

  /// What needs no convolution: silu(z), decay and beta.
  QPN_HD void load_gates() {
    gdn_sizes const& g = p_.memory.sizes;
    if (place_ < span_.rows) {
      gdn_gates const gates = gates_of(lane_, p_, span_.first_row + place_, head_, gate_constants_);
      lane_.shared_store(place_ * params::row_bytes + params::decay_at, gates.decay);
      lane_.shared_store(place_ * params::row_bytes + params::beta_at, gates.beta);
      if (records(z_part)) {
        gdn_rows const record = at_.record;
        lane_.store(record.decay + place_ * g.value_heads + head_, gates.decay);
        lane_.store(record.beta + place_ * g.value_heads + head_, gates.beta);
      }
    }
    if (!has_channel()) return;
    float const* const z =
        rows_ + g.channels() + std::int64_t{head_} * g.value_dim + first_column_ + place_;
    QPN_NO_UNROLL
    for (int first = 0; first < span_.rows; first += rows_at_once) {
      float raw[rows_at_once];
      QPN_UNROLL
      for (int i = 0; i < rows_at_once; ++i) {
        if (first + i < span_.rows) raw[i] = lane_.load(z + (first + i) * p_.qkvz_stride);
      }
      QPN_UNROLL
      for (int i = 0; i < rows_at_once; ++i) {
        if (first + i >= span_.rows) break;
        lane_.shared_store((first + i) * params::row_bytes + params::gates_at + place_ * 4,
                           silu(lane_, raw[i]));
      }
    }
  }

  /// The norm of q and k, a warp for each of a row.
  QPN_HD void scale_keys() {
    constexpr int per_lane = gdn_key_dim / warp_size;
    int const id = lane_.thread() % warp_size;
    QPN_NO_UNROLL
    for (int task = lane_.thread() / warp_size; task < 2 * span_.rows;
         task += params::threads / warp_size) {
      int const row = task / 2;
      int const part = task % 2;
      int const at = row * params::row_bytes + key_at(part) + id * 4;
      float value[per_lane];
      float square = 0;
      QPN_UNROLL
      for (int j = 0; j < per_lane; ++j) {
        value[j] = lane_.template shared_load<float>(at + warp_size * 4 * j);
        square = lane_.fma(value[j], value[j], square);
      }
      float const scale = scale_of_keys(lane_, part == q_part, square);
      QPN_UNROLL
      for (int j = 0; j < per_lane; ++j) {
        value[j] *= scale;
        lane_.shared_store(at + warp_size * 4 * j, value[j]);
      }
      if (!records(part)) continue;
      float* const record =
          at_.record.mixed + row * p_.memory.sizes.channels() + channel_of(part, id);
      QPN_UNROLL
      for (int j = 0; j < per_lane; ++j) lane_.store(record + warp_size * j, value[j]);
    }
  }

  [[nodiscard]] QPN_HD bool has_columns() const { return column_ < columns_; }
  /// Of the lane's columns, the first key's.
  [[nodiscard]] QPN_HD float* columns() const {
    std::int64_t const keys = std::int64_t{head_} * gdn_key_dim;
    return at_.s + keys * p_.memory.sizes.value_dim + first_column_ + column_;
  }
  /// From there to the lane's i-th key.
  [[nodiscard]] QPN_HD int key_step(int i) const {
    return gdn_key(gdn_share(lane_), i) * p_.memory.sizes.value_dim;
  }
  QPN_HD void store_columns(float const (&s)[gdn_lane_keys][lane_columns]) {
    if (!has_columns()) return;
    QPN_UNROLL
    for (int i = 0; i < gdn_lane_keys; ++i) {
      cuda::store_columns(lane_, columns() + key_step(i), s[i]);
    }
  }
  QPN_HD void advance_row(int at, float (&s)[gdn_lane_keys][lane_columns]) {
    gdn_column_inputs<lane_columns> own{};
    own.decay = lane_.template shared_load<float>(at + params::decay_at);
    own.beta = lane_.template shared_load<float>(at + params::beta_at);
    int const columns_at = at + column_ * 4;
    if (has_columns()) {
      if constexpr (lane_columns == 1) {
        own.v[0] = lane_.template shared_load<float>(columns_at + params::values_at);
      } else {
        auto const v = lane_.template shared_load<columns_of_key>(columns_at + params::values_at);
        own.v[0] = v.low;
        own.v[1] = v.high;
      }
    }
    float out[lane_columns];
    advance_columns(lane_, at + params::keys_at, own, s, out);
    if (gdn_share(lane_) != 0 || !has_columns()) return;
    int const outputs_at = columns_at + params::outputs_at + first_column_ * 4;
    if constexpr (lane_columns == 1) {
      lane_.shared_store(outputs_at, out[0]);
      lane_.peer_store(outputs_at, out[0]);
    } else {
      lane_.shared_store(outputs_at, columns_of_key{out[0], out[1]});
    }
  }

  QPN_HD void norm() {
    constexpr int warps = params::threads / warp_size;
    // The warps of z first: they have nothing to shift.
    int const first = (lane_.thread() + params::most_columns) / warp_size % warps;
    QPN_NO_UNROLL
    for (int t = first; t < span_.rows; t += warps) norm_row(t);
  }
  QPN_HD void norm_row(int t) {
    gdn_sizes const& g = p_.memory.sizes;
    constexpr int per_lane = params::most_value_dim / warp_size;
    int const id = lane_.thread() % warp_size;
    int const row_at = t * params::row_bytes;
    auto const shared = [&](int at, int d) {
      return lane_.template shared_load<float>(at + d * 4);
    };
    float value[per_lane];
    float const scale = take_head_values(
        lane_, g, [&](int d) { return shared(row_at + params::outputs_at, d); }, value);
    QPN_UNROLL
    for (int j = 0; j < per_lane; ++j) {
      int const d = id + warp_size * j;
      int const own = d - first_column_;
      if (own < 0 || own >= columns_) continue;
      store_value(lane_, p_.out, span_.first_row + t, std::int64_t{head_} * g.value_dim + d,
                  value[j] * scale * shared(params::weights_at, own) *
                      shared(row_at + params::gates_at, own));
    }
  }

  // The convolution's state of a key head is read by the CTAs of all its value heads, and changed
  // by the last of them to arrive, so that none waits. No fence is wanted: a CTA arrives behind a
  // barrier at which all that it read is in shared memory, and writes the state only when it has
  // counted. The warp that counts has no columns, and waits while others advance theirs.

  [[nodiscard]] QPN_HD bool counts() const {
    return span_.tentative == 0 && lane_.thread() == params::threads - warp_size;
  }
  [[nodiscard]] QPN_HD std::uint32_t* arrivals() const {
    return p_.arrivals + std::int64_t{span_.lane} * p_.memory.sizes.key_heads + head_ / group_;
  }
  [[nodiscard]] QPN_HD std::uint32_t last_arrival() const {
    return static_cast<std::uint32_t>(group_ * Ctas - 1);
  }
  /// How many CTAs came before, for the thread that counts.
  [[nodiscard]] QPN_HD std::uint32_t arrive() {
    return counts() ? lane_.atomic_wrap(arrivals(), last_arrival()) : 0;
  }
  QPN_HD void tell_whether_last(std::uint32_t arrived) {
    if (!counts()) return;
    lane_.shared_store(params::last_at, std::uint32_t{arrived == last_arrival() ? 1U : 0U});
  }
  QPN_HD void shift() {
    if (part_ == z_part || !has_channel()) return;
    if (part_ < v_part && lane_.template shared_load<std::uint32_t>(params::last_at) == 0) return;
    shift_channel(lane_, p_.memory.sizes, at_.conv, rows_, p_.qkvz_stride, span_.rows,
                  channel_of(part_, place_));
  }

  Lane& lane_;
  params const& p_;
  span_entry span_;
  gdn_lane at_;
  float const* rows_;  ///< of the span
  int head_;
  int group_;         ///< value heads of a key head
  int columns_;       ///< of the CTA: of v, z and S
  int first_column_;  ///< of these, in the head
  int column_;        ///< of S, the first of the lane's among the CTA's
  int part_;          ///< q, k, v or z
  int place_;         ///< in that part
  float4_pack taps_{};
  gdn_gate_constants gate_constants_;
  float before_[params::kernel - 1] = {};  ///< inputs of the channel before the span
};

template <int Ctas, class Lane>
QPN_HD void run_program(Lane& lane, gdn_short_params<Ctas> const& p) {
  float s[gdn_lane_keys][gdn_short_params<Ctas>::lane_columns] = {};
  gdn_short_head<Ctas, Lane> start(lane, p);
  int const rows = start.rows();
  if (!p.state_is_there) lane.wait_previous();
  if (rows > 0) {
    start.load_columns(s);
    start.load_channel();
  }
  if constexpr (Ctas != 1) lane.arrive_cluster();
  if (p.state_is_there) lane.wait_previous();
  if constexpr (Ctas != 1) lane.wait_cluster();  // the other CTA runs, and so takes stores
  if (rows == 0) return;
  start.prepare();
  start.fetch_ahead();
  start.advance(rows, s);
  // Made again, since what it holds would take registers from S until here.
  gdn_short_head<Ctas, Lane>(lane, p).finish(s);
}

}  // namespace qwen38::ops::cuda
