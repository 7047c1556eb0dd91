// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "ops/cpu/context.hpp"
#include "ops/cpu/kernels.hpp"
#include "support/error.hpp"

namespace qwen38::ops::cpu {
namespace {

/// [layer][lane][kv head][position][head_dim], keys and values apart.
class cpu_kv_cache final : public kv_cache {
 public:
  cpu_kv_cache(attention_shape const& wanted, std::int64_t layers, std::int64_t lane_count,
               std::int64_t context)
      : shape(wanted),
        lanes(lane_count),
        max_context(context),
        keys_(elements(layers)),
        values_(elements(layers)) {}

  [[nodiscard]] std::uint16_t* keys(std::int64_t layer, int lane, std::int64_t kv_head) const {
    return keys_.data() + offset(layer, lane, kv_head);
  }
  [[nodiscard]] std::uint16_t* values(std::int64_t layer, int lane, std::int64_t kv_head) const {
    return values_.data() + offset(layer, lane, kv_head);
  }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override {
    return keys_.bytes() + values_.bytes();
  }

  attention_shape const shape;
  std::int64_t const lanes;
  std::int64_t const max_context;

 private:
  [[nodiscard]] std::size_t elements(std::int64_t layers) const {
    return static_cast<std::size_t>(layers * lanes * shape.num_kv_heads * max_context *
                                    shape.head_dim);
  }
  [[nodiscard]] std::int64_t offset(std::int64_t layer, int lane, std::int64_t kv_head) const {
    return ((layer * lanes + lane) * shape.num_kv_heads + kv_head) * max_context * shape.head_dim;
  }

  zeroed_array<std::uint16_t> keys_;
  zeroed_array<std::uint16_t> values_;
};

cpu_kv_cache const& as_cpu(kv_cache const& cache) {
  return static_cast<cpu_kv_cache const&>(cache);
}

/// One unit of work: the rows of one span and one kv head.
struct head_task {
  row_span const& span;
  std::int64_t kv_head;
};

head_task pick(std::span<row_span const> spans, std::int64_t num_kv_heads, std::int64_t index) {
  return {spans[static_cast<std::size_t>(index / num_kv_heads)], index % num_kv_heads};
}

/// Scratch of one thread, grown as needed and kept.
float* scratch(std::int64_t count) {
  thread_local std::vector<float> memory;
  if (std::ssize(memory) < count) memory.resize(static_cast<std::size_t>(count));
  return memory.data();
}

void store_f16(float const* from, std::int64_t count, std::uint16_t* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = qpn::encode_f16_saturating(from[i]);
}

}  // namespace

std::unique_ptr<kv_cache> make_cpu_kv_cache(attention_shape const& shape, std::int64_t layers,
                                            std::int64_t lanes, std::int64_t max_context) {
  if (shape.head_dim % head_dim_step != 0) {
    throw error(error_kind::unsupported, "head_dim " + std::to_string(shape.head_dim) +
                                             ": the CPU backend expects a multiple of " +
                                             std::to_string(head_dim_step));
  }
  return std::make_unique<cpu_kv_cache>(shape, layers, lanes, max_context);
}

void cpu_store_kv(qpn::cpu::thread_pool& pool, kv_cache& cache, std::int64_t layer,
                  std::span<row_span const> spans, tensor const& kv, constants const& k_norm) {
  cpu_kv_cache const& c = as_cpu(cache);
  attention_shape const& s = c.shape;
  for_each_index(pool, std::ssize(spans) * s.num_kv_heads, [&](std::int64_t index) {
    auto const [span, head] = pick(spans, s.num_kv_heads, index);
    float* const key = scratch(s.head_dim + s.rotary_dim);
    float* const cosine = key + s.head_dim;
    float* const sine = cosine + s.rotary_dim / 2;
    for (std::int64_t i = 0; i < span.rows; ++i) {
      float const* const source = row(kv, span.first_row + i);
      std::int64_t const position = span.position + i;
      rms_norm_row(source + head * s.head_dim, values(k_norm), s.head_dim, s.eps, true, key);
      rope_angles(position, s.rotary_dim, s.rope_theta, cosine, sine);
      rotate_head(key, s.rotary_dim, cosine, sine);
      store_f16(key, s.head_dim, c.keys(layer, span.lane, head) + position * s.head_dim);
      store_f16(source + (s.num_kv_heads + head) * s.head_dim, s.head_dim,
                c.values(layer, span.lane, head) + position * s.head_dim);
    }
  });
}

void cpu_attention(qpn::cpu::thread_pool& pool, kv_cache const& cache, std::int64_t layer,
                   std::span<row_span const> spans, tensor const& q_gate, constants const& q_norm,
                   tensor const& out) {
  cpu_kv_cache const& c = as_cpu(cache);
  attention_shape const& s = c.shape;
  std::int64_t const group = s.num_heads / s.num_kv_heads;
  for_each_index(pool, std::ssize(spans) * s.num_kv_heads, [&](std::int64_t index) {
    auto const [span, kv_head] = pick(spans, s.num_kv_heads, index);
    float* const query = scratch(s.head_dim + s.rotary_dim + span.position + span.rows);
    float* const cosine = query + s.head_dim;
    float* const sine = cosine + s.rotary_dim / 2;
    float* const scores = query + s.head_dim + s.rotary_dim;
    for (std::int64_t i = 0; i < span.rows; ++i) {
      std::int64_t const position = span.position + i;
      rope_angles(position, s.rotary_dim, s.rope_theta, cosine, sine);
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        float const* const source = row(q_gate, span.first_row + i) + head * 2 * s.head_dim;
        float* const target = row(out, span.first_row + i) + head * s.head_dim;
        rms_norm_row(source, values(q_norm), s.head_dim, s.eps, true, query);
        rotate_head(query, s.rotary_dim, cosine, sine);
        attend(query, c.keys(layer, span.lane, kv_head), c.values(layer, span.lane, kv_head),
               position + 1, s.head_dim, scores, target);
        float const* const gate = source + s.head_dim;
        for (std::int64_t j = 0; j < s.head_dim; ++j) target[j] *= sigmoid(gate[j]);
      }
    }
  });
}

}  // namespace qwen38::ops::cpu
