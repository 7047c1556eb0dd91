// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "access_pattern.hpp"
#include "qpn/detail/lane_types.hpp"

namespace qpn::bench::v100 {

/// A lane that runs a part of the library's program that no value decides, and keeps what it loads
/// and stores. Values are all 0.
class recording_lane {
 public:
  struct access {
    warp_access::kind what;
    int bytes;
    std::uint64_t address;
  };

  explicit recording_lane(int thread) : thread_(thread) {}

  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int row_block() const { return 0; }
  [[nodiscard]] std::vector<access> const& accesses() const { return accesses_; }
  [[nodiscard]] int products() const { return products_; }

  template <class T>
  [[nodiscard]] T load_stream(T const* p) {
    return global<T>(warp_access::kind::stream_load, p);
  }
  template <class T>
  [[nodiscard]] T load_together(T const* p) {
    return load_stream(p);
  }
  template <class T>
  [[nodiscard]] T load(T const* p) {
    return global<T>(warp_access::kind::load, p);
  }
  [[nodiscard]] detail::word4 load_words(detail::word4 const* p) { return load(p); }
  template <class T>
  [[nodiscard]] T shared_load(int offset) {
    keep(warp_access::kind::shared_load, sizeof(T), static_cast<std::uint64_t>(offset));
    return T{};
  }
  template <class T>
  void shared_store(int offset, T) {
    keep(warp_access::kind::shared_store, sizeof(T), static_cast<std::uint64_t>(offset));
  }
  void sync_warp() {}
  void sync_pair() {}
  void sync_block() {}
  void mma_m8n8k4(float (&)[8], std::uint32_t const (&)[2], std::uint32_t const (&)[2]) {
    ++products_;
  }
  [[nodiscard]] std::uint32_t multiply_half2(std::uint32_t, std::uint32_t) { return 0; }
  [[nodiscard]] std::uint32_t broadcast_low(std::uint32_t) { return 0; }
  [[nodiscard]] std::uint32_t broadcast_high(std::uint32_t) { return 0; }
  [[nodiscard]] std::uint32_t convert_half2(float, float) { return 0; }
  [[nodiscard]] std::uint32_t byte_permute(std::uint32_t, std::uint32_t, std::uint32_t) {
    return 0;
  }
  [[nodiscard]] float fma(float, float, float) { return 0; }
  [[nodiscard]] int keep(int value) { return value; }

 private:
  template <class T>
  [[nodiscard]] T global(warp_access::kind what, T const* p) {
    keep(what, sizeof(T), reinterpret_cast<std::uintptr_t>(p));
    return T{};
  }
  void keep(warp_access::kind what, std::size_t bytes, std::uint64_t address) {
    accesses_.push_back({what, static_cast<int>(bytes), address});
  }

  int thread_;
  int products_ = 0;
  std::vector<access> accesses_;
};

}  // namespace qpn::bench::v100
