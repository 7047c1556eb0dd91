// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/candidate_key.hpp>

#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// keys[r] = the largest candidate_key of the first `valid` columns of row r; keys are 0 before. A
/// maximum has no order, so several CTAs share a row.
struct argmax_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 1;
  static constexpr int shared_bytes = threads / warp_size * int{sizeof(std::uint64_t)};
  static constexpr std::int64_t columns_per_block = 8192;

  float const* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  std::int64_t valid = 0;
  std::uint64_t* keys = nullptr;

  [[nodiscard]] QPN_HD std::int64_t blocks_per_row() const {
    return divide_up(valid, columns_per_block);
  }
  [[nodiscard]] std::int64_t blocks() const { return rows * blocks_per_row(); }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, argmax_params const& p) {
  constexpr int warps = argmax_params::threads / warp_size;
  std::int64_t const row = lane.block() / p.blocks_per_row();
  std::int64_t const first = lane.block() % p.blocks_per_row() * argmax_params::columns_per_block;
  std::int64_t const beyond = first + argmax_params::columns_per_block;
  std::int64_t const end = beyond < p.valid ? beyond : p.valid;
  float const* const x = p.x + row * p.x_stride;
  std::uint64_t best = 0;
  for (std::int64_t i = first + lane.thread(); i < end; i += argmax_params::threads) {
    std::uint64_t const key =
        qpn::detail::candidate_key(lane.load(x + i), static_cast<std::uint32_t>(i));
    best = key > best ? key : best;
  }
  for (int mask = warp_size / 2; mask > 0; mask /= 2) {
    std::uint32_t const low = lane.shuffle_xor(static_cast<std::uint32_t>(best), mask);
    std::uint32_t const high = lane.shuffle_xor(static_cast<std::uint32_t>(best >> 32), mask);
    std::uint64_t const other = std::uint64_t{high} << 32 | low;
    best = other > best ? other : best;
  }
  if (lane.thread() % warp_size == 0) lane.shared_store(lane.thread() / warp_size * 8, best);
  lane.sync_block();
  if (lane.thread() != 0) return;
  for (int warp = 1; warp < warps; ++warp) {
    std::uint64_t const other = lane.template shared_load<std::uint64_t>(warp * 8);
    best = other > best ? other : best;
  }
  lane.atomic_max(p.keys + row, best);
}

}  // namespace qwen38::ops::cuda
