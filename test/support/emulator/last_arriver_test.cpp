// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/emulator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace qpn::test {
namespace {

// A reduction by the last block to arrive, done right and with one mistake at a time.

enum class mistake {
  none,
  no_fence,
  fence_after_ticket,
  no_barrier_before_ticket,
  no_barrier_after_ticket,
  ticket_lost,
  plain_load,
};

/// Every thread stores a partial sum; the block that takes the last ticket adds them, block by
/// block, and resets the ticket.
void reduce(emulated_lane& lane, mistake made, int blocks, std::uint32_t* partials,
            std::uint32_t* ticket, std::uint32_t* sums) {
  int const threads = 64;
  lane.store(partials + lane.block() * threads + lane.thread(),
             static_cast<std::uint32_t>(lane.block() + 1) * 100 +
                 static_cast<std::uint32_t>(lane.thread()));
  bool const fence_late = made == mistake::fence_after_ticket;
  if (made != mistake::no_fence && !fence_late) lane.fence_device();
  if (made != mistake::no_barrier_before_ticket) lane.sync_block();
  if (lane.thread() == 0) {
    bool const lost = made == mistake::ticket_lost && lane.block() == 1;
    std::uint32_t const taken = lost ? 0 : lane.atomic_add(ticket, 1);
    lane.shared_store<std::uint32_t>(0, taken == static_cast<std::uint32_t>(blocks - 1) ? 1 : 0);
  }
  if (fence_late) lane.fence_device();
  if (made != mistake::no_barrier_after_ticket) lane.sync_block();
  if (lane.shared_load<std::uint32_t>(0) == 0) return;
  std::uint32_t sum = 0;
  for (int block = 0; block < blocks; ++block) {
    std::uint32_t const* const partial = partials + block * threads + lane.thread();
    sum += made == mistake::plain_load ? lane.load(partial) : lane.load_volatile(partial);
  }
  lane.store(sums + lane.thread(), sum);
  if (lane.thread() == 0) lane.store(ticket, 0u);
}

/// Whether the launch has no error and the right result.
bool goes_well(mistake made, std::uint64_t seed, int resident) {
  int const blocks = 6;
  std::vector<std::uint32_t> partials(64 * blocks);
  std::vector<std::uint32_t> sums(64);
  std::uint32_t ticket = 0;
  emulator_memory memory;
  memory.add_region("partials", partials.data(), partials.size() * 4, region_use::workspace);
  memory.add_region("ticket", &ticket, 4, region_use::workspace | region_use::initialised);
  memory.add_region("sums", sums.data(), sums.size() * 4, region_use::output);
  emulation_report const report =
      emulate({.blocks = blocks,
               .threads = 64,
               .shared_bytes = 16,
               .seed = seed,
               .memory = &memory,
               .order = cta_order::shuffled,
               .resident = resident},
              [&](emulated_lane& lane) {
                reduce(lane, made, blocks, partials.data(), &ticket, sums.data());
              });
  bool right = report.ok() && ticket == 0 && all_equal(report.write_counts("sums"), 1);
  for (std::uint32_t thread = 0; thread < 64; ++thread) {
    right = right && sums[thread] == 2100 + 6 * thread;
  }
  if (made == mistake::none) {
    EXPECT_TRUE(right) << "seed " << seed << ", " << resident << " resident: " << report.text();
  }
  return right;
}

TEST(emulator_last_arriver, the_right_program_has_no_errors) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (int resident : {1, 2, 4, 6}) (void)goes_well(mistake::none, seed, resident);
  }
}

TEST(emulator_last_arriver, every_mistake_is_found_whatever_the_schedule) {
  for (mistake made :
       {mistake::no_fence, mistake::fence_after_ticket, mistake::no_barrier_before_ticket,
        mistake::no_barrier_after_ticket, mistake::ticket_lost, mistake::plain_load}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      for (int resident : {1, 4}) {
        EXPECT_FALSE(goes_well(made, seed, resident))
            << "mistake " << static_cast<int>(made) << ", seed " << seed << ", " << resident
            << " resident";
      }
    }
  }
}

}  // namespace
}  // namespace qpn::test
