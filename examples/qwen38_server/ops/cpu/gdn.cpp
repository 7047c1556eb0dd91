// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "ops/cpu/context.hpp"
#include "ops/cpu/kernels.hpp"
#include "ops/cpu/simd.hpp"
#include "support/error.hpp"

namespace qwen38::ops::cpu {
namespace {

constexpr std::int64_t max_conv_kernel = 16;

/// State and record of one (layer, lane).
struct lane_state {
  float* s;      ///< [value head][key_dim][value_dim]
  float* conv;   ///< [conv_kernel - 1][conv_channels], raw, oldest first
  float* raw;    ///< record [row][conv_channels]: what entered the convolution
  float* mixed;  ///< record [row][conv_channels]: q | k | v after convolution, SiLU and norms
  float* decay;  ///< record [row][value head]
  float* beta;   ///< record [row][value head]
};

class cpu_gdn_state final : public gdn_state {
 public:
  cpu_gdn_state(gdn_shape const& wanted, std::int64_t layer_count, std::int64_t lane_count,
                std::int64_t rows, std::int64_t places)
      : shape(wanted),
        layers(layer_count),
        lanes(lane_count),
        record_rows(rows),
        snapshots(places),
        s_(count(shape.num_value_heads * shape.key_dim * shape.value_dim)),
        conv_(count((shape.conv_kernel - 1) * shape.conv_channels())),
        raw_(count(rows * shape.conv_channels())),
        mixed_(count(rows * shape.conv_channels())),
        decay_(count(rows * shape.num_value_heads)),
        beta_(count(rows * shape.num_value_heads)),
        saved_(static_cast<std::size_t>(layers * snapshots * (s_values() + conv_values()))) {}

  [[nodiscard]] lane_state at(std::int64_t layer, int lane) const {
    std::size_t const index = static_cast<std::size_t>(layer * lanes + lane);
    auto const part = [&](zeroed_array<float> const& all) {
      return all.data() + index * (all.size() / static_cast<std::size_t>(layers * lanes));
    };
    return {part(s_), part(conv_), part(raw_), part(mixed_), part(decay_), part(beta_)};
  }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override {
    return s_.bytes() + conv_.bytes() + raw_.bytes() + mixed_.bytes() + decay_.bytes() +
           beta_.bytes() + saved_.bytes();
  }
  /// Per layer and lane.
  [[nodiscard]] std::int64_t s_values() const noexcept {
    return shape.num_value_heads * shape.key_dim * shape.value_dim;
  }
  [[nodiscard]] std::int64_t conv_values() const noexcept {
    return (shape.conv_kernel - 1) * shape.conv_channels();
  }
  /// S, then the columns, of one layer in a snapshot.
  [[nodiscard]] float* saved(std::int64_t layer, std::int64_t snapshot) const {
    if (snapshot < 0 || snapshot >= snapshots) {
      throw error(error_kind::internal, "gdn: snapshot " + std::to_string(snapshot) +
                                            " is none of the " + std::to_string(snapshots) +
                                            " places");
    }
    return saved_.data() + (snapshot * layers + layer) * (s_values() + conv_values());
  }

  gdn_shape const shape;
  std::int64_t const layers;
  std::int64_t const lanes;
  std::int64_t const record_rows;
  std::int64_t const snapshots;

 private:
  [[nodiscard]] std::size_t count(std::int64_t per_lane) const {
    return static_cast<std::size_t>(layers * lanes * per_lane);
  }

