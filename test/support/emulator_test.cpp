// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/emulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <qpn/dtype.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/emulator/expect.hpp"
#include "support/emulator/fiber.hpp"
#include "support/random.hpp"

namespace qpn::test {
namespace {

// Registers.

TEST(emulator_registers, shuffle_xor_brings_the_value_of_the_other_lane) {
  std::vector<std::uint32_t> got(64 * 5);
  emulation_report const report = emulate({.threads = 64}, [&](emulated_lane& lane) {
    auto const value = static_cast<std::uint32_t>(1000 + lane.thread());
    for (int bit = 0; bit < 5; ++bit) {
      got[static_cast<std::size_t>(lane.thread() * 5 + bit)] = lane.shuffle_xor(value, 1 << bit);
    }
  });
  EXPECT_TRUE(report.ok()) << report.text();
  for (int thread = 0; thread < 64; ++thread) {
    for (int bit = 0; bit < 5; ++bit) {
      EXPECT_EQ(got[static_cast<std::size_t>(thread * 5 + bit)],
                static_cast<std::uint32_t>(1000 + (thread ^ 1 << bit)));
    }
  }
}

TEST(emulator_registers, any_holds_where_it_holds_in_one_lane_of_the_warp) {
  emulation_options options;
  options.threads = 2 * warp_lanes;
  std::vector<std::uint8_t> held(static_cast<std::size_t>(options.threads) * 2, 2);
  emulation_report const report = emulate(options, [&](emulated_lane& lane) {
    auto const at = static_cast<std::size_t>(lane.thread()) * 2;
    held[at] = lane.any(lane.thread() == 45) ? 1 : 0;
    held[at + 1] = lane.any(lane.thread() != 45) ? 1 : 0;
  });
  EXPECT_TRUE(report.ok()) << report.text();
  for (std::size_t thread = 0; thread < 64; ++thread) {
    EXPECT_EQ(held[2 * thread], thread / 32) << "thread " << thread;
    EXPECT_EQ(held[2 * thread + 1], 1) << "thread " << thread;
  }
}

TEST(emulator_registers, byte_permute_follows_prmt) {
  EXPECT_EQ(byte_permute(0x33221100u, 0x77665544u, 0x3210u), 0x33221100u);
  EXPECT_EQ(byte_permute(0x33221100u, 0x77665544u, 0x7654u), 0x77665544u);
  EXPECT_EQ(byte_permute(0x33221100u, 0x77665544u, 0x0527u), 0x00552277u);
  // Bit 3 of a nibble spreads the sign of the byte.
  EXPECT_EQ(byte_permute(0x00008000u, 0x0000007fu, 0x1c89u), 0x800000ffu);
  // Bits above the fourth nibble do not count.
  EXPECT_EQ(byte_permute(0x33221100u, 0u, 0xabcd3210u), 0x33221100u);
}

TEST(emulator_registers, multiply_half2_rounds_once_and_keeps_subnormals) {
  auto const product = [](std::uint32_t a, std::uint32_t b) {
    return multiply_half2(a << 16 | b, b << 16 | a);
  };
  EXPECT_EQ(product(0x3c00u, 0x4500u), 0x45004500u);                 // 1 x 5
  EXPECT_EQ(product(0x0001u, 0x3c00u), 0x00010001u);                 // 2^-24
  EXPECT_EQ(product(0x0003u, 0x3800u), 0x00020002u);                 // 1.5 x 2^-24: tie to even
  EXPECT_EQ(product(0x0001u, 0x3800u), 0x00000000u);                 // 2^-25: tie to even
  EXPECT_EQ(product(0x3c01u, 0x3c01u), 0x3c023c02u);                 // 1 + 2^-9 + 2^-20
  EXPECT_EQ(product(0xfbffu, 0x4000u), 0xfc00fc00u);                 // overflow
  EXPECT_EQ(multiply_half2(0x4000c000u, 0x42004200u), 0x4600c600u);  // the halves keep apart
}

TEST(emulator_registers, multiply_bf16x2_rounds_once_and_keeps_subnormals) {
  auto const product = [](std::uint32_t a, std::uint32_t b) {
    return multiply_bf16x2(a << 16 | b, b << 16 | a);
  };
  EXPECT_EQ(product(0x3f80u, 0x40a0u), 0x40a040a0u);                  // 1 x 5
  EXPECT_EQ(product(0x0040u, 0x7f00u), 0x3f803f80u);                  // 2^-127 x 2^127
  EXPECT_EQ(product(0x0003u, 0x3f00u), 0x00020002u);                  // 1.5 x 2^-133: tie to even
  EXPECT_EQ(product(0x3f81u, 0x3f81u), 0x3f823f82u);                  // 1 + 2^-6 + 2^-14
  EXPECT_EQ(product(0x1e11u, 0x1de2u), 0x00010001u);                  // 2^-134 (1 + 2^-14): up
  EXPECT_EQ(product(0x1e00u, 0x1e00u), 0x00000000u);                  // 2^-134: tie to even
  EXPECT_EQ(product(0xff7fu, 0x4000u), 0xff80ff80u);                  // overflow
  EXPECT_EQ(product(0x8000u, 0x3f80u), 0x80008000u);                  // -0
  EXPECT_EQ(multiply_bf16x2(0x4000c000u, 0x40404040u), 0x40c0c0c0u);  // the halves keep apart
}

/// Rows and columns that a lane holds, as the PTX ISA lists them.
struct mma_place {
  int quad_pair;
  int position;
  explicit mma_place(int lane) : quad_pair(lane / 4 % 4), position(lane % 4 + lane / 16 * 4) {}
};

TEST(emulator_registers, mma_equals_a_plain_loop_over_the_matrices) {
  random_source random(42);
  SCOPED_TRACE(random.seed());
  // Small integers: every sum is exact, so no order of additions can hide.
  std::array<std::uint16_t, 32 * 4> a{};
  std::array<std::uint16_t, 32 * 4> b{};
  std::array<float, 32 * 8> d{};
  for (auto& value : a) value = encode_f16(static_cast<float>(random.integer(-64, 64)));
  for (auto& value : b) value = encode_f16(static_cast<float>(random.integer(-64, 64)));
  for (auto& value : d) value = static_cast<float>(random.integer(-1000, 1000));
  std::array<float, 32 * 8> got = d;

  emulation_report const report = emulate({}, [&](emulated_lane& lane) {
    auto const at = static_cast<std::size_t>(lane.thread());
    auto const pair = [&](std::array<std::uint16_t, 32 * 4> const& from, std::size_t first) {
      return static_cast<std::uint32_t>(from[at * 4 + first + 1]) << 16 | from[at * 4 + first];
    };
    std::uint32_t const a_registers[2] = {pair(a, 0), pair(a, 2)};
    std::uint32_t const b_registers[2] = {pair(b, 0), pair(b, 2)};
    float sums[8];
    std::copy_n(d.begin() + static_cast<std::ptrdiff_t>(at * 8), 8, sums);
    lane.mma_m8n8k4(sums, a_registers, b_registers);
    std::copy_n(sums, 8, got.begin() + static_cast<std::ptrdiff_t>(at * 8));
  });
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(report.mma_count, 1);

  double a_matrix[4][8][4];
  double b_matrix[4][4][8];
  for (int lane = 0; lane < 32; ++lane) {
    mma_place const place(lane);
    for (int k = 0; k < 4; ++k) {
      auto const index = static_cast<std::size_t>(lane * 4 + k);
      a_matrix[place.quad_pair][place.position][k] = decode_f16(a[index]);
      b_matrix[place.quad_pair][k][place.position] = decode_f16(b[index]);
    }
  }
  std::set<std::array<int, 3>> owned;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      int const quad_pair = (lane >> 2) & 3;
      int const row = (lane & 1) + (i & 2) + 4 * (lane >> 4);
      int const column = (i & 4) + (lane & 2) + (i & 1);
      owned.insert({quad_pair, row, column});
      auto const index = static_cast<std::size_t>(lane * 8 + i);
      double sum = d[index];
      for (int k = 0; k < 4; ++k) {
        sum += a_matrix[quad_pair][row][k] * b_matrix[quad_pair][k][column];
      }
      EXPECT_EQ(static_cast<double>(got[index]), sum) << "lane " << lane << ", register " << i;
    }
  }
  EXPECT_EQ(owned.size(), 4u * 8u * 8u);
}

