// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <qpn/cpu/thread_pool.hpp>
#include <vector>

#include "ops/backend.hpp"

/// What the parts of the CPU backend share.
namespace qwen38::ops::cpu {

/// Zeroed memory on a 64-byte border; large blocks cost nothing until they are touched.
template <class Element>
class zeroed_array {
 public:
  zeroed_array() = default;
  explicit zeroed_array(std::size_t count) : count_(count) {
    // calloc aligns to 16 bytes only, so one cache line more is asked for.
    block_ = std::calloc(count * sizeof(Element) + alignment, 1);
    if (block_ == nullptr) throw std::bad_alloc();
    auto const address = reinterpret_cast<std::uintptr_t>(block_);
    data_ = reinterpret_cast<Element*>((address + alignment - 1) / alignment * alignment);
  }
  zeroed_array(zeroed_array const&) = delete;
  zeroed_array& operator=(zeroed_array const&) = delete;
  ~zeroed_array() { std::free(block_); }

  [[nodiscard]] Element* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return count_ * sizeof(Element); }

 private:
  static constexpr std::uintptr_t alignment = 64;
  std::size_t count_ = 0;
  void* block_ = nullptr;
  Element* data_ = nullptr;
};

inline float* row(tensor const& t, std::int64_t index) {
  assert(t.type == qpn::dtype::f32);
  return static_cast<float*>(t.data) + index * t.stride;
}

/// body(i) for every i in [0, count), spread over the pool's threads.
template <class Body>
void for_each_index(qpn::cpu::thread_pool& pool, std::int64_t count, Body const& body) {
  pool.parallel_for(count, [&body](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

class cpu_constants final : public constants {
 public:
  explicit cpu_constants(std::span<float const> values) : values_(values.begin(), values.end()) {}
  [[nodiscard]] std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(values_.size());
  }
  [[nodiscard]] float const* data() const noexcept override { return values_.data(); }

 private:
  std::vector<float> values_;
};

inline float const* values(constants const& c) {
  return c.data();
}

/// A copy of the pass's rows; pages stay the caller's.
class cpu_pass final : public pass {
 public:
  explicit cpu_pass(pass_limits const& limits) : limits_(limits) {}
  void set(pass_rows const& rows);

  [[nodiscard]] std::span<row_span const> spans() const noexcept { return spans_; }
  [[nodiscard]] std::span<std::int32_t const> ids() const noexcept { return ids_; }
  [[nodiscard]] std::span<row_move const> moves(int list) const {
    return moves_[static_cast<std::size_t>(list)];
  }
  [[nodiscard]] std::span<row_choice const> choices() const noexcept { return choices_; }
  [[nodiscard]] std::int64_t slot_offset() const noexcept { return slot_offset_; }

 private:
  pass_limits limits_;
  std::vector<row_span> spans_;
  std::vector<std::int32_t> ids_;
  std::vector<row_choice> choices_;
  std::array<std::vector<row_move>, row_move_lists> moves_;
  std::int64_t slot_offset_ = 0;
};

inline cpu_pass const& as_cpu(pass const& p) {
  return static_cast<cpu_pass const&>(p);
}

// attention.cpp
std::unique_ptr<kv_cache> make_cpu_kv_cache(attention_shape const& shape, std::int64_t layers,
                                            std::int64_t pages);
void cpu_store_kv(qpn::cpu::thread_pool& pool, kv_cache& cache, std::int64_t layer,
                  cpu_pass const& p, tensor const& kv, constants const& k_norm);
void cpu_attention(qpn::cpu::thread_pool& pool, kv_cache const& cache, std::int64_t layer,
                   cpu_pass const& p, tensor const& q_gate, constants const& q_norm,
                   tensor const& out);

// gdn.cpp
std::unique_ptr<gdn_state> make_cpu_gdn_state(gdn_shape const& shape, std::int64_t layers,
                                              std::int64_t lanes, std::int64_t max_tentative_rows,
                                              std::int64_t snapshots);
void cpu_gdn(qpn::cpu::thread_pool& pool, gdn_state& state, std::int64_t layer,
             std::span<row_span const> spans, tensor const& qkvz, tensor const& ba,
             gdn_weights const& w, tensor const& out);
void cpu_gdn_keep(qpn::cpu::thread_pool& pool, gdn_state& state, int lane, std::int64_t rows);
void cpu_gdn_reset(gdn_state& state, int lane);
void cpu_gdn_save(gdn_state& state, int lane, std::int64_t snapshot);
void cpu_gdn_load(gdn_state& state, int lane, std::int64_t snapshot);

}  // namespace qwen38::ops::cpu
