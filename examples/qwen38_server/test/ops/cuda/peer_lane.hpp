// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <qpn/dtype.hpp>

#include "support/emulator/emulator.hpp"

namespace qwen38::test {

/// What a kernel between ranks may have wrong. The faults lie in the lane, so that the kernels are
/// tested as they are.
enum class peer_mistake {
  none,
  no_release,     ///< what is stored is not there when its flag is
  no_acquire,     ///< what is loaded may be older than the flag
  flag_lost,      ///< rank 1 raises none
  flag_too_high,  ///< every flag belongs to the next meeting
  one_half,       ///< an inbox has one half for all meetings
  not_ready,      ///< nobody waits for `ready`
};

/// Where a lane's mistakes strike.
struct peer_setting {
  peer_mistake made = peer_mistake::none;
  int ranks = 0;
  std::uintptr_t inboxes = 0;            ///< all ranks', one after another
  std::uintptr_t inbox_bytes = 0;        ///< of one
  std::uint64_t const* ready = nullptr;  ///< all ranks', `ready_count` in each stride
  std::int64_t ready_stride = 0;
  std::int64_t ready_count = 0;
};

/// The operations of ops/cuda/peer_wait.hpp and those that its kernels need, on the checked memory
/// of the emulator. Flags are words that only grow, so that an atomic maximum stands for a store
/// and for a load.
class peer_lane {
 public:
  peer_lane(qpn::test::emulated_lane& lane, peer_setting const& setting)
      : lane_(&lane), setting_(&setting) {}

  [[nodiscard]] int thread() const { return lane_->thread(); }
  [[nodiscard]] int block() const { return lane_->block(); }
  template <class T>
  [[nodiscard]] T load(T const* p) {
    return lane_->load(p);
  }
  template <class T>
  [[nodiscard]] T load_volatile(T const* p) {
    return lane_->load_volatile(moved(p));
  }
  template <class T>
  void store(T* p, T value) {
    lane_->store(const_cast<T*>(moved(p)), value);
  }
  template <class T>
  [[nodiscard]] T shared_load(int offset) {
    return lane_->template shared_load<T>(offset);
  }
  template <class T>
  void shared_store(int offset, T value) {
    lane_->shared_store(offset, value);
  }
  void sync_block() { lane_->sync_block(); }
  [[nodiscard]] std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
    return lane_->shuffle_xor(value, mask);
  }
  [[nodiscard]] float fma(float a, float b, float c) { return std::fma(a, b, c); }
  [[nodiscard]] float sqrt(float x) { return std::sqrt(x); }
  [[nodiscard]] std::uint32_t convert_half2(float low, float high) {
    return qpn::encode_f16(low) | static_cast<std::uint32_t>(qpn::encode_f16(high)) << 16;
  }

  void sync_block_for_release() {
    if (setting_->made != peer_mistake::no_release) lane_->fence_device();
    lane_->sync_block();
  }
  void store_release_system(std::uint64_t* p, std::uint64_t value) {
    if (setting_->made == peer_mistake::flag_lost && block() % setting_->ranks == 1) return;
    if (setting_->made == peer_mistake::flag_too_high) ++value;
    static_cast<void>(lane_->atomic_max(p, value));
  }
  [[nodiscard]] std::uint64_t load_acquire_system(std::uint64_t const* p) {
    if (setting_->made == peer_mistake::no_acquire) return lane_->load_volatile(p);
    if (setting_->made == peer_mistake::not_ready && is_ready_flag(p)) return ~std::uint64_t{0};
    // Of many polls those count that find something new: the emulator remembers every atomic.
    if (std::uint64_t const found = lane_->load_volatile(p); p == polled_ && found == last_found_) {
      return found;
    }
    polled_ = p;
    return last_found_ = lane_->atomic_max(const_cast<std::uint64_t*>(p), 0);
  }
  [[nodiscard]] std::int64_t nanoseconds() { return ++clock_; }

 private:
  template <class T>
  [[nodiscard]] T const* moved(T const* p) const {
    auto const at = reinterpret_cast<std::uintptr_t>(p);
    std::uintptr_t const inside = at - setting_->inboxes;
    bool const in_inbox = at >= setting_->inboxes &&
                          inside < setting_->inbox_bytes * static_cast<unsigned>(setting_->ranks);
    if (setting_->made != peer_mistake::one_half || !in_inbox) return p;
    std::uintptr_t const half = setting_->inbox_bytes / 2;
    bool const in_second = inside % setting_->inbox_bytes >= half;
    return reinterpret_cast<T const*>(at - (in_second ? half : 0));
  }
  [[nodiscard]] bool is_ready_flag(std::uint64_t const* p) const {
    return p >= setting_->ready &&
           (p - setting_->ready) % setting_->ready_stride < setting_->ready_count;
  }

  qpn::test::emulated_lane* lane_;
  peer_setting const* setting_;
  std::int64_t clock_ = 0;
  std::uint64_t const* polled_ = nullptr;
  std::uint64_t last_found_ = 0;
};

}  // namespace qwen38::test
