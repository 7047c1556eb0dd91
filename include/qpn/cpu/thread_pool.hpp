// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace qpn::cpu {

/// A fork-join pool for loops of some ten microseconds and more. The calling thread is one of its
/// threads.
///
/// A worker that has nothing to do spins for some ten microseconds, so that back-to-back loops
/// start at once, and then sleeps: an idle pool costs nothing. Which thread runs which part never
/// changes a result that depends on the index only.
class thread_pool {
 public:
  /// @param threads  threads that run a loop, the caller included; less than 1 counts as 1
  /// Throws std::system_error where a thread cannot be started.
  explicit thread_pool(int threads) {
    int const workers = threads > 1 ? threads - 1 : 0;
    workers_.reserve(static_cast<std::size_t>(workers));
    try {
      for (int i = 1; i <= workers; ++i) {
        workers_.emplace_back([this, i] { work(i); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }

  ~thread_pool() { stop(); }

  thread_pool(thread_pool const&) = delete;
  thread_pool& operator=(thread_pool const&) = delete;

  /// Threads that run a loop, the caller included.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  /// Calls fn(begin, end) for contiguous ranges that cover [0, count) exactly once, at most one per
  /// thread, and returns when all have returned. Ranges differ in length by at most one. fn must
  /// not throw. Never allocates.
  ///
  /// While a loop is running, another call on the same pool (from inside fn, or from another
  /// thread) runs its whole range on the calling thread.
  template <class Function>
  void parallel_for(std::int64_t count, Function&& fn) noexcept {
    if (count <= 0) return;
    if (workers_.empty() || count == 1 || busy_.exchange(true, std::memory_order_acquire)) {
      fn(std::int64_t{0}, count);
      return;
    }
    using Callable = std::remove_reference_t<Function>;
    context_ = const_cast<void*>(static_cast<void const*>(std::addressof(fn)));
    call_ = [](void* context, std::int64_t begin, std::int64_t end) noexcept {
      (*static_cast<Callable*>(context))(begin, end);
    };
    count_ = count;
    pending_.store(size() - 1, std::memory_order_relaxed);
    start_workers();
    run_part(0);
    wait_for_workers();
    busy_.store(false, std::memory_order_release);
  }

 private:
  // Spinning is bounded in turns, not in time: about 20 us of `pause` on current cores.
  static constexpr int spin_turns = 500;

  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
  }

  void run_part(std::int64_t part) noexcept {
    std::int64_t const parts = size();
    std::int64_t const shorter = count_ / parts;
    std::int64_t const longer_parts = count_ % parts;
    std::int64_t const begin = part * shorter + (part < longer_parts ? part : longer_parts);
    std::int64_t const end = begin + shorter + (part < longer_parts ? 1 : 0);
    if (begin < end) call_(context_, begin, end);
  }

  // A sleeper registers in sleepers_ and then looks at epoch_; we move epoch_ and then look at
  // sleepers_. All four are sequentially consistent, so at least one side sees the other, and no
  // wake-up is lost.
  void start_workers() noexcept {
    epoch_.fetch_add(1);
    if (sleepers_.load() > 0) {
      std::lock_guard<std::mutex> const lock(mutex_);
      work_ready_.notify_all();
    }
  }

  // The same pattern, with the roles swapped: the caller sleeps on pending_.
  void wait_for_workers() noexcept {
    for (int turn = 0; turn < spin_turns; ++turn) {
      if (pending_.load(std::memory_order_acquire) == 0) return;
      pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_.store(true);
    work_done_.wait(lock, [this] { return pending_.load() == 0; });
    caller_sleeps_.store(false);
  }

  void finish_part() noexcept {
    if (pending_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
      std::lock_guard<std::mutex> const lock(mutex_);
      work_done_.notify_one();
    }
  }

  void wait_for_epoch(std::uint64_t seen) noexcept {
    for (int turn = 0; turn < spin_turns; ++turn) {
      if (epoch_.load(std::memory_order_acquire) != seen) return;
      pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1);
    work_ready_.wait(lock, [this, seen] { return epoch_.load() != seen; });
    sleepers_.fetch_sub(1);
  }

  void work(std::int64_t part) noexcept {
    for (std::uint64_t seen = 0;; ++seen) {
      wait_for_epoch(seen);
      if (stopping_.load(std::memory_order_relaxed)) return;
      run_part(part);
      finish_part();
    }
  }

  void stop() noexcept {
    stopping_.store(true, std::memory_order_relaxed);
    start_workers();
    for (std::thread& worker : workers_) worker.join();
  }

  using call_type = void (*)(void*, std::int64_t, std::int64_t) noexcept;

  // One cache line brings a worker the news and the loop: the fields are written before epoch_
  // moves and read after it has moved.
  alignas(64) std::atomic<std::uint64_t> epoch_{0};
  call_type call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;

  alignas(64) std::atomic<int> pending_{0};  // workers that have not finished the loop
  std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> busy_{false};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable work_done_;
  std::vector<std::thread> workers_;
};

}  // namespace qpn::cpu
