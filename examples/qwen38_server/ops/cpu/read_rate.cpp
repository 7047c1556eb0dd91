// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/read_rate.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace qwen38::ops::cpu {

double measure_read_rate(int threads, std::size_t bytes) {
  constexpr int samples = 5;
  auto const readers = static_cast<std::size_t>(std::max(threads, 1));
  std::vector<std::uint64_t> const memory(bytes / sizeof(std::uint64_t), 1);
  std::atomic<std::uint64_t> sum{0};
  std::vector<double> rates;
  for (int i = 0; i <= samples; ++i) {
    auto const start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> pool;
      for (std::size_t part = 0; part < readers; ++part) {
        pool.emplace_back([&, part] {
          auto const at = [&](std::size_t which) {
            return memory.begin() + static_cast<std::ptrdiff_t>(memory.size() * which / readers);
          };
          sum += std::accumulate(at(part), at(part + 1), std::uint64_t{0});
        });
      }
    }
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
    double const read = static_cast<double>(memory.size() * sizeof(std::uint64_t));
    if (i > 0) rates.push_back(read / took.count() / 1e9);
  }
  std::ranges::nth_element(rates, rates.begin() + samples / 2);
  return rates[samples / 2];
}

}  // namespace qwen38::ops::cpu
