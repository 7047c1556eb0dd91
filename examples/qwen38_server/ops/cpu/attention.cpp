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

/// [layer][page][kv head][slot][head_dim], keys and values apart.
class cpu_kv_cache final : public kv_cache {
 public:
  cpu_kv_cache(attention_shape const& wanted, std::int64_t layers, std::int64_t page_count)
      : shape(wanted),
        pages(page_count),
        page_stride(wanted.num_kv_heads * kv_page_tokens * wanted.head_dim),
        keys_(static_cast<std::size_t>(layers * pages * page_stride)),
        values_(static_cast<std::size_t>(layers * pages * page_stride)) {}

  /// Offset of a slot's row, for a span whose pages were checked.
  [[nodiscard]] std::int64_t offset(std::int64_t layer, std::int64_t kv_head, std::int64_t slot,
                                    row_span const& span) const {
    std::int64_t const page = span.pages[static_cast<std::size_t>(slot / kv_page_tokens)];
    return head_offset(layer, kv_head) + page * page_stride +
           slot % kv_page_tokens * shape.head_dim;
  }
  [[nodiscard]] std::uint16_t* keys() const noexcept { return keys_.data(); }
  [[nodiscard]] std::uint16_t* values() const noexcept { return values_.data(); }
  [[nodiscard]] paged_head head(std::int64_t layer, std::int64_t kv_head, std::int64_t slot_offset,
                                row_span const& span) const {
    std::int64_t const start = head_offset(layer, kv_head);
    return {keys() + start, values() + start,  page_stride,
            kv_page_tokens, span.pages.data(), slot_offset};
  }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override {
    return keys_.bytes() + values_.bytes();
  }

  /// Refuses spans whose slots no page of the pool holds.
  void check(std::span<row_span const> spans, std::int64_t slot_offset) const {
    for (row_span const& span : spans) {
      std::int64_t const slots = span.position + span.rows + slot_offset;
      bool held = slots <= std::ssize(span.pages) * kv_page_tokens;
      for (std::int64_t i = 0; held && i * kv_page_tokens < slots; ++i) {
        std::int32_t const page = span.pages[static_cast<std::size_t>(i)];
        held = page >= 0 && page < pages;
      }
      if (held) continue;
      throw error(error_kind::internal, "KV cache: lane " + std::to_string(span.lane) + " needs " +
                                            std::to_string(slots) + " slots, but its " +
                                            std::to_string(span.pages.size()) + " pages of " +
                                            std::to_string(kv_page_tokens) + " in a pool of " +
                                            std::to_string(pages) + " do not hold them");
    }
  }

  attention_shape const shape;
  std::int64_t const pages;
  std::int64_t const page_stride;  ///< values of a page in one layer

 private:
  [[nodiscard]] std::int64_t head_offset(std::int64_t layer, std::int64_t kv_head) const {
    return layer * pages * page_stride + kv_head * kv_page_tokens * shape.head_dim;
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
                                            std::int64_t pages) {
  if (shape.head_dim % head_dim_step != 0) {
    throw error(error_kind::unsupported, "head_dim " + std::to_string(shape.head_dim) +
                                             ": the CPU backend expects a multiple of " +
                                             std::to_string(head_dim_step));
  }
  return std::make_unique<cpu_kv_cache>(shape, layers, pages);
}

void cpu_store_kv(qpn::cpu::thread_pool& pool, kv_cache& cache, std::int64_t layer,
                  cpu_pass const& p, tensor const& kv, constants const& k_norm) {
  std::span<row_span const> const spans = p.spans();
  std::int64_t const slot_offset = p.slot_offset();
  cpu_kv_cache const& c = as_cpu(cache);
  c.check(spans, slot_offset);
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
      std::int64_t const target = c.offset(layer, head, position + slot_offset, span);
      store_f16(key, s.head_dim, c.keys() + target);
      store_f16(source + (s.num_kv_heads + head) * s.head_dim, s.head_dim, c.values() + target);
    }
  });
}

void cpu_attention(qpn::cpu::thread_pool& pool, kv_cache const& cache, std::int64_t layer,
                   cpu_pass const& p, tensor const& q_gate, constants const& q_norm,
                   tensor const& out) {
  std::span<row_span const> const spans = p.spans();
  std::int64_t const slot_offset = p.slot_offset();
  cpu_kv_cache const& c = as_cpu(cache);
  c.check(spans, slot_offset);
  attention_shape const& s = c.shape;
  std::int64_t const group = s.num_heads / s.num_kv_heads;
  for_each_index(pool, std::ssize(spans) * s.num_kv_heads, [&](std::int64_t index) {
    auto const [span, kv_head] = pick(spans, s.num_kv_heads, index);
    paged_head const keys = c.head(layer, kv_head, slot_offset, span);
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
        attend(query, keys, position + 1, s.head_dim, scores, target);
        float const* const gate = source + s.head_dim;
        for (std::int64_t j = 0; j < s.head_dim; ++j) target[j] *= sigmoid(gate[j]);
      }
    }
  });
}

}  // namespace qwen38::ops::cpu