TEST(emulator_registers, mma_rounds_the_sum_once) {
  // Additions in fp32 would lose the 1 beside 2^24.
  auto const first_sum = [](float last_product_sign, float d_before) {
    std::uint16_t const last = encode_f16(last_product_sign * 32768.0f);
    std::uint32_t const a[2] = {0x3c007800u, last};         // 2^15, 1, +-2^15, 0
    std::uint32_t const b[2] = {0x3c006000u, 0x00006000u};  // 2^9, 1, 2^9, 0
    float got = 0.0f;
    emulation_report const report = emulate({}, [&](emulated_lane& lane) {
      float d[8] = {d_before};
      lane.mma_m8n8k4(d, a, b);
      if (lane.thread() == 0) got = d[0];
    });
    EXPECT_TRUE(report.ok()) << report.text();
    return got;
  };
  EXPECT_EQ(first_sum(-1.0f, 0.5f), 1.5f);
  EXPECT_EQ(first_sum(0.0f, 1.0f), 16777218.0f);
  EXPECT_EQ(first_sum(0.0f, 0.0f), 16777216.0f);  // 2^24 + 1 is a tie
}

// Collectives.

TEST(emulator_collectives, warps_of_a_block_need_not_keep_step) {
  emulation_report const report = emulate({.blocks = 3, .threads = 128}, [](emulated_lane& lane) {
    int const warp = lane.thread() / 32;
    for (int i = 0; i < warp; ++i) lane.sync_warp();
    lane.sync_block();
    for (int i = warp; i < 4; ++i) (void)lane.shuffle_xor(0, 1);
    lane.sync_block();
  });
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST(emulator_collectives, different_collectives_in_a_warp_are_an_error) {
  emulation_report const report = emulate({.blocks = 4, .threads = 64}, [](emulated_lane& lane) {
    if (lane.block() == 3 && lane.thread() >= 48) {
      float d[8] = {};
      std::uint32_t const a[2] = {};
      lane.mma_m8n8k4(d, a, a);
    } else {
      lane.sync_warp();
    }
  });
  expect_error(report, "block 3, warp 1: lanes 0-15 wait at sync_warp, lanes 16-31 at mma_m8n8k4");
}

TEST(emulator_collectives, different_shuffle_masks_are_an_error) {
  emulation_report const report = emulate(
      {}, [](emulated_lane& lane) { (void)lane.shuffle_xor(0, lane.thread() % 8 == 1 ? 2 : 1); });
  expect_error(
      report,
      "block 0, warp 0: lanes 0, 2-8, 10-16, 18-24, 26-31 wait at shuffle_xor with mask 1, "
      "lanes 1, 9, 17, 25 at shuffle_xor with mask 2");
}

TEST(emulator_collectives, a_shuffle_mask_beyond_the_warp_is_an_error) {
  emulation_report const report =
      emulate({}, [](emulated_lane& lane) { (void)lane.shuffle_xor(0, 32); });
  expect_error(report, "block 0, warp 0: shuffle_xor with mask 32, which is not in 0..31");
}

TEST(emulator_collectives, a_lane_that_has_returned_is_missed_by_its_warp) {
  emulation_report const report = emulate({}, [](emulated_lane& lane) {
    if (lane.thread() != 7) lane.sync_warp();
  });
  expect_error(report, "block 0, warp 0: lanes 0-6, 8-31 wait at sync_warp, lane 7 has returned");
}

TEST(emulator_collectives, a_warp_that_has_returned_is_missed_by_its_block) {
  emulation_report const report = emulate({.threads = 128}, [](emulated_lane& lane) {
    if (lane.thread() / 32 != 1) lane.sync_block();
  });
  expect_error(report, "block 0: warps 0, 2-3 wait at sync_block, warp 1 has returned");
}

TEST(emulator_collectives, whole_warps_may_return_early_without_a_barrier_left) {
  emulation_report const report = emulate({.threads = 128}, [](emulated_lane& lane) {
    lane.sync_block();
    if (lane.thread() / 32 != 1) lane.sync_warp();
  });
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST(emulator_collectives, a_block_that_is_stuck_does_not_stop_the_others) {
  std::vector<int> returned(8);
  emulation_report const report = emulate({.blocks = 8, .resident = 3}, [&](emulated_lane& lane) {
    if (lane.block() == 2 && lane.thread() == 0) return;
    lane.sync_warp();
    ++returned[static_cast<std::size_t>(lane.block())];
  });
  expect_error(report, "block 2, warp 0: lane 0 has returned, lanes 1-31 wait at sync_warp");
  EXPECT_EQ(returned, (std::vector<int>{32, 32, 0, 32, 32, 32, 32, 32}));
}

/// Of 4 warps, in 20 schedules: each thread writes its word and passes `first`, thread `reader`
/// reads that of thread `writer`, all pass `second`, and the writer may write again. How many are
/// in order.
int schedules_in_order(int reader, int writer, void (emulated_lane::*first)(),
                       void (emulated_lane::*second)(), bool again) {
  int count = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    emulation_report const report =
        emulate({.threads = 128, .shared_bytes = 512, .seed = seed}, [=](emulated_lane& lane) {
          lane.shared_store(4 * lane.thread(), lane.thread());
          if (first != nullptr) (lane.*first)();
          if (lane.thread() == reader) (void)lane.shared_load<int>(4 * writer);
          if (second != nullptr) (lane.*second)();
          if (again && lane.thread() == writer) lane.shared_store(4 * writer, 0);
        });
    count += report.ok() ? 1 : 0;
  }
  return count;
}

TEST(emulator_collectives, a_barrier_of_a_pair_orders_its_two_warps_and_no_others) {
  auto const pair = &emulated_lane::sync_pair;
  auto const block = &emulated_lane::sync_block;
  // Threads 3 and 36 are of one pair, 100 is of the other.
  EXPECT_EQ(schedules_in_order(3, 36, pair, pair, true), 20);
  EXPECT_EQ(schedules_in_order(3, 36, nullptr, pair, true), 0);
  EXPECT_EQ(schedules_in_order(3, 36, pair, nullptr, true), 0);
  EXPECT_EQ(schedules_in_order(3, 100, block, block, true), 20);
  EXPECT_EQ(schedules_in_order(3, 100, pair, nullptr, false), 0) << "another pair writes";
  EXPECT_EQ(schedules_in_order(3, 100, block, pair, true), 0) << "another pair reads";
}

TEST(emulator_collectives, a_warp_that_has_returned_is_missed_by_its_pair) {
  emulation_report const report = emulate({.blocks = 1, .threads = 128}, [](emulated_lane& lane) {
    if (lane.thread() / 32 != 2) lane.sync_pair();
  });
  expect_error(report, "block 0: warps 0-2 have returned, warp 3 waits at sync_pair");
}

TEST(emulator_collectives, pairs_of_a_block_need_not_keep_step) {
  emulation_report const report =
      emulate({.blocks = 2, .threads = 256, .seed = 3}, [](emulated_lane& lane) {
        for (int i = 0; i < lane.thread() / 64; ++i) lane.sync_pair();
        lane.sync_block();
        lane.sync_pair();
      });
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST(emulator_collectives, an_exception_is_reported_with_its_thread) {
  emulation_report const report = emulate({.blocks = 2, .threads = 64}, [](emulated_lane& lane) {
    if (lane.block() == 1 && lane.thread() == 40) throw std::runtime_error("no such row");
    lane.sync_block();
  });
  expect_error(report, "block 1, thread 40 threw: no such row");

  emulation_report const other = emulate({}, [](emulated_lane& lane) {
    if (lane.thread() == 3) throw 5;
    lane.sync_warp();
  });
  expect_error(other, "block 0, thread 3 threw: something that is no std::exception");
}

TEST(emulator_collectives, exceptions_may_be_caught_between_collectives) {
  int caught = 0;
  emulation_report const report = emulate({.threads = 64}, [&](emulated_lane& lane) {
    for (int i = 0; i < 3; ++i) {
      lane.sync_block();
      try {
        throw std::runtime_error("mine");
      } catch (std::runtime_error const&) {
        ++caught;
      }
    }
  });
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(caught, 3 * 64);
}

TEST(emulator_collectives, a_loop_without_end_is_found) {
  emulator_memory memory;
  std::uint32_t flag = 0;
  memory.add_region("flag", &flag, sizeof flag, region_use::workspace | region_use::initialised);
  emulation_report const waits =
      emulate({.memory = &memory, .max_operations = 1000}, [&](emulated_lane& lane) {
        if (lane.thread() == 31) {
          while (lane.load_volatile(&flag) == 0) {
          }
        }
        lane.sync_warp();
      });
  expect_error(waits, "block 0, thread 31: more than 1000 operations, its loop may have no end");

  emulation_report const turns =
      emulate({.threads = 64, .max_operations = 1000}, [&](emulated_lane& lane) {
        for (;;) lane.sync_block();
      });
  expect_found(turns, "more than 1000 operations, its loop may have no end");

  emulation_report const ends = emulate({.max_operations = 1000}, [&](emulated_lane& lane) {
    for (int i = 0; i < 1000; ++i) lane.sync_warp();
  });
  EXPECT_TRUE(ends.ok()) << ends.text();
}

TEST(emulator_collectives, lane_programs_may_be_noexcept) {
  auto const program = [](emulated_lane& lane) noexcept {
    if (lane.thread() < 16) lane.sync_warp();
    lane.sync_block();
  };
  expect_error(emulate({}, program),
               "block 0, warp 0: lanes 0-15 wait at sync_warp, lanes 16-31 at sync_block");
}

#if GTEST_HAS_DEATH_TEST
TEST(emulator_collectives, below_a_stack_lies_a_page_that_ends_the_process) {
  fiber_stack const stack;
  std::byte volatile* const bottom = stack.bottom();
  bottom[0] = std::byte{1};
  EXPECT_DEATH(bottom[-1] = std::byte{1}, "");
}
#endif

// Scheduling.

/// Blocks in the order of their first operation and how often the turn went to another block.
struct observed_schedule {
  std::vector<int> first;
  int changes = 0;
  std::vector<int> all;
};

observed_schedule observe(cta_order order, int resident, std::uint64_t seed) {
  observed_schedule seen;
  emulation_report const report =
      emulate({.blocks = 12, .threads = 64, .seed = seed, .order = order, .resident = resident},
              [&](emulated_lane& lane) {
                for (int i = 0; i < 4; ++i) {
                  int const block = lane.block();
                  if (!seen.all.empty() && seen.all.back() / 64 != block) ++seen.changes;
                  seen.all.push_back(block * 64 + lane.thread());
                  if (std::find(seen.first.begin(), seen.first.end(), block) == seen.first.end()) {
                    seen.first.push_back(block);
                  }
                  lane.sync_warp();
                }
              });
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(seen.all.size(), 12u * 64u * 4u);
  return seen;
}

TEST(emulator_schedule, blocks_run_one_after_another_in_the_order_asked_for) {
  std::vector<int> ascending(12);
  for (int i = 0; i < 12; ++i) ascending[static_cast<std::size_t>(i)] = i;
  std::vector<int> const descending(ascending.rbegin(), ascending.rend());
  EXPECT_EQ(observe(cta_order::ascending, 1, 1).first, ascending);
  EXPECT_EQ(observe(cta_order::descending, 1, 1).first, descending);
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    observed_schedule const seen = observe(cta_order::shuffled, 1, seed);
    EXPECT_TRUE(std::is_permutation(seen.first.begin(), seen.first.end(), ascending.begin(),
                                    ascending.end()));
    EXPECT_EQ(seen.changes, 11);
    orders.insert(seen.first);
  }
  EXPECT_EQ(orders.size(), 10u);
}

TEST(emulator_schedule, row_blocks_of_a_block_follow_each_other) {
  std::vector<std::pair<int, int>> begun;
  emulation_report const report =
      emulate({.blocks = 3, .row_blocks = 2, .threads = 32}, [&](emulated_lane& lane) {
        if (lane.thread() == 0) begun.emplace_back(lane.block(), lane.row_block());
      });
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(begun,
            (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}));
}

