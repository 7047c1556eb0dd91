// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The lane-free inner functions of the CPU backend, on plain pointers.
namespace qwen38::ops::cpu {

/// y = x * rsqrt(mean(x^2) + eps) * (unit_offset ? 1 + w : w), over `count` values; x may be y.
void rms_norm_row(float const* x, float const* w, std::int64_t count, float eps, bool unit_offset,
                  float* y);

[[nodiscard]] float sigmoid(float x) noexcept;
[[nodiscard]] inline float silu(float x) noexcept {
  return x * sigmoid(x);
}

/// Rotates the first rotary_dim of a head, value i with value i + rotary_dim / 2; cosine and sine
/// per pair.
void rotate_head(float* head, std::int64_t rotary_dim, float const* cosine, float const* sine);
/// Angles position * theta^(-2 i / rotary_dim), i < rotary_dim / 2.
void rope_angles(std::int64_t position, std::int64_t rotary_dim, double theta, float* cosine,
                 float* sine);

/// head_dim of attend() is a multiple of this.
inline constexpr std::int64_t head_dim_step = 16;

/// One head's keys and values of a sequence: fp16 rows [page_tokens][head_dim] in each page.
struct paged_head {
  std::uint16_t const* keys;    ///< of page 0
  std::uint16_t const* values;  ///< of page 0
  std::int64_t page_stride;     ///< values from one page to the next
  std::int64_t page_tokens;
  std::int32_t const* pages;  ///< slot s is row s % page_tokens of page pages[s / page_tokens]
  std::int64_t first_slot;    ///< where the keys begin
};

/// Softmax attention of one query row and head over `context` keys. scores: scratch [context].
/// Order of every sum depends on context and head_dim alone.
void attend(float const* query, paged_head const& cache, std::int64_t context,
            std::int64_t head_dim, float* scores, float* out);

/// Columns of S advanced together: 128 x 32 fp32 stay in the first-level cache.
inline constexpr std::int64_t gdn_block = 32;
/// value_dim of gdn_recurrence() is a multiple of this.
inline constexpr std::int64_t value_dim_step = 8;

/// One value head's gated delta rule on `columns` <= gdn_block columns of S over `rows` tokens:
///   S <- decay S;  u = beta (v - S^T k);  S <- S + k u^T;  out = S^T q.
/// s [key_dim][s_stride]; q, k [rows] with row_stride; v and out likewise; out may be null
/// (replay).
struct gdn_columns {
  float* s;
  std::int64_t s_stride;
  std::int64_t key_dim;
  std::int64_t columns;
  std::int64_t rows;
  float const* q;
  float const* k;
  float const* v;
  std::int64_t row_stride;  ///< of q, k, v
  float const* decay;
  float const* beta;
  std::int64_t gate_stride;  ///< of decay, beta
  float* out;
  std::int64_t out_stride;
};
void gdn_recurrence(gdn_columns const& c);

}  // namespace qwen38::ops::cpu
