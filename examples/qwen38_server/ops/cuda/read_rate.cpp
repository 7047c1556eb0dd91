// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/read_rate.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "ops/cuda/memory.hpp"

namespace qwen38::ops::cuda {

double measure_read_rate(device& owner, std::size_t bytes) {
  constexpr int samples = 7;
  constexpr int passes = 8;  // of a sample: the host's wait is of no weight
  device_block const memory(owner, bytes, "the memory to read");
  auto const sink = make_array<std::uint32_t>(owner, 1, "the memory to read");
  read_words_params kernel;
  kernel.words = memory.as<qpn::detail::word4>();
  kernel.count = static_cast<std::int64_t>(bytes / sizeof(qpn::detail::word4));
  kernel.grid = std::int64_t{owner.info().sm_count} * read_words_params::min_blocks;
  kernel.sink = sink.as<std::uint32_t>();
  std::vector<double> rates;
  for (int i = 0; i <= samples; ++i) {
    owner.wait();
    auto const start = std::chrono::steady_clock::now();
    for (int pass = 0; pass < passes; ++pass) owner.launch(kernel);
    owner.wait();
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
    double const read = static_cast<double>(bytes) * passes;
    if (i > 0) rates.push_back(read / took.count() / 1e9);  // the first raises the clocks
  }
  std::ranges::nth_element(rates, rates.begin() + samples / 2);
  return rates[samples / 2];
}

}  // namespace qwen38::ops::cuda