TEST(emulator_schedule, resident_blocks_take_turns) {
  EXPECT_EQ(observe(cta_order::ascending, 1, 1).changes, 11);
  EXPECT_GT(observe(cta_order::ascending, 3, 1).changes, 11);
  // No more than `resident` blocks are begun and not ended.
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<int> const all = observe(cta_order::ascending, 3, seed).all;
    std::array<int, 12> done{};
    for (int thread : all) {
      ++done[static_cast<std::size_t>(thread / 64)];
      EXPECT_LE(std::count_if(done.begin(), done.end(), [](int n) { return n > 0 && n < 256; }), 3);
    }
  }
}

TEST(emulator_schedule, lanes_of_a_warp_have_no_order) {
  std::set<int> firsts;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    firsts.insert(observe(cta_order::ascending, 1, seed).all.front() % 32);
  }
  EXPECT_GT(firsts.size(), 10u);
}

TEST(emulator_schedule, the_turn_changes_at_atomics_fences_and_volatile_loads) {
  std::uint32_t word = 0;
  emulator_memory memory;
  memory.add_region("word", &word, sizeof word, region_use::workspace | region_use::initialised);
  auto const changes = [&](auto operation) {
    int count = 0;
    int last = -1;
    emulation_report const report =
        emulate({.blocks = 2, .memory = &memory, .resident = 2}, [&](emulated_lane& lane) {
          for (int i = 0; i < 4; ++i) {
            operation(lane);
            count += last != lane.block() ? 1 : 0;
            last = lane.block();
          }
        });
    EXPECT_TRUE(report.ok()) << report.text();
    return count;
  };
  EXPECT_GT(changes([&](emulated_lane& lane) { lane.atomic_add(&word, 1); }), 2);
  EXPECT_GT(changes([&](emulated_lane& lane) { lane.fence_device(); }), 2);
  EXPECT_GT(changes([&](emulated_lane& lane) { (void)lane.load_volatile(&word); }), 2);
  EXPECT_EQ(changes([](emulated_lane&) {}), 2);
}

