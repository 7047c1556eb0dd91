// SPDX-License-Identifier: Apache-2.0
#include "parallel/rendezvous.hpp"

#include <algorithm>
#include <thread>

#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

constexpr int spin_turns = 100;  // some ten microseconds where no other thread wants the processor

}  // namespace

rendezvous::rendezvous(int size)
    : gave_up_(static_cast<std::size_t>(size), false),
      shapes_(gave_up_.size()),
      best_(gave_up_.size()) {}

void rendezvous::meet() {
  std::uint64_t const mine = round_.load(std::memory_order_relaxed);
  {
    std::scoped_lock const lock(mutex_);
    if (!is_abandoned() && ++arrived_ == gave_up_.size()) {
      arrived_ = 0;
      round_.store(mine + 1, std::memory_order_release);
      changed_.notify_all();
      return;
    }
  }
  for (int turn = 0; turn < spin_turns; ++turn) {
    if (round_.load(std::memory_order_acquire) != mine) return;
    std::this_thread::yield();
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return round_.load() != mine || is_abandoned(); });
  if (round_.load() != mine) return;
  half_done_ = true;
  throw error(error_kind::internal, "a rank gave up while another waited for it");
}

void rendezvous::begin_call(int rank, call_shape const& shape) {
  shapes_[static_cast<std::size_t>(rank)] = shape;
  meet();
  if (std::ranges::count(shapes_, shape) == std::ssize(shapes_)) return;
  throw error(error_kind::internal,
              "ranks met in different calls or with different shapes: expected the same on each");
}

void rendezvous::max_over_ranks(int rank, std::span<ranked_id> best) {
  best_[static_cast<std::size_t>(rank)] = best;
  begin_call(rank, {call_shape::operation::maximum, std::ssize(best), 0});
  std::vector<ranked_id> largest(best.size());
  for (std::span<ranked_id const> const other : best_) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (ops::ranked_key(other[i]) > ops::ranked_key(largest[i])) largest[i] = other[i];
    }
  }
  meet();
  std::ranges::copy(largest, best.begin());
}

void rendezvous::give_up(int rank) noexcept {
  std::scoped_lock const lock(mutex_);
  gave_up_[static_cast<std::size_t>(rank)] = true;
  changed_.notify_all();
}

bool rendezvous::rejoin(int rank) noexcept {
  std::scoped_lock const lock(mutex_);
  if (half_done_) return false;
  gave_up_[static_cast<std::size_t>(rank)] = false;
  return true;
}

bool rendezvous::is_abandoned() const {
  return std::ranges::find(gave_up_, true) != gave_up_.end();
}

}  // namespace qwen38::parallel