  zeroed_array<float> s_, conv_, raw_, mixed_, decay_, beta_;
  zeroed_array<float> saved_;
};

cpu_gdn_state& as_cpu(gdn_state& state) {
  return static_cast<cpu_gdn_state&>(state);
}

/// Rows of a pass whose record lies in `memory`; spans that are final at once use scratch of the
/// same form.
struct row_record {
  float* mixed;
  float* decay;
  float* beta;
};

/// silu(sum_j taps[c][j] column[j][c]) over all channels; columns[j] points to the raw column of
/// tap j, of the pass or of the state.
QWEN38_CPU_VERSIONS void convolve(float const* const* columns, float const* taps,
                                  std::int64_t kernel, std::int64_t channels, float* out) {
  for (std::int64_t c = 0; c < channels; ++c) {
    float sum = 0;
    for (std::int64_t j = 0; j < kernel; ++j) sum += taps[c * kernel + j] * columns[j][c];
    out[c] = sum;
  }
}

void l2_normalise(float* head, std::int64_t count, float scale) {
  float const factor = scale / std::sqrt(dot(head, head, count) + 1e-6F);
  for (std::int64_t i = 0; i < count; ++i) head[i] *= factor;
}

float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

/// Keeps the last kernel - 1 columns of [old columns, rows new ones].
void shift_columns(float* conv, float const* raw, std::int64_t raw_stride, std::int64_t rows,
                   std::int64_t kept, std::int64_t channels) {
  std::size_t const column_bytes = static_cast<std::size_t>(channels) * sizeof(float);
  for (std::int64_t j = 0; j < kept; ++j) {
    std::int64_t const from = j + rows;  // index into [old columns, new rows]
    float const* const source =
        from < kept ? conv + from * channels : raw + (from - kept) * raw_stride;
    std::memmove(conv + j * channels, source, column_bytes);
  }
}

gdn_columns columns_of(gdn_shape const& g, float* s, std::int64_t head, std::int64_t first_column,
                       std::int64_t columns, row_record const& record, std::int64_t rows) {
  std::int64_t const key_head = head / (g.num_value_heads / g.num_key_heads);
  gdn_columns c{};
  c.s = s + head * g.key_dim * g.value_dim + first_column;
  c.s_stride = g.value_dim;
  c.key_dim = g.key_dim;
  c.columns = columns;
  c.rows = rows;
  c.q = record.mixed + key_head * g.key_dim;
  c.k = record.mixed + g.key_channels() + key_head * g.key_dim;
  c.v = record.mixed + 2 * g.key_channels() + head * g.value_dim + first_column;
  c.row_stride = g.conv_channels();
  c.decay = record.decay + head;
  c.beta = record.beta + head;
  c.gate_stride = g.num_value_heads;
  return c;
}

struct block_task {
  std::int64_t outer;
  std::int64_t head;
  std::int64_t first_column;
  std::int64_t columns;
};

std::int64_t blocks_per_head(gdn_shape const& g) {
  return (g.value_dim + gdn_block - 1) / gdn_block;
}

block_task pick(gdn_shape const& g, std::int64_t index) {
  std::int64_t const blocks = blocks_per_head(g);
  std::int64_t const first = index % blocks * gdn_block;
  return {index / blocks / g.num_value_heads, index / blocks % g.num_value_heads, first,
          std::min(gdn_block, g.value_dim - first)};
}

}  // namespace

std::unique_ptr<gdn_state> make_cpu_gdn_state(gdn_shape const& shape, std::int64_t layers,
                                              std::int64_t lanes, std::int64_t max_tentative_rows,
                                              std::int64_t snapshots) {
  if (shape.value_dim % value_dim_step != 0) {
    throw error(error_kind::unsupported,
                "linear_value_head_dim " + std::to_string(shape.value_dim) +
                    ": the CPU backend expects a multiple of " + std::to_string(value_dim_step));
  }
  if (shape.conv_kernel > max_conv_kernel) {
    throw error(error_kind::unsupported,
                "linear_conv_kernel_dim " + std::to_string(shape.conv_kernel) +
                    ": the CPU backend expects at most " + std::to_string(max_conv_kernel));
  }
  return std::make_unique<cpu_gdn_state>(shape, layers, lanes, max_tentative_rows, snapshots);
}

void cpu_gdn(qpn::cpu::thread_pool& pool, gdn_state& state, std::int64_t layer,
             std::span<row_span const> spans, tensor const& qkvz, tensor const& ba,
             gdn_weights const& w, tensor const& out) {
  cpu_gdn_state& all = as_cpu(state);
  gdn_shape const& g = all.shape;
  std::int64_t const channels = g.conv_channels();
  std::int64_t const heads = g.num_value_heads;

  // Where each row's convolved values and gates go: a tentative span's into its record, others into
  // scratch.
  thread_local std::vector<float> scratch;
  scratch.resize(static_cast<std::size_t>(qkvz.rows * (channels + 2 * heads)));
  std::vector<row_record> records;
  std::vector<std::int64_t> row_to_span(static_cast<std::size_t>(qkvz.rows));
  records.reserve(spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    row_span const& span = spans[i];
    if (span.tentative) {
      assert(span.rows <= all.record_rows);
      lane_state const lane = all.at(layer, span.lane);
      records.push_back({lane.mixed, lane.decay, lane.beta});
    } else {
      float* const gates = scratch.data() + qkvz.rows * channels;
      records.push_back({scratch.data() + span.first_row * channels, gates + span.first_row * heads,
                         gates + (qkvz.rows + span.first_row) * heads});
    }
    std::fill_n(row_to_span.begin() + span.first_row, span.rows, static_cast<std::int64_t>(i));
  }

  for_each_index(pool, qkvz.rows, [&](std::int64_t r) {
    std::size_t const index = static_cast<std::size_t>(row_to_span[static_cast<std::size_t>(r)]);
    row_span const& span = spans[index];
    lane_state const lane = all.at(layer, span.lane);
    std::int64_t const i = r - span.first_row;
    float const* columns[max_conv_kernel];
    for (std::int64_t j = 0; j < g.conv_kernel; ++j) {
      std::int64_t const source =
          i - (g.conv_kernel - 1) + j;  // row of the pass; negative: from the state
      columns[j] = source >= 0 ? row(qkvz, span.first_row + source)
                               : lane.conv + (source + g.conv_kernel - 1) * channels;
    }
    float* const mixed = records[index].mixed + i * channels;
    convolve(columns, values(*w.conv), g.conv_kernel, channels, mixed);
    for (std::int64_t c = 0; c < channels; ++c) mixed[c] = silu(mixed[c]);
    float const query_scale = 1.0F / std::sqrt(static_cast<float>(g.key_dim));
    for (std::int64_t h = 0; h < g.num_key_heads; ++h) {
      l2_normalise(mixed + h * g.key_dim, g.key_dim, query_scale);
      l2_normalise(mixed + g.key_channels() + h * g.key_dim, g.key_dim, 1.0F);
    }
    float const* const b = row(ba, r);
    float const* const a = b + heads;
    for (std::int64_t h = 0; h < heads; ++h) {
      records[index].beta[i * heads + h] = sigmoid(b[h]);
      float const rate = -std::exp(values(*w.a_log)[h]) * softplus(a[h] + values(*w.dt_bias)[h]);
      records[index].decay[i * heads + h] = std::exp(rate);
    }
    if (span.tentative) std::copy_n(row(qkvz, r), channels, lane.raw + i * channels);
  });

  std::int64_t const tasks = std::ssize(spans) * heads * blocks_per_head(g);
  for_each_index(pool, tasks, [&](std::int64_t index) {
    auto const [span_index, head, first, columns] = pick(g, index);
    row_span const& span = spans[static_cast<std::size_t>(span_index)];
    lane_state const lane = all.at(layer, span.lane);
    gdn_columns c = columns_of(g, lane.s, head, first, columns,
                               records[static_cast<std::size_t>(span_index)], span.rows);
    c.out = row(out, span.first_row) + head * g.value_dim + first;
    c.out_stride = out.stride;
    if (span.tentative) {
      thread_local std::vector<float> copy;
      copy.resize(static_cast<std::size_t>(g.key_dim * columns));
      for (std::int64_t i = 0; i < g.key_dim; ++i) {
        std::copy_n(c.s + i * c.s_stride, columns, copy.data() + i * columns);
      }
      c.s = copy.data();
      c.s_stride = columns;
    }
    gdn_recurrence(c);
  });

  for_each_index(pool, qkvz.rows, [&](std::int64_t r) {
    float const* const z = row(qkvz, r) + channels;
    for (std::int64_t h = 0; h < heads; ++h) {
      float* const o = row(out, r) + h * g.value_dim;
      rms_norm_row(o, values(*w.norm), g.value_dim, g.eps, false, o);
      for (std::int64_t i = 0; i < g.value_dim; ++i) o[i] *= silu(z[h * g.value_dim + i]);
    }
  });

  for (row_span const& span : spans) {
    if (span.tentative || span.rows == 0) continue;
    shift_columns(all.at(layer, span.lane).conv, row(qkvz, span.first_row), qkvz.stride, span.rows,
                  g.conv_kernel - 1, channels);
  }
}

void cpu_gdn_keep(qpn::cpu::thread_pool& pool, gdn_state& state, int lane, std::int64_t rows) {
  cpu_gdn_state& all = as_cpu(state);
  gdn_shape const& g = all.shape;
  for_each_index(
      pool, all.layers * g.num_value_heads * blocks_per_head(g), [&](std::int64_t index) {
        auto const [layer, head, first, columns] = pick(g, index);
        lane_state const at = all.at(layer, lane);
        gdn_recurrence(
            columns_of(g, at.s, head, first, columns, {at.mixed, at.decay, at.beta}, rows));
      });
  for (std::int64_t layer = 0; layer < all.layers; ++layer) {
    lane_state const at = all.at(layer, lane);
    shift_columns(at.conv, at.raw, g.conv_channels(), rows, g.conv_kernel - 1, g.conv_channels());
  }
}

void cpu_gdn_reset(gdn_state& state, int lane) {
  cpu_gdn_state& all = as_cpu(state);
  for (std::int64_t layer = 0; layer < all.layers; ++layer) {
    lane_state const at = all.at(layer, lane);
    std::fill_n(at.s, all.s_values(), 0.0F);
    std::fill_n(at.conv, all.conv_values(), 0.0F);
  }
}

void cpu_gdn_save(gdn_state& state, int lane, std::int64_t snapshot) {
  cpu_gdn_state const& all = as_cpu(state);
  for (std::int64_t layer = 0; layer < all.layers; ++layer) {
    lane_state const at = all.at(layer, lane);
    float* const to = all.saved(layer, snapshot);
    std::copy_n(at.s, all.s_values(), to);
    std::copy_n(at.conv, all.conv_values(), to + all.s_values());
  }
}

void cpu_gdn_load(gdn_state& state, int lane, std::int64_t snapshot) {
  cpu_gdn_state const& all = as_cpu(state);
  for (std::int64_t layer = 0; layer < all.layers; ++layer) {
    lane_state const at = all.at(layer, lane);
    float const* const from = all.saved(layer, snapshot);
    std::copy_n(from, all.s_values(), at.s);
    std::copy_n(from + all.s_values(), all.conv_values(), at.conv);
  }
}

}  // namespace qwen38::ops::cpu