TEST(emulator_schedule, a_seed_is_a_schedule) {
  EXPECT_EQ(observe(cta_order::shuffled, 4, 7).all, observe(cta_order::shuffled, 4, 7).all);
  EXPECT_NE(observe(cta_order::shuffled, 4, 7).all, observe(cta_order::shuffled, 4, 8).all);
}

TEST(emulator_schedule, options_that_make_no_sense_are_refused) {
  auto const refused = [](emulation_options const& options) {
    EXPECT_THROW((void)emulate(options, [](emulated_lane&) {}), std::invalid_argument);
  };
  refused({.blocks = 0});
  refused({.row_blocks = 0});
  refused({.threads = 0});
  refused({.threads = 40});
  refused({.threads = 1056});
  refused({.shared_bytes = -1});
  refused({.resident = 0});
  refused({.max_operations = 0});
  EXPECT_TRUE(emulate({.threads = 1024}, [](emulated_lane& lane) { lane.sync_block(); }).ok());
}

TEST(emulator_report, keeps_twenty_errors_and_counts_them_all) {
  emulation_report const report = emulate({}, [](emulated_lane& lane) {
    for (int i = 0; i < 3; ++i) lane.shared_store(0, 1);
  });
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.error_count, 96);
  EXPECT_EQ(report.errors.size(), 20u);
  EXPECT_EQ(report.text().rfind("96 errors\n", 0), 0u);
}

}  // namespace
}  // namespace qpn::test
