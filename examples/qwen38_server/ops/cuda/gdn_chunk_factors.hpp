// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/gdn_chunks.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// K, Q, T, P and gates of every chunk of a pass, in fp32 and rounded to fp16 at the end. One CTA a
/// chunk and key head: half of its threads multiply K K^T, the others Q K^T; then each of its
/// groups of threads but one has one of the head's value heads.
struct gdn_chunk_factors_params {
  static constexpr int threads = 512;
  static constexpr int min_blocks = 1;
  static constexpr int group_threads = 128;
  static constexpr int heads_at_once = 3;  ///< of values, as many as a key head of Qwen3.8 has

  static constexpr int row_floats = gdn_key_dim + 4;  ///< no bank conflicts
  static constexpr int square_floats = gdn_chunk;
  static constexpr int square_bytes = gdn_chunk * square_floats * 4;
  static constexpr int keys_at = 0;
  static constexpr int queries_at = keys_at + gdn_chunk * row_floats * 4;
  /// Later in the place of K and Q: A and T of the value heads.
  static constexpr int squares_at = 0;
  static constexpr int squares_bytes = 2 * heads_at_once * square_bytes;
  static constexpr int key_products_at = squares_bytes;
  static constexpr int query_products_at = key_products_at + square_bytes;
  static constexpr int gates_at = query_products_at + square_bytes;  ///< {g, G}[heads][64]
  static constexpr int shared_bytes = gates_at + 2 * heads_at_once * gdn_chunk * 4;
  static_assert(queries_at + gdn_chunk * row_floats * 4 <= key_products_at);

  pass_view pass;
  gdn_memory memory;
  gdn_rows rows;
  gdn_chunk_scratch out;
  std::int64_t chunks = 0;  ///< most of any span

  [[nodiscard]] std::int64_t blocks() const {
    return pass.span_count * chunks * memory.sizes.key_heads;
  }
};

/// products[i][j] = x_i . k_j over key_dim. Thread (a, b) of 16 x 16, of which `id` is one, has
/// rows a + 16 m and columns b + 16 n.
template <class Lane>
QPN_HD void multiply_rows(Lane& lane, int id, int x_at, int products_at) {
  using params = gdn_chunk_factors_params;
  int const a = id / 16;
  int const b = id % 16;
  float sums[4][4] = {};
  QPN_NO_UNROLL
  for (int d = 0; d < gdn_key_dim; d += 4) {
    float4_pack x[4];
    QPN_UNROLL
    for (int m = 0; m < 4; ++m) {
      x[m] = lane.template shared_load<float4_pack>(x_at +
                                                    ((a + 16 * m) * params::row_floats + d) * 4);
    }
    QPN_UNROLL
    for (int n = 0; n < 4; ++n) {
      float4_pack const k = lane.template shared_load<float4_pack>(
          params::keys_at + ((b + 16 * n) * params::row_floats + d) * 4);
      QPN_UNROLL
      for (int m = 0; m < 4; ++m) {
        QPN_UNROLL
        for (int e = 0; e < 4; ++e) sums[m][n] = lane.fma(x[m].v[e], k.v[e], sums[m][n]);
      }
    }
  }
  QPN_UNROLL
  for (int m = 0; m < 4; ++m) {
    QPN_UNROLL
    for (int n = 0; n < 4; ++n) {
      lane.shared_store(products_at + ((a + 16 * m) * params::square_floats + b + 16 * n) * 4,
                        sums[m][n]);
    }
  }
}

