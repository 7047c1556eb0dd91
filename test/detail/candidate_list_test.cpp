// SPDX-License-Identifier: Apache-2.0
#include "qpn/detail/candidate_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "support/emulated_gemm.hpp"
#include "support/random.hpp"

namespace qpn::test {
namespace {

using key_list = std::vector<std::uint64_t>;

constexpr int counts[] = {1, 2, 3, 20, 31, 32, 33, 63, 64};

/// `count` keys that differ.
key_list random_keys(std::size_t count, random_source& random) {
  std::set<std::uint64_t> keys;
  while (keys.size() < count) {
    keys.insert(static_cast<std::uint64_t>(random.integer(1, 1 << 20)) << 32 | random.word());
  }
  key_list shuffled(keys.begin(), keys.end());
  for (std::size_t i = shuffled.size(); i > 1; --i) {
    auto const other = random.integer(0, static_cast<std::int64_t>(i) - 1);
    std::swap(shuffled[i - 1], shuffled[static_cast<std::size_t>(other)]);
  }
  return shuffled;
}

/// The best c, then empty places.
key_list best_of(key_list keys, std::size_t c) {
  std::sort(keys.rbegin(), keys.rend());
  keys.resize(c, detail::no_candidate);
  return keys;
}

/// Runs program(lane, id) in one warp whose workspace is `memory`.
template <class Program>
void run_warp(key_list& memory, Program program) {
  emulator_memory regions;
  regions.add_region("keys", memory.data(), memory.size() * sizeof(memory[0]),
                     region_use::workspace | region_use::initialised);
  emulation_options launch;
  launch.memory = &regions;
  launch.seed = memory.size();
  emulation_report const report = emulate(launch, [&](emulated_lane& lane) {
    program_lane of_program(lane);
    program(of_program, lane.thread());
  });
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST(candidate_list, keeps_the_best_of_all_that_was_offered) {
  for (int c : counts) {
    random_source random(static_cast<std::uint64_t>(c));
    constexpr std::size_t rounds = 9;
    key_list const keys = random_keys(64 * rounds, random);
    key_list offered;
    key_list list(static_cast<std::size_t>(c), 77);
    run_warp(list,
             [&](program_lane& lane, int id) { detail::clear_list(lane, id, c, list.data()); });
    EXPECT_EQ(list, best_of({}, list.size())) << "c " << c;
    for (std::size_t round = 0; round < rounds; ++round) {
      // Some lanes have nothing to offer, and in one round none has.
      key_list now(keys.begin() + static_cast<std::ptrdiff_t>(64 * round),
                   keys.begin() + static_cast<std::ptrdiff_t>(64 * (round + 1)));
      for (std::uint64_t& key : now) {
        if (round == 4 || random.integer(0, 3) == 0) key = detail::no_candidate;
      }
      run_warp(list, [&](program_lane& lane, int id) {
        std::uint64_t key[2] = {now[static_cast<std::size_t>(id)],
                                now[static_cast<std::size_t>(id) + 32]};
        detail::offer_keys(lane, id, c, list.data(), key);
      });
      offered.insert(offered.end(), now.begin(), now.end());
      EXPECT_EQ(list, best_of(offered, list.size())) << "c " << c << " round " << round;
    }
  }
}

/// Lists of c keys, `stride` apart; some are not full.
struct many_lists {
  key_list memory;
  key_list all;

  many_lists(int c, std::size_t stride, int count, bool one_has_the_best, random_source& random)
      : memory(stride * static_cast<std::size_t>(count), ~std::uint64_t{0}) {
    auto const size = static_cast<std::size_t>(c);
    key_list keys = random_keys(size * static_cast<std::size_t>(count), random);
    if (one_has_the_best) std::sort(keys.begin(), keys.end());
    for (std::size_t list = 0; list < static_cast<std::size_t>(count); ++list) {
      auto const first = keys.begin() + static_cast<std::ptrdiff_t>(list * size);
      std::int64_t const filled = random.integer(0, 2) == 0 ? random.integer(0, c) : c;
      key_list const mine(first, first + filled);
      key_list const falling = best_of(mine, size);
      std::copy(falling.begin(), falling.end(),
                memory.begin() + static_cast<std::ptrdiff_t>(list * stride));
      all.insert(all.end(), mine.begin(), mine.end());
    }
  }
};

TEST(candidate_list, merges_as_many_lists_as_a_device_has_ctas) {
  std::uint64_t seed = 1;
  for (int c : counts) {
    for (int count : {1, 2, 31, 32, 33, 64, 65, 160, 264, 2048}) {
      for (bool one_has_the_best : {false, true}) {
        random_source random(seed++);
        std::size_t const stride = static_cast<std::size_t>(c) * (count > 300 ? 1 : 3);
        many_lists lists(c, stride, count, one_has_the_best, random);
        key_list best(64, 0);
        run_warp(lists.memory, [&](program_lane& lane, int id) {
          std::uint64_t mine[2];
          detail::merge_lists(lane, id, c, lists.memory.data(), static_cast<std::int64_t>(stride),
                              count, mine);
          best[static_cast<std::size_t>(id)] = mine[0];
          best[static_cast<std::size_t>(id) + 32] = mine[1];
        });
        best.resize(static_cast<std::size_t>(c));
        ASSERT_EQ(best, best_of(lists.all, best.size()))
            << "c " << c << " lists " << count << " seed " << seed - 1;
      }
    }
  }
}

}  // namespace
}  // namespace qpn::test
