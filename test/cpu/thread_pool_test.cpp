// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <qpn/cpu/thread_pool.hpp>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {

using qpn::cpu::thread_pool;
using range = std::pair<std::int64_t, std::int64_t>;

std::vector<range> ranges_of(thread_pool& pool, std::int64_t count) {
  std::mutex mutex;
  std::vector<range> ranges;
  pool.parallel_for(count, [&](std::int64_t begin, std::int64_t end) {
    std::lock_guard<std::mutex> const lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

}  // namespace

TEST(thread_pool, ranges_cover_the_count_once_and_differ_by_at_most_one) {
  for (int threads = -1; threads <= 6; ++threads) {
    thread_pool pool(threads);
    ASSERT_EQ(pool.size(), threads > 1 ? threads : 1);
    for (std::int64_t count = 0; count <= 40; ++count) {
      std::vector<range> const ranges = ranges_of(pool, count);
      ASSERT_LE(static_cast<std::int64_t>(ranges.size()), pool.size());
      std::int64_t next = 0;
      std::int64_t shortest = count;
      std::int64_t longest = 0;
      for (auto const& [begin, end] : ranges) {
        ASSERT_EQ(begin, next) << "threads " << threads << ", count " << count;
        ASSERT_LT(begin, end);
        shortest = (std::min)(shortest, end - begin);
        longest = (std::max)(longest, end - begin);
        next = end;
      }
      ASSERT_EQ(next, count < 0 ? 0 : count);
      if (static_cast<std::int64_t>(ranges.size()) == pool.size()) {
        ASSERT_LE(longest - shortest, 1);
      }
    }
  }
}

TEST(thread_pool, a_negative_count_calls_nothing) {
  thread_pool pool(3);
  EXPECT_TRUE(ranges_of(pool, -5).empty());
}

TEST(thread_pool, plain_writes_of_a_loop_are_visible_after_it_and_to_the_next) {
  thread_pool pool(4);
  std::vector<std::int64_t> values(257, 0);
  for (int round = 1; round <= 3000; ++round) {
    // Pauses of every length around the spinning time, so that workers are met awake, asleep and in
    // between.
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    if (round % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round % 97));
    pool.parallel_for(257, [&](std::int64_t begin, std::int64_t end) {
      // Reads what another thread wrote in the round before.
      for (std::int64_t i = begin; i < end; ++i)
        values[static_cast<std::size_t>((i * 2 + round) % 257)] += 1;
    });
    for (std::int64_t const value : values) ASSERT_EQ(value, round);
  }
}

TEST(thread_pool, a_nested_loop_runs_its_whole_range_on_the_calling_thread) {
  thread_pool pool(3);
  std::atomic<int> wrong{0};
  std::atomic<std::int64_t> total{0};
  pool.parallel_for(3, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::thread::id const self = std::this_thread::get_id();
      pool.parallel_for(10, [&](std::int64_t inner_begin, std::int64_t inner_end) {
        if (inner_begin != 0 || inner_end != 10 || std::this_thread::get_id() != self) ++wrong;
        total += inner_end - inner_begin;
      });
    }
  });
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(total.load(), 30);
}

TEST(thread_pool, two_callers_at_once_both_get_complete_results) {
  thread_pool pool(3);
  std::atomic<int> wrong{0};
  auto const caller = [&] {
    std::vector<int> values(64);
    for (int round = 1; round <= 500; ++round) {
      pool.parallel_for(64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++values[static_cast<std::size_t>(i)];
      });
      for (int const value : values) wrong += value != round ? 1 : 0;
    }
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(thread_pool, uses_all_its_threads) {
  thread_pool pool(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  pool.parallel_for(3, [&](std::int64_t, std::int64_t) {
    std::lock_guard<std::mutex> const lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids.count(std::this_thread::get_id()), 1u);
}

TEST(thread_pool, pools_come_and_go_used_or_not) {
  for (int i = 0; i < 50; ++i) {
    thread_pool unused(4);
    thread_pool used(4);
    std::atomic<int> calls{0};
    used.parallel_for(4, [&](std::int64_t, std::int64_t) { ++calls; });
    ASSERT_EQ(calls.load(), 4);
  }
}

TEST(thread_pool, an_idle_pool_uses_no_processor_time) {
  thread_pool pool(8);
  pool.parallel_for(8, [](std::int64_t, std::int64_t) {});
  std::clock_t const before = std::clock();  // processor time of the process
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  double const used_ms = 1e3 * static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  // A pool that kept spinning would use at least one core for 300 ms.
  EXPECT_LT(used_ms, 100.0);
}