/// T = (I + A)^-1 by blocks of 16 x 16: those on the diagonal by forward substitution, a thread a
/// column; then, diagonal by diagonal, T_ij = -T_ii sum_{j <= m < i} A_im T_mj. T is 0 before. For
/// `params::group_threads` threads, of which `id` is one; all of the CTA's come here.
template <class Lane>
QPN_HD void invert(Lane& lane, int a_at, int t_at, int id, bool active) {
  constexpr int size = 16;
  constexpr int count = gdn_chunk / size;
  constexpr int threads = gdn_chunk_factors_params::group_threads;
  auto const place = [](int i, int j) {
    return (i * gdn_chunk_factors_params::square_floats + j) * 4;
  };
  if (active && id < gdn_chunk) {
    int const first = id / size * size;
    int const column = id % size;
    float x[size];
    QPN_UNROLL
    for (int i = 0; i < size; ++i) {
      float sum = i == column ? 1.0F : 0.0F;
      QPN_UNROLL
      for (int m = 0; m < i; ++m) {
        float const a = lane.template shared_load<float>(a_at + place(first + i, first + m));
        sum = lane.fma(-a, x[m], sum);
      }
      x[i] = sum;
    }
    QPN_UNROLL
    for (int i = 0; i < size; ++i) {
      lane.shared_store(t_at + place(first + i, first + column), x[i]);
    }
  }
  lane.sync_block();
  QPN_NO_UNROLL
  for (int distance = 1; distance < count; ++distance) {
    constexpr int most = (count - 1) * size * size / threads;  // elements of a thread
    int const elements = active ? (count - distance) * size * size / threads : 0;
    // Two of each block: rows r and r + 8, column c.
    auto const row_of = [&](int e) { return (e / 2 + distance) * size; };
    auto const column_of = [&](int e) { return e / 2 * size; };
    int const r = id / size;
    int const c = id % size;
    QPN_NO_UNROLL
    for (int e = 0; e < elements; ++e) {
      int const i = row_of(e) + r + e % 2 * 8;
      int const j = column_of(e);
      float sum = 0;
      for (int m = j; m < row_of(e); m += 4) {
        float4_pack const a = lane.template shared_load<float4_pack>(a_at + place(i, m));
        QPN_UNROLL
        for (int k = 0; k < 4; ++k) {
          sum = lane.fma(a.v[k], lane.template shared_load<float>(t_at + place(m + k, j + c)), sum);
        }
      }
      lane.shared_store(t_at + place(i, j + c), sum);
    }
    lane.sync_block();
    float x[most];
    QPN_UNROLL
    for (int e = 0; e < most; ++e) {
      if (e >= elements) continue;
      int const first = row_of(e);
      int const i = first + r + e % 2 * 8;
      float sum = 0;
      QPN_UNROLL
      for (int k = 0; k < size; k += 4) {
        float4_pack const t = lane.template shared_load<float4_pack>(t_at + place(i, first + k));
        QPN_UNROLL
        for (int n = 0; n < 4; ++n) {
          float const y =
              lane.template shared_load<float>(t_at + place(first + k + n, column_of(e) + c));
          sum = lane.fma(-t.v[n], y, sum);
        }
      }
      x[e] = sum;
    }
    lane.sync_block();
    QPN_UNROLL
    for (int e = 0; e < most; ++e) {
      if (e >= elements) continue;
      lane.shared_store(t_at + place(row_of(e) + r + e % 2 * 8, column_of(e) + c), x[e]);
    }
    lane.sync_block();
  }
}

