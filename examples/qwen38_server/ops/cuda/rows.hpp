// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/lane_math.hpp"
#include "ops/cuda/pass_view.hpp"
#include "ops/cuda/row_part.hpp"
#include "ops/ranked_id.hpp"

namespace qwen38::ops::cuda {

/// y[r, :] = table[ids[r], :], one CTA a row; of a negative id i that of token ~i, and of no id
/// that of id 0.
struct embed_params {
  static constexpr int threads = row_threads;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  std::uint16_t const* table = nullptr;  ///< bf16 or f16 [vocabulary, cols]
  bool is_bf16 = false;
  std::int32_t const* ids = nullptr;
  ranked_id const* tokens = nullptr;
  output_rows y;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  [[nodiscard]] std::int64_t blocks() const { return rows; }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, embed_params const& p) {
  std::int64_t const row = lane.block();
  std::int64_t id = lane.load(p.ids + row);
  if (id < 0) id = lane.load(&p.tokens[-1 - id].id);
  std::uint16_t const* const source = p.table + (id < 0 ? 0 : id) * p.cols;
  write_row(lane, p.y, row, p.cols, [&](std::int64_t i) {
    std::uint16_t const bits = lane.load(source + i);
    return p.is_bf16 ? qpn::decode_bf16(bits) : qpn::decode_f16(bits);
  });
}

/// y[moves[i].to, :] = x[moves[i].from, :], or y[i, :] = x[i, :] where there are no moves; one CTA
/// a row.
struct copy_rows_params {
  static constexpr int threads = row_threads;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  float const* x = nullptr;
  std::int64_t x_stride = 0;
  row_move const* moves = nullptr;
  output_rows y;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  [[nodiscard]] std::int64_t blocks() const { return rows; }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, copy_rows_params const& p) {
  row_move move{lane.block(), lane.block()};
  if (p.moves != nullptr) move = lane.load(p.moves + lane.block());
  float const* const source = p.x + move.from * p.x_stride;
  write_row(lane, p.y, move.to, p.cols, [&](std::int64_t i) { return lane.load(source + i); });
}

/// tokens[r] = {values[r], ids[r]}.
struct pack_tokens_params {
  static constexpr int threads = 128;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = 0;

  float const* values = nullptr;
  std::int32_t const* ids = nullptr;
  ranked_id* tokens = nullptr;
  std::int64_t count = 0;

  [[nodiscard]] std::int64_t blocks() const { return divide_up(count, threads); }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, pack_tokens_params const& p) {
  std::int64_t const i = std::int64_t{lane.block()} * pack_tokens_params::threads + lane.thread();
  if (i >= p.count) return;
  lane.store(p.tokens + i, ranked_id{lane.load(p.values + i), lane.load(p.ids + i)});
}

}  // namespace qwen38::ops::cuda
