// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/lane.hpp"

#include <utility>

#include "support/emulator/cta.hpp"

namespace qpn::test {

emulated_lane::emulated_lane(cta& block, int thread, std::unique_ptr<fiber> runs_on)
    : cta_(&block), thread_(thread), fiber_(std::move(runs_on)) {}

int emulated_lane::block() const {
  return cta_->block() / cta_->launch_.row_blocks;
}

int emulated_lane::row_block() const {
  return cta_->block() % cta_->launch_.row_blocks;
}

void emulated_lane::sync_warp() {
  wait_in(lane_state::in_sync_warp);
}

void emulated_lane::sync_pair() {
  wait_in(lane_state::in_sync_pair);
}

void emulated_lane::sync_block() {
  wait_in(lane_state::in_sync_block);
}

void emulated_lane::arrive_cluster() {
  count_operation();
  if (arrivals_ != openings_) {
    cta_->launch_.report.add_error([&] {
      return sentence("block ", cta_->block(), ", thread ", thread_,
                      " arrives at the cluster's barrier twice without a wait");
    });
  }
  ++arrivals_;
  if (!cta_->cluster_->arrive()) return;
  cta_->cluster_->for_each([](cta& member) { member.open_cluster_barrier(); });
}

void emulated_lane::wait_cluster() {
  if (arrivals_ == openings_) {
    cta_->launch_.report.add_error([&] {
      return sentence("block ", cta_->block(), ", thread ", thread_,
                      " waits for the cluster's barrier and has not arrived");
    });
    return;
  }
  wait_in(lane_state::in_cluster);
  openings_ = arrivals_;
}

int emulated_lane::cluster_rank() const {
  return cta_->rank_;
}

void emulated_lane::forbid_between_halves(char const* what) {
  if (arrivals_ == openings_) return;
  cta_->launch_.report.add_error([&] {
    return sentence("block ", cta_->block(), ", thread ", thread_, " ", what,
                    " shared memory between arrive_cluster and wait_cluster");
  });
}

void emulated_lane::store_in_cluster(int rank, int offset, void const* value, int size) {
  count_operation();
  forbid_between_halves("stores to");
  cta* const other =
      rank >= 0 && rank < cta_->cluster_->size() ? cta_->cluster_->at(rank) : nullptr;
  if (other == nullptr || openings_ == 0) {
    cta_->launch_.report.add_error([&] {
      return sentence("block ", cta_->block(), ", thread ", thread_, " stores to CTA ", rank,
                      " of its cluster, which ",
                      other == nullptr ? "is not there" : "may not have begun");
    });
    return;
  }
  lane_moment const at = other == cta_ ? cta_->moment(thread_) : other->moment_of_peer(thread_);
  other->shared_.store(at, offset, value, size);
}

void emulated_lane::fence_device() {
  count_operation();
  may_yield();
  cta_->launch_.memory.fence(cta_->moment(thread_));
}

std::uint32_t emulated_lane::atomic_add(std::uint32_t* p, std::uint32_t value) {
  count_operation();
  std::uint32_t const old = cta_->launch_.memory.atomic_add(cta_->moment(thread_), p, value);
  may_yield();
  return old;
}

std::uint64_t emulated_lane::atomic_max(std::uint64_t* p, std::uint64_t value) {
  count_operation();
  std::uint64_t const old = cta_->launch_.memory.atomic_max(cta_->moment(thread_), p, value);
  may_yield();
  return old;
}

std::uint32_t emulated_lane::shuffle_xor(std::uint32_t value, int mask) {
  shuffle_value_ = value;
  shuffle_mask_ = mask;
  wait_in(lane_state::in_shuffle);
  return shuffle_value_;
}

bool emulated_lane::any(bool condition) {
  condition_ = condition;
  wait_in(lane_state::in_any);
  return condition_;
}

void emulated_lane::mma_m8n8k4(float (&d)[8], std::uint32_t const (&a)[2],
                               std::uint32_t const (&b)[2]) {
  mma_ = {d, a, b};
  wait_in(lane_state::in_mma);
}

void emulated_lane::mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4],
                                 std::uint32_t const (&b)[2]) {
  mma16_ = {d, a, b};
  wait_in(lane_state::in_mma16);
}

void emulated_lane::mma_m16n8k16_bf16(float (&d)[4], std::uint32_t const (&a)[4],
                                      std::uint32_t const (&b)[2]) {
  mma16_ = {d, a, b};
  wait_in(lane_state::in_mma16_bf16);
}

std::uint32_t emulated_lane::multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
  return test::multiply_bf16x2(a, b);
}

std::uint32_t emulated_lane::multiply_half2(std::uint32_t a, std::uint32_t b) {
  return test::multiply_half2(a, b);
}

std::uint32_t emulated_lane::byte_permute(std::uint32_t a, std::uint32_t b,
                                          std::uint32_t selector) {
  return test::byte_permute(a, b, selector);
}

void emulated_lane::load_global(void const* p, void* value, std::size_t size, load_kind kind) {
  count_operation();
  cta_->launch_.memory.load(cta_->moment(thread_), p, value, size, kind);
}

void emulated_lane::store_global(void* p, void const* value, std::size_t size) {
  count_operation();
  cta_->launch_.memory.store(cta_->moment(thread_), p, value, size);
}

void emulated_lane::load_shared(int offset, void* value, int size) {
  count_operation();
  forbid_between_halves("reads");
  cta_->shared_.load(cta_->moment(thread_), offset, value, size);
}

void emulated_lane::store_shared(int offset, void const* value, int size) {
  count_operation();
  forbid_between_halves("stores to");
  cta_->shared_.store(cta_->moment(thread_), offset, value, size);
}

void emulated_lane::count_operation() {
  std::int64_t const most = cta_->launch_.max_operations;
  if (++operations_ <= most) return;
  cta_->launch_.report.add_error([&] {
    return sentence("block ", cta_->block(), ", thread ", thread_, ": more than ", most,
                    " operations, its loop may have no end");
  });
  state_ = lane_state::failed;
  fiber_->suspend();
}

void emulated_lane::may_yield() {
  if (cta_->launch_.random.below(4) == 0) fiber_->suspend();
}

void emulated_lane::wait_in(lane_state collective) {
  count_operation();
  state_ = collective;
  fiber_->suspend();
}

}  // namespace qpn::test
