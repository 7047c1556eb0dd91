// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "support/emulator/fiber.hpp"
#include "support/emulator/global_memory.hpp"
#include "support/emulator/warp_math.hpp"

namespace qpn::test {

class cta;

/// Where a lane stands when the scheduler has its turn.
enum class lane_state : std::uint8_t {
  ready,  ///< It may be resumed.
  in_sync_warp,
  in_sync_pair,
  in_sync_block,
  in_mma,
  in_mma16,
  in_mma16_bf16,
  in_shuffle,
  in_any,
  in_cluster,
  returned,
  failed,  ///< It threw, or ran for too long; it will not be resumed.
};

/// The lane operations of a lane program, on one fiber per CUDA thread. What is wrong goes into the
/// report; the lane runs on, with 0 for what it could not read. No operation throws, so lane
/// programs may be noexcept.
///
/// sync_warp, sync_pair, sync_block, shuffle_xor, any and mma_* are collectives: the lane
/// stands still until all lanes of its warp, of its warp and the other of its pair, or all threads
/// of its block, have come to the same one. wait_cluster is one of the warp, and stands still until
/// all threads of the cluster have called arrive_cluster as often as it has.
class emulated_lane {
 public:
  emulated_lane(cta& block, int thread, std::unique_ptr<fiber> runs_on);

  /// In the CTA.
  [[nodiscard]] int thread() const { return thread_; }
  /// Index of the CTA among those of its row block.
  [[nodiscard]] int block() const;
  [[nodiscard]] int row_block() const;

  /// Global memory that no lane writes in this launch; 2, 4 or 16 bytes.
  template <class T>
  [[nodiscard]] T load_stream(T const* p) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 16,
                  "the device has load_stream for 2, 4 and 16 bytes");
    return load_global(p, load_kind::stream);
  }

  template <class T>
  [[nodiscard]] T load(T const* p) {
    return load_global(p, load_kind::plain);
  }

  /// Not from L1: for what other CTAs wrote.
  template <class T>
  [[nodiscard]] T load_volatile(T const* p) {
    may_yield();
    return load_global(p, load_kind::not_from_l1);
  }

  template <class T>
  void store(T* p, T value) {
    check_type<T>();
    store_global(p, &value, sizeof(T));
  }

  template <class T>
  [[nodiscard]] T shared_load(int byte_offset) {
    check_type<T>();
    T value{};
    load_shared(byte_offset, &value, static_cast<int>(sizeof(T)));
    return value;
  }

  template <class T>
  void shared_store(int byte_offset, T value) {
    check_type<T>();
    store_shared(byte_offset, &value, static_cast<int>(sizeof(T)));
  }

  void sync_warp();
  /// Warps 2 i and 2 i + 1 of the CTA.
  void sync_pair();
  void sync_block();

  /// The two halves of a barrier of the cluster. Between them a lane leaves shared memory alone.
  void arrive_cluster();
  void wait_cluster();
  /// Of the CTA in its cluster.
  [[nodiscard]] int cluster_rank() const;
  /// To the shared memory of the CTA `rank` of the cluster, which the barrier has shown to run.
  template <class T>
  void cluster_store(int rank, int byte_offset, T value) {
    check_type<T>();
    store_in_cluster(rank, byte_offset, &value, static_cast<int>(sizeof(T)));
  }

  /// Lets other CTAs see the stores of this thread so far.
  void fence_device();

  /// On a workspace; return the old value.
  std::uint32_t atomic_add(std::uint32_t* p, std::uint32_t value);
  std::uint64_t atomic_max(std::uint64_t* p, std::uint64_t value);

  /// The value of lane (lane ^ mask); mask 0..31, the same in all lanes.
  [[nodiscard]] std::uint32_t shuffle_xor(std::uint32_t value, int mask);

  /// Whether the condition holds in some lane of the warp.
  [[nodiscard]] bool any(bool condition);

  /// d += a b; see multiply_accumulate_m8n8k4.
  void mma_m8n8k4(float (&d)[8], std::uint32_t const (&a)[2], std::uint32_t const (&b)[2]);

  /// d += a b; see multiply_accumulate_m16n8k16.
  void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2]);

  /// The same with a and b in bf16.
  void mma_m16n8k16_bf16(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2]);

  [[nodiscard]] std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b);
  [[nodiscard]] std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b);
  [[nodiscard]] std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b,
                                           std::uint32_t selector);

 private:
  friend class cta;

  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T>);
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 ||
                  sizeof(T) == 16);
  }

  template <class T>
  [[nodiscard]] T load_global(T const* p, load_kind kind) {
    check_type<T>();
    T value{};
    load_global(p, &value, sizeof(T), kind);
    return value;
  }

  void load_global(void const* p, void* value, std::size_t size, load_kind kind);
  void store_global(void* p, void const* value, std::size_t size);
  void load_shared(int offset, void* value, int size);
  void store_shared(int offset, void const* value, int size);
  void store_in_cluster(int rank, int offset, void const* value, int size);
  void forbid_between_halves(char const* what);

  /// Every operation calls it: a lane without end stands still for good.
  void count_operation();
  /// Now and then other lanes go first, of this and of other CTAs.
  void may_yield();
  void wait_in(lane_state collective);

  cta* cta_;
  int thread_;
  std::unique_ptr<fiber> fiber_;
  lane_state state_ = lane_state::ready;
  std::int64_t operations_ = 0;
  int arrivals_ = 0;  ///< at the cluster's barrier
  int openings_ = 0;  ///< of it that the lane has waited for
  // What the lane brings to the collective in which it stands.
  int shuffle_mask_ = 0;
  std::uint32_t shuffle_value_ = 0;
  bool condition_ = false;
  mma_registers mma_;
  mma16_registers mma16_;
};

}  // namespace qpn::test
