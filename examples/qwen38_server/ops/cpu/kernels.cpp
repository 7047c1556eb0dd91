// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/kernels.hpp"

#include <cmath>

#include "ops/cpu/simd.hpp"

namespace qwen38::ops::cpu {

float sigmoid(float x) noexcept {
  return 1.0F / (1.0F + std::exp(-x));
}

QWEN38_CPU_VERSIONS void rms_norm_row(float const* x, float const* w, std::int64_t count, float eps,
                                      bool unit_offset, float* y) {
  float const mean = dot(x, x, count) / static_cast<float>(count);
  float const scale = 1.0F / std::sqrt(mean + eps);
  float const offset = unit_offset ? 1.0F : 0.0F;
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * scale * (offset + w[i]);
}

void rope_angles(std::int64_t position, std::int64_t rotary_dim, double theta, float* cosine,
                 float* sine) {
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    double const exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    double const angle = static_cast<double>(position) * std::pow(theta, exponent);
    cosine[i] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(std::sin(angle));
  }
}

void rotate_head(float* head, std::int64_t rotary_dim, float const* cosine, float const* sine) {
  std::int64_t const half = rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    float const low = head[i];
    float const high = head[i + half];
    head[i] = low * cosine[i] - high * sine[i];
    head[i + half] = high * cosine[i] + low * sine[i];
  }
}

namespace {

/// Keys t .. end - 1 lie together, `offset` values after those of the head in page 0.
struct page_run {
  std::int64_t end;
  std::int64_t offset;
};

QWEN38_INLINE page_run run_at(paged_head const& cache, std::int64_t t, std::int64_t context,
                              std::int64_t head_dim) {
  std::int64_t const slot = cache.first_slot + t;
  std::int64_t const row = slot % cache.page_tokens;
  std::int64_t const end = t + cache.page_tokens - row;
  std::int64_t const page = cache.pages[slot / cache.page_tokens];
  return {end < context ? end : context, page * cache.page_stride + row * head_dim};
}

}  // namespace

QWEN38_CPU_VERSIONS void attend(float const* query, paged_head const& cache, std::int64_t context,
                                std::int64_t head_dim, float* scores, float* out) {
  float const scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  float largest = -INFINITY;
  for (std::int64_t t = 0; t < context;) {
    page_run const run = run_at(cache, t, context, head_dim);
    std::uint16_t const* key = cache.keys + run.offset;
    for (; t < run.end; ++t, key += head_dim) {
      f32x8 even{};
      f32x8 odd{};
      for (std::int64_t i = 0; i < head_dim; i += 2 * simd_width) {
        f32x8 a;
        f32x8 b;
        load(query + i, a);
        load_f16(key + i, b);
        even += a * b;
        load(query + i + simd_width, a);
        load_f16(key + i + simd_width, b);
        odd += a * b;
      }
      even += odd;
      scores[t] = horizontal_sum(even) * scale;
      largest = scores[t] > largest ? scores[t] : largest;
    }
  }
  float mass = 0;
  for (std::int64_t t = 0; t < context; ++t) {
    scores[t] = std::exp(scores[t] - largest);
    mass += scores[t];
  }
  float const inverse = 1.0F / mass;
  // 64 values at a time keep their sums in registers while the rows stream by.
  constexpr std::int64_t width = 8 * simd_width;
  for (std::int64_t first = 0; first < head_dim; first += width) {
    std::int64_t const vectors = (head_dim - first < width ? head_dim - first : width) / simd_width;
    f32x8 sums[8] = {};
    for (std::int64_t t = 0; t < context;) {
      page_run const run = run_at(cache, t, context, head_dim);
      std::uint16_t const* value = cache.values + run.offset + first;
      for (; t < run.end; ++t, value += head_dim) {
        f32x8 weight;
        broadcast(scores[t], weight);
        for (std::int64_t j = 0; j < vectors; ++j) {
          f32x8 v;
          load_f16(value + j * simd_width, v);
          sums[j] += weight * v;
        }
      }
    }
    for (std::int64_t j = 0; j < vectors; ++j)
      store(sums[j] * inverse, out + first + j * simd_width);
  }
}

namespace {

/// Vectors is the number of f32x8 that hold the columns, so that u and the sums stay in registers.
template <int Vectors>
QWEN38_INLINE void advance(gdn_columns const& c) {
  for (std::int64_t t = 0; t < c.rows; ++t) {
    float const* q = c.q + t * c.row_stride;
    float const* k = c.k + t * c.row_stride;
    float const* v = c.v + t * c.row_stride;
    float const decay = c.decay[t * c.gate_stride];
    float const beta = c.beta[t * c.gate_stride];
    f32x8 u[Vectors] = {};
    for (std::int64_t i = 0; i < c.key_dim; ++i) {
      float* row = c.s + i * c.s_stride;
      for (int j = 0; j < Vectors; ++j) {
        f32x8 s;
        load(row + j * simd_width, s);
        s *= decay;
        store(s, row + j * simd_width);
        u[j] += s * k[i];
      }
    }
    for (int j = 0; j < Vectors; ++j) {
      f32x8 value;
      load(v + j * simd_width, value);
      u[j] = (value - u[j]) * beta;
    }
    f32x8 o[Vectors] = {};
    for (std::int64_t i = 0; i < c.key_dim; ++i) {
      float* row = c.s + i * c.s_stride;
      for (int j = 0; j < Vectors; ++j) {
        f32x8 s;
        load(row + j * simd_width, s);
        s += u[j] * k[i];
        store(s, row + j * simd_width);
        o[j] += s * q[i];
      }
    }
    if (c.out != nullptr) {
      for (int j = 0; j < Vectors; ++j) store(o[j], c.out + t * c.out_stride + j * simd_width);
    }
  }
}

}  // namespace

QWEN38_CPU_VERSIONS void gdn_recurrence(gdn_columns const& c) {
  if (c.columns == gdn_block) {
    advance<gdn_block / simd_width>(c);
    return;
  }
  gdn_columns part = c;
  part.columns = simd_width;
  for (std::int64_t first = 0; first < c.columns; first += simd_width) {
    part.s = c.s + first;
    part.v = c.v + first;
    part.out = c.out == nullptr ? nullptr : c.out + first;
    advance<1>(part);
  }
}

}  // namespace qwen38::ops::cpu
