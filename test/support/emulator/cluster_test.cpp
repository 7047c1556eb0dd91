// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include "support/emulator/emulator.hpp"
#include "support/emulator/expect.hpp"

namespace qpn::test {
namespace {

emulation_options pairs(std::uint64_t seed, int blocks = 4, int resident = 3) {
  emulation_options options;
  options.blocks = blocks;
  options.threads = 64;
  options.shared_bytes = 64 * 4;
  options.seed = seed;
  options.order = cta_order::shuffled;
  options.resident = resident;
  options.cluster = 2;
  return options;
}

/// Gives the peer CTA a value for each thread, and returns what came from there.
std::uint32_t exchange(emulated_lane& lane, bool waits_for_start, bool waits_for_values) {
  if (waits_for_start) {
    lane.arrive_cluster();
    lane.wait_cluster();
  }
  auto const own = static_cast<std::uint32_t>(1000 * lane.block() + lane.thread());
  lane.cluster_store(lane.cluster_rank() ^ 1, lane.thread() * 4, own);
  if (waits_for_values) {
    lane.arrive_cluster();
    lane.wait_cluster();
  }
  return lane.shared_load<std::uint32_t>((lane.thread() ^ 33) * 4);
}

TEST(emulator_cluster, ctas_store_to_each_other) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<std::uint32_t> got(4 * 64);
    emulation_report const report = emulate(pairs(seed), [&](emulated_lane& lane) {
      got[static_cast<std::size_t>(lane.block() * 64 + lane.thread())] = exchange(lane, true, true);
    });
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << report.text();
    for (int block = 0; block < 4; ++block) {
      for (int thread = 0; thread < 64; ++thread) {
        EXPECT_EQ(got[static_cast<std::size_t>(block * 64 + thread)],
                  static_cast<std::uint32_t>(1000 * (block ^ 1) + (thread ^ 33)))
            << "seed " << seed;
      }
    }
  }
}

void expect_found_in(std::function<void(emulated_lane&)> const& program, char const* text) {
  expect_found(emulate(pairs(7), program), text);
}

TEST(emulator_cluster, what_is_not_waited_for_is_found) {
  expect_found_in([](emulated_lane& lane) { static_cast<void>(exchange(lane, false, true)); },
                  "which may not have begun");
  expect_found_in(
      [](emulated_lane& lane) {
        lane.shared_store(lane.thread() * 4, std::uint32_t{0});
        static_cast<void>(exchange(lane, true, false));
      },
      "of another CTA wrote with no barrier in between");
  expect_found_in(
      [](emulated_lane& lane) {
        lane.arrive_cluster();
        lane.shared_store(lane.thread() * 4, std::uint32_t{0});
        lane.wait_cluster();
      },
      "between arrive_cluster and wait_cluster");
}

TEST(emulator_cluster, barriers_that_not_all_come_to_are_found) {
  expect_found_in(
      [](emulated_lane& lane) {
        if (lane.block() % 2 == 1) return;
        lane.arrive_cluster();
        lane.wait_cluster();
      },
      "of which nobody runs");
  expect_found_in([](emulated_lane& lane) { lane.wait_cluster(); }, "has not arrived");
  expect_found_in(
      [](emulated_lane& lane) {
        lane.arrive_cluster();
        lane.arrive_cluster();
      },
      "twice without a wait");
  expect_found_in(
      [](emulated_lane& lane) {
        lane.arrive_cluster();
        lane.wait_cluster();
        if (lane.block() % 2 == 1) return;
        for (int turn = 0; turn < 1000; ++turn) lane.sync_block();
        lane.cluster_store(lane.cluster_rank() ^ 1, lane.thread() * 4, std::uint32_t{1});
      },
      "which is not there");
}

TEST(emulator_cluster, clusters_are_resident_as_a_whole) {
  auto const nothing = [](emulated_lane&) {};
  EXPECT_THROW(static_cast<void>(emulate(pairs(1, 3), nothing)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(emulate(pairs(1, 4, 1), nothing)), std::invalid_argument);
  emulation_options rows = pairs(1);
  rows.row_blocks = 2;
  EXPECT_THROW(static_cast<void>(emulate(rows, nothing)), std::invalid_argument);
}

}  // namespace
}  // namespace qpn::test
