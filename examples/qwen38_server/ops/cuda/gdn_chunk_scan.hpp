// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/lane_types.hpp>

#include "ops/cuda/gdn_chunks.hpp"
#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// S and out of the chunks of each span (gdn_chunks.hpp) on tensor cores (m16n8k16), one chunk
/// after another. A CTA of 8 warps has 32 columns of a value head's S in registers, in fp32; every
/// operand of a product is rounded to fp16 once, sums are fp32. K, Q, T and P travel to shared
/// memory ahead of their use.
struct gdn_chunk_scan_params {
  static constexpr int warps = 8;
  static constexpr int threads = warps * warp_size;
  static constexpr int min_blocks = 2;

  static constexpr int key_row_bytes = gdn_key_dim * 2;
  static constexpr int row_bytes = gdn_chunk * 2;
  static constexpr int key_bytes = gdn_chunk * key_row_bytes;
  static constexpr int square_bytes = gdn_chunk * row_bytes;
  static constexpr int column_bytes = gdn_chunk_columns * row_bytes;
  static constexpr int keys_at = 0;  ///< two places
  static constexpr int queries_at = keys_at + 2 * key_bytes;
  static constexpr int solve_at = queries_at + key_bytes;
  static constexpr int recall_at = solve_at + square_bytes;
  static constexpr int state_at = recall_at + square_bytes;  ///< S [column][key_dim]
  static constexpr int rest_at = state_at + gdn_chunk_columns * key_row_bytes;
  static constexpr int update_at = rest_at + column_bytes;  ///< D [column][row]
  static constexpr int after_at = update_at + column_bytes;
  static constexpr int shared_bytes = after_at + column_bytes;

  pass_view pass;
  gdn_memory memory;
  gdn_rows rows;
  gdn_chunk_scratch in;
  std::int64_t layer = 0;
  float* out = nullptr;  ///< [rows][value_channels]

  [[nodiscard]] QPN_HD std::int64_t column_blocks() const {
    return memory.sizes.value_dim / gdn_chunk_columns;
  }
  [[nodiscard]] std::int64_t blocks() const {
    return pass.span_count * memory.sizes.value_heads * column_blocks();
  }
};

/// One thread of the program, (g, t) of its warp.
template <class Lane>
class gdn_chunk_scan_thread {
 public:
  QPN_HD gdn_chunk_scan_thread(Lane& lane, gdn_chunk_scan_params const& p, span_entry const& span,
                               std::int64_t head, std::int64_t first_column)
      : lane_(lane),
        p_(p),
        span_(span),
        head_(head),
        first_column_(first_column),
        warp_(lane.thread() / warp_size),
        g_(lane.thread() % warp_size / 4),
        t_(lane.thread() % 4) {}