template <class Lane>
QPN_HD void run_program(Lane& lane, gdn_chunk_factors_params const& p) {
  using params = gdn_chunk_factors_params;
  gdn_sizes const& g = p.memory.sizes;
  int const key_head = static_cast<int>(lane.block() % g.key_heads);
  std::int64_t const chunk = lane.block() / g.key_heads % p.chunks;
  span_entry const span = lane.load(p.pass.spans + lane.block() / g.key_heads / p.chunks);
  if (chunk >= gdn_chunks_of(span)) return;
  std::int64_t const first_row = span.first_row + chunk * gdn_chunk;
  std::int64_t const place = first_row / gdn_chunk;

  // K and Q: to shared memory, and as operands to scratch.
  std::int64_t const operand = (place * g.key_heads + key_head) * gdn_key_operand;
  QPN_UNROLL
  for (int j = 0; j < gdn_key_operand / 4 / params::threads; ++j) {
    int const i = lane.thread() + j * params::threads;
    int const row = i / (gdn_key_dim / 4);
    int const d = i % (gdn_key_dim / 4) * 4;
    float const* const from =
        p.rows.mixed + (first_row + row) * g.channels() + key_head * gdn_key_dim + d;
    for (int which = 0; which < 2; ++which) {
      bool const is_key = which == 0;
      float4_pack const four =
          lane.load(reinterpret_cast<float4_pack const*>(from + (is_key ? g.key_channels() : 0)));
      lane.shared_store(
          (is_key ? params::keys_at : params::queries_at) + (row * params::row_floats + d) * 4,
          four);
      std::uint16_t* const to = (is_key ? p.out.keys : p.out.queries) + operand;
      struct alignas(8) half4 {
        std::uint32_t w[2];
      };
      lane.store(reinterpret_cast<half4*>(to + row * gdn_key_dim + d),
                 half4{{lane.convert_half2(four.v[0], four.v[1]),
                        lane.convert_half2(four.v[2], four.v[3])}});
    }
  }
  lane.sync_block();
  bool const is_key = lane.thread() < params::threads / 2;
  multiply_rows(lane, lane.thread() % (params::threads / 2),
                is_key ? params::keys_at : params::queries_at,
                is_key ? params::key_products_at : params::query_products_at);

  int const group = g.value_heads / g.key_heads;
  int const own = lane.thread() / params::group_threads;  // of the value heads at once
  int const id = lane.thread() % params::group_threads;
  int const gates_at = params::gates_at + own * 2 * gdn_chunk * 4;
  int const sums_at = gates_at + gdn_chunk * 4;
  int const a_at = params::squares_at + own * 2 * params::square_bytes;
  int const t_at = a_at + params::square_bytes;
  QPN_NO_UNROLL
  for (int first = 0; first < group; first += params::heads_at_once) {
    bool const active = own < params::heads_at_once && first + own < group;
    std::int64_t const head = key_head * std::int64_t{group} + first + own;
    std::int64_t const row_gate = (first_row + id) * g.value_heads + head;
    float beta = 0;
    if (active && id < gdn_chunk) {
      constexpr float least = -80.0F;  // whose exponential is as good as 0
      float const log_decay = lane.log1p(lane.load(p.rows.decay + row_gate) - 1.0F);
      lane.shared_store(gates_at + id * 4, log_decay > least ? log_decay : least);
      beta = lane.load(p.rows.beta + row_gate);
    }
    lane.sync_block();
    if (active && id < gdn_chunk) {
      float sum = 0;
      for (int i = 0; i <= id; ++i) sum += lane.template shared_load<float>(gates_at + i * 4);
      lane.shared_store(sums_at + id * 4, sum);
    }
    lane.sync_block();
    if (active && id < gdn_chunk) {
      float const sum = lane.template shared_load<float>(sums_at + id * 4);
      float const last = lane.template shared_load<float>(sums_at + (gdn_chunk - 1) * 4);
      gdn_chunk_gates* const gates = p.out.gates + place * g.value_heads + head;
      lane.store(gates->before + id, lane.exp(sum));
      lane.store(gates->beta + id, beta);
      lane.store(gates->after + id, lane.exp(last - sum));
      lane.shared_store(gates_at + id * 4, beta);
    }
    lane.sync_block();
    std::int64_t const square = (place * g.value_heads + head) * gdn_row_operand;
    if (active) {
      QPN_NO_UNROLL
      for (int i = 2 * id; i < gdn_row_operand; i += 2 * params::group_threads) {
        int const row = i / gdn_chunk;
        float recall[2] = {};
        QPN_UNROLL
        for (int e = 0; e < 2; ++e) {
          int const column = i % gdn_chunk + e;
          int const at = (row * params::square_floats + column) * 4;
          float a = 0;
          if (column <= row) {
            float const factor = lane.exp(lane.template shared_load<float>(sums_at + row * 4) -
                                          lane.template shared_load<float>(sums_at + column * 4));
            recall[e] = lane.template shared_load<float>(params::query_products_at + at) * factor;
            if (column < row) {
              a = lane.template shared_load<float>(params::key_products_at + at) * factor *
                  lane.template shared_load<float>(gates_at + row * 4);
            }
          }
          lane.shared_store(a_at + at, a);
          lane.shared_store(t_at + at, 0.0F);
        }
        lane.store(reinterpret_cast<std::uint32_t*>(p.out.recall + square + i),
                   lane.convert_half2(recall[0], recall[1]));
      }
    }
    lane.sync_block();
    invert(lane, a_at, t_at, id, active);
    if (active) {
      QPN_NO_UNROLL
      for (int i = 2 * id; i < gdn_row_operand; i += 2 * params::group_threads) {
        int const at = t_at + (i / gdn_chunk * params::square_floats + i % gdn_chunk) * 4;
        lane.store(reinterpret_cast<std::uint32_t*>(p.out.solve + square + i),
                   lane.convert_half2(lane.template shared_load<float>(at),
                                      lane.template shared_load<float>(at + 4)));
      }
    }
    lane.sync_block();
  }
}

}  // namespace qwen38::ops::cuda
