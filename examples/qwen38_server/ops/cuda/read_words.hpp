// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/lane_types.hpp>

#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// Reads memory and does nothing with it: how fast that goes is what all else is held against.
struct read_words_params {
  static constexpr int threads = 256;
  static constexpr int min_blocks = 8;
  static constexpr int shared_bytes = 0;
  static constexpr int loads_at_once = 4;

  qpn::detail::word4 const* words = nullptr;
  std::int64_t count = 0;
  std::int64_t grid = 0;          ///< CTAs
  std::uint32_t* sink = nullptr;  ///< written where the words' sum is one that they must not have

  static constexpr std::uint32_t no_sum = 0x9e3779b9U;

  [[nodiscard]] std::int64_t blocks() const { return grid; }
};

template <class Lane>
QPN_HD void run_program(Lane& lane, read_words_params const& p) {
  using qpn::detail::word4;
  std::int64_t const stride = p.grid * read_words_params::threads;
  std::uint32_t sum = 0;
  for (std::int64_t first = std::int64_t{lane.block()} * read_words_params::threads + lane.thread();
       first < p.count; first += read_words_params::loads_at_once * stride) {
    word4 loaded[read_words_params::loads_at_once];
    for (int i = 0; i < read_words_params::loads_at_once; ++i) {
      std::int64_t const at = first + i * stride;
      loaded[i] = at < p.count ? lane.load(p.words + at) : word4{{0, 0, 0, 0}};
    }
    for (auto const& one : loaded) sum += one.w[0] ^ one.w[1] ^ one.w[2] ^ one.w[3];
  }
  if (sum == read_words_params::no_sum) lane.store(p.sink, sum);
}

}  // namespace qwen38::ops::cuda