  QPN_HD void run() {
    int const chunks = gdn_chunks_of(span_);
    load_state();
    copy_keys(0);
    copy_queries(0);
    copy_square(p_.in.solve, params::solve_at, 0);
    load_values(0);
    store_state_operand();
    QPN_NO_UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk) {
      lane_.template wait_copies<1>();
      lane_.sync_block();  // K, Q and S are there, and nobody reads P and the K before
      copy_square(p_.in.recall, params::recall_at, chunk);
      copy_keys(chunk + 1 < chunks ? chunk + 1 : -1);
      load_gates(chunk);
      multiply_state(chunk);
      if (warp_ < 4) store_rest();
      load_values(chunk + 1 < chunks ? chunk + 1 : chunk);
      lane_.template wait_copies<2>();
      lane_.sync_block();  // T and the rest are there, and nobody reads Q
      copy_queries(chunk + 1 < chunks ? chunk + 1 : -1);
      solve();
      lane_.template wait_copies<2>();
      lane_.sync_block();  // P and D are there, and nobody reads T
      copy_square(p_.in.solve, params::solve_at, chunk + 1 < chunks ? chunk + 1 : -1);
      if (warp_ >= 4) recall(chunk);
      update_state(chunk);
      store_state_operand();
    }
    store_state();
  }

 private:
  using params = gdn_chunk_scan_params;
  using word4 = qpn::detail::word4;
  static constexpr int blocks = gdn_chunk_columns / 8;  ///< of columns
  struct alignas(8) word2 {
    std::uint32_t w[2];
  };

  [[nodiscard]] QPN_HD gdn_sizes const& sizes() const { return p_.memory.sizes; }
  [[nodiscard]] QPN_HD std::int64_t row_of(int chunk) const {
    return span_.first_row + std::int64_t{chunk} * gdn_chunk;
  }
  [[nodiscard]] QPN_HD std::int64_t place_of(int chunk) const { return row_of(chunk) / gdn_chunk; }

  /// Where the 16-byte pieces of a row lie, so that no reader meets a bank twice.
  [[nodiscard]] QPN_HD static int key_place(int row, int piece) {
    return row * params::key_row_bytes + (piece ^ ((row & 1) << 2) ^ ((row >> 2 & 3) << 1)) * 16;
  }
  [[nodiscard]] QPN_HD static int row_place(int row, int piece) {
    return row * params::row_bytes + (piece ^ ((row & 1) << 2)) * 16;
  }
  [[nodiscard]] QPN_HD static int after_place(int row, int piece) {
    return row * params::row_bytes + (piece ^ ((row & 3) << 1)) * 16;
  }

  // Copies of a chunk's operands; -1 for no chunk, but still a group of copies.
  QPN_HD void copy_key_operand(std::uint16_t const* from, int to, int chunk) {
    std::int64_t const key_head = head_ / (sizes().value_heads / sizes().key_heads);
    if (chunk >= 0) {
      from += (place_of(chunk) * sizes().key_heads + key_head) * gdn_key_operand;
      QPN_UNROLL
      for (int i = 0; i < gdn_key_operand / 8 / params::threads; ++i) {
        int const piece = lane_.thread() + i * params::threads;
        lane_.copy_async(to + key_place(piece / 16, piece % 16), from + piece * 8, true);
      }
    }
    lane_.commit_copies();
  }
  QPN_HD void copy_keys(int chunk) {
    copy_key_operand(p_.in.keys, params::keys_at + (chunk & 1) * params::key_bytes, chunk);
  }
  QPN_HD void copy_queries(int chunk) {
    copy_key_operand(p_.in.queries, params::queries_at, chunk);
  }
  QPN_HD void copy_square(std::uint16_t const* from, int to, int chunk) {
    if (chunk >= 0) {
      from += (place_of(chunk) * sizes().value_heads + head_) * gdn_row_operand;
      QPN_UNROLL
      for (int i = 0; i < gdn_row_operand / 8 / params::threads; ++i) {
        int const piece = lane_.thread() + i * params::threads;
        lane_.copy_async(to + row_place(piece / 8, piece % 8), from + piece * 8, true);
      }
    }
    lane_.commit_copies();
  }

  /// The V of 16 rows, of warps 0 to 3.
  QPN_HD void load_values(int chunk) {
    if (warp_ >= 4) return;
    QPN_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::int64_t const row = row_of(chunk) + 16 * warp_ + g_ + 8 * half;
      float const* const from = p_.rows.mixed + row * sizes().channels() +
                                2 * sizes().key_channels() + head_ * sizes().value_dim +
                                first_column_;
      QPN_UNROLL
      for (int n = 0; n < blocks; ++n) {
        auto const two =
            lane_.load(reinterpret_cast<qpn::detail::float2_pair const*>(from + 8 * n + 2 * t_));
        values_[n][2 * half] = two.low;
        values_[n][2 * half + 1] = two.high;
      }
    }
  }

  QPN_HD void load_gates(int chunk) {
    gdn_chunk_gates const* const gates =
        p_.in.gates + place_of(chunk) * sizes().value_heads + head_;
    last_ = lane_.load(gates->before + gdn_chunk - 1);
    QPN_UNROLL
    for (int half = 0; half < 2; ++half) {
      int const row = 16 * (warp_ % 4) + g_ + 8 * half;
      before_[half] = lane_.load(gates->before + row);
      beta_[half] = lane_.load(gates->beta + row);
      after_[half] = lane_.load(gates->after + 16 * (warp_ / 2) + g_ + 8 * half);
    }
  }

  // A thread's part of S: column 16 m + g (+ 8) of the CTA's and key 16 warp + 4 t + 2 e + j in
  // s_[m][j][e (+ 2)].
  template <class Each>
  QPN_HD void for_each_state(Each const& each) {
    float* const state = p_.memory.at(p_.layer, span_.lane).s +
                         head_ * gdn_key_dim * sizes().value_dim + first_column_;
    QPN_UNROLL
    for (int i = 0; i < 16; ++i) {
      int const m = i / 8;
      int const j = i / 4 % 2;
      int const e = i % 4;
      int const column = 16 * m + g_ + 8 * (e / 2);
      int const key = 16 * warp_ + 4 * t_ + 2 * (e % 2) + j;
      each(state + key * sizes().value_dim + column, s_[m][j][e]);
    }
  }
  QPN_HD void load_state() {
    for_each_state([&](float const* at, float& s) { s = lane_.load(at); });
  }
  QPN_HD void store_state() {
    for_each_state([&](float* at, float s) { lane_.store(at, s); });
  }
  QPN_HD void store_state_operand() {
    QPN_UNROLL
    for (int m = 0; m < 2; ++m) {
      QPN_UNROLL
      for (int half = 0; half < 2; ++half) {
        float const(&s)[2][4] = s_[m];
        word2 const four{{lane_.convert_half2(s[0][2 * half], s[1][2 * half]),
                          lane_.convert_half2(s[0][2 * half + 1], s[1][2 * half + 1])}};
        lane_.shared_store(
            params::state_at + key_place(16 * m + g_ + 8 * half, 2 * warp_ + t_ / 2) + t_ % 2 * 8,
            four);
      }
    }
  }

  /// d += x w^T for 16 rows of x and columns of w in blocks of 8, both with 32 of the sum in four
  /// pieces from `piece`; 16 bytes of each serve two products.
  template <int Blocks, class X, class W>
  QPN_HD void multiply(float (&d)[Blocks][4], X const& x_place, W const& w_place) {
    word4 const low = lane_.template shared_load<word4>(x_place(g_));
    word4 const high = lane_.template shared_load<word4>(x_place(g_ + 8));
    std::uint32_t const even[4] = {low.w[0], high.w[0], low.w[1], high.w[1]};
    std::uint32_t const odd[4] = {low.w[2], high.w[2], low.w[3], high.w[3]};
    QPN_UNROLL
    for (int n = 0; n < Blocks; ++n) {
      word4 const w = lane_.template shared_load<word4>(w_place(8 * n + g_));
      std::uint32_t const even_w[2] = {w.w[0], w.w[1]};
      std::uint32_t const odd_w[2] = {w.w[2], w.w[3]};
      lane_.mma_m16n8k16(d[n], even, even_w);
      lane_.mma_m16n8k16(d[n], odd, odd_w);
    }
  }

  /// products_ = K S of 16 rows in warps 0 to 3, Q S in the others.
  QPN_HD void multiply_state(int chunk) {
    int const x_at =
        warp_ < 4 ? params::keys_at + (chunk & 1) * params::key_bytes : params::queries_at;
    QPN_UNROLL
    for (int i = 0; i < blocks * 4; ++i) products_[i / 4][i % 4] = 0;
    QPN_UNROLL
    for (int step = 0; step < gdn_key_dim / 32; ++step) {
      int const piece = 4 * step + t_;
      multiply(
          products_, [&](int row) { return x_at + key_place(16 * (warp_ % 4) + row, piece); },
          [&](int column) { return params::state_at + key_place(column, piece); });
    }
  }

  /// beta (V - exp(G) K S) to shared memory.
  QPN_HD void store_rest() {
    QPN_UNROLL
    for (int i = 0; i < blocks * 4; ++i) {
      int const e = i % 4;
      float const recalled = products_[i / 4][e] * before_[e / 2];
      store_element(params::rest_at, 16 * warp_, i / 4, e,
                    beta_[e / 2] * (values_[i / 4][e] - recalled));
    }
  }
  /// Element e of block n of a product with rows from `first_row`, to [column][row].
  QPN_HD void store_element(int at, int first_row, int n, int e, float value) {
    int const row = first_row + g_ + e / 2 * 8;
    int const column = 8 * n + 2 * t_ + e % 2;
    int const to =
        (at == params::after_at ? after_place(column, row / 8) : row_place(column, row / 8)) +
        row % 8 * 2;
    lane_.shared_store(at + to, static_cast<std::uint16_t>(lane_.convert_half2(value, 0.0F)));
  }

  /// d += x w for 16 rows of the triangular x (T or P) from `first_row` and columns of w.
  template <int Blocks>
  QPN_HD void multiply_triangle(float (&d)[Blocks][4], int x_at, int first_row, int w_at,
                                int first_column) {
    QPN_UNROLL
    for (int step = 0; step < gdn_chunk / 32; ++step) {
      if (32 * step > first_row) continue;  // zeros
      int const piece = 4 * step + t_;
      multiply(
          d, [&](int row) { return x_at + row_place(first_row + row, piece); },
          [&](int column) { return w_at + row_place(first_column + column, piece); });
    }
  }

  /// D = T rest, of 16 rows and 16 columns, and exp(G_63 - G) D, to shared memory.
  QPN_HD void solve() {
    int const first_row = 16 * (warp_ / 2);
    int const first_block = 2 * (warp_ % 2);
    float d[2][4] = {};
    multiply_triangle(d, params::solve_at, first_row, params::rest_at, 8 * first_block);
    QPN_UNROLL
    for (int i = 0; i < 8; ++i) {
      int const e = i % 4;
      store_element(params::update_at, first_row, first_block + i / 4, e, d[i / 4][e]);
      store_element(params::after_at, first_row, first_block + i / 4, e,
                    d[i / 4][e] * after_[e / 2]);
    }
  }

  /// out = exp(G) Q S + P D, of 16 rows.
  QPN_HD void recall(int chunk) {
    int const first_row = 16 * (warp_ - 4);
    QPN_UNROLL
    for (int i = 0; i < blocks * 4; ++i) products_[i / 4][i % 4] *= before_[i % 4 / 2];
    multiply_triangle(products_, params::recall_at, first_row, params::update_at, 0);
    QPN_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::int64_t const row = row_of(chunk) + first_row + g_ + 8 * half;
      float* const to =
          p_.out + row * sizes().value_channels() + head_ * sizes().value_dim + first_column_;
      QPN_UNROLL
      for (int n = 0; n < blocks; ++n) {
        qpn::detail::float2_pair const two{products_[n][2 * half], products_[n][2 * half + 1]};
        lane_.store(reinterpret_cast<qpn::detail::float2_pair*>(to + 8 * n + 2 * t_), two);
      }
    }
  }

  /// S <- exp(G_63) S + K^T (exp(G_63 - G) D), of the warp's 16 keys, as S^T.
  QPN_HD void update_state(int chunk) {
    int const keys = params::keys_at + (chunk & 1) * params::key_bytes;
    QPN_UNROLL
    for (int i = 0; i < 16; ++i) s_[i / 8][i / 4 % 2][i % 4] *= last_;
    QPN_UNROLL
    for (int step = 0; step < gdn_chunk / 16; ++step) {
      int const row = 16 * step + 4 * t_;
      std::uint32_t k[4];
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) {
        k[i] = lane_.template shared_load<std::uint32_t>(
            keys + key_place(row + i, 2 * warp_ + g_ / 4) + g_ % 4 * 4);
      }
      std::uint32_t const even[2] = {lane_.byte_permute(k[0], k[1], 0x5410U),
                                     lane_.byte_permute(k[2], k[3], 0x5410U)};
      std::uint32_t const odd[2] = {lane_.byte_permute(k[0], k[1], 0x7632U),
                                    lane_.byte_permute(k[2], k[3], 0x7632U)};
      QPN_UNROLL
      for (int m = 0; m < 2; ++m) {
        auto const load = [&](int column) {
          return lane_.template shared_load<word2>(
              params::after_at + after_place(column, 2 * step + t_ / 2) + t_ % 2 * 8);
        };
        word2 const low = load(16 * m + g_);
        word2 const high = load(16 * m + g_ + 8);
        std::uint32_t const d[4] = {low.w[0], high.w[0], low.w[1], high.w[1]};
        lane_.mma_m16n8k16(s_[m][0], d, even);
        lane_.mma_m16n8k16(s_[m][1], d, odd);
      }
    }
  }

  Lane& lane_;
  gdn_chunk_scan_params const& p_;
  span_entry const& span_;
  std::int64_t head_;
  std::int64_t first_column_;
  int warp_;
  int g_;
  int t_;
  float s_[2][2][4];
  float values_[blocks][4];
  float products_[blocks][4];
  float before_[2];
  float beta_[2];
  float after_[2];
  float last_ = 0;
};

template <class Lane>
QPN_HD void run_program(Lane& lane, gdn_chunk_scan_params const& p) {
  std::int64_t const first_column = lane.block() % p.column_blocks() * gdn_chunk_columns;
  std::int64_t const head = lane.block() / p.column_blocks() % p.memory.sizes.value_heads;
  span_entry const span =
      lane.load(p.pass.spans + lane.block() / p.column_blocks() / p.memory.sizes.value_heads);
  if (gdn_chunks_of(span) == 0) return;
  gdn_chunk_scan_thread<Lane>(lane, p, span, head, first_column).run();
}

}  // namespace qwen38::ops::cuda
