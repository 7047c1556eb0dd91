// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <qpn/dtype.hpp>
#include <vector>

namespace qpn::test {

/// Counts how often each byte of a buffer is stored.
struct store_counts {
  std::byte const* base = nullptr;
  std::vector<int> counts;
};

/// A lane for programs whose threads do not talk to each other: they may run one after the other.
class serial_lane {
 public:
  serial_lane(int block, int thread, store_counts* stores = nullptr)
      : block_(block), thread_(thread), stores_(stores) {}

  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int block() const { return block_; }

  template <class T>
  [[nodiscard]] T load_stream(T const* p) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 16,
                  "the device has load_stream for 2, 4 and 16 bytes");
    return *p;
  }
  template <class T>
  [[nodiscard]] T load(T const* p) {
    return *p;
  }
  template <class T>
  void store(T* p, T value) {
    *p = value;
    if (stores_ == nullptr) return;
    auto const at = static_cast<std::size_t>(reinterpret_cast<std::byte*>(p) - stores_->base);
    for (std::size_t i = 0; i < sizeof(T); ++i) ++stores_->counts.at(at + i);
  }
  std::uint64_t atomic_max(std::uint64_t* p, std::uint64_t value) {
    std::uint64_t const old = *p;
    if (value > old) *p = value;
    return old;
  }
  [[nodiscard]] float exp(float x) { return std::exp(x); }
  [[nodiscard]] std::uint32_t convert_half2(float low, float high) {
    return encode_f16(low) | static_cast<std::uint32_t>(encode_f16(high)) << 16;
  }

 private:
  int block_;
  int thread_;
  store_counts* stores_;
};

/// Runs all threads of a grid, the last one first where `backwards`.
template <class Program>
void run_serially(std::int64_t blocks, int threads, bool backwards, store_counts* stores,
                  Program program) {
  for (std::int64_t i = 0; i < blocks * threads; ++i) {
    std::int64_t const index = backwards ? blocks * threads - 1 - i : i;
    serial_lane lane(static_cast<int>(index / threads), static_cast<int>(index % threads), stores);
    program(lane);
  }
}

}  // namespace qpn::test
