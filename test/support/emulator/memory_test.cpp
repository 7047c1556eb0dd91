// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/emulator.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/emulator/expect.hpp"

namespace qpn::test {
namespace {

struct alignas(16) four_words {
  std::uint32_t word[4];
};

// Shared memory.

TEST(emulator_shared_memory, a_barrier_between_store_and_load_is_demanded) {
  auto const exchange = [](int distance, auto barrier) {
    return emulate({.blocks = 2, .threads = 64, .shared_bytes = 256}, [&](emulated_lane& lane) {
      lane.shared_store(4 * lane.thread(), lane.thread());
      barrier(lane);
      int const other = lane.thread() ^ distance;
      if (lane.shared_load<int>(4 * other) != other) throw std::runtime_error("wrong value");
    });
  };
  EXPECT_TRUE(exchange(32, [](emulated_lane& lane) { lane.sync_block(); }).ok());
  EXPECT_TRUE(exchange(1, [](emulated_lane& lane) { lane.sync_block(); }).ok());
  EXPECT_TRUE(exchange(1, [](emulated_lane& lane) { lane.sync_warp(); }).ok());
  EXPECT_TRUE(exchange(0, [](emulated_lane&) {}).ok());

  emulation_report const across = exchange(32, [](emulated_lane& lane) { lane.sync_warp(); });
  EXPECT_GT(across.error_count, 0);
  // No collective but the two barriers orders memory.
  emulation_report const shuffled =
      exchange(1, [](emulated_lane& lane) { (void)lane.shuffle_xor(0, 1); });
  EXPECT_EQ(shuffled.error_count, 128);
  expect_found(shuffled, " of shared memory, which thread ");
  expect_found(shuffled, " wrote with no barrier in between");
}

/// Warp 0 does one thing, a barrier or none, warp 1 another.
template <class First, class Second>
emulation_report in_turn(bool barrier, First first, Second second) {
  return emulate({.threads = 64, .shared_bytes = 64}, [&](emulated_lane& lane) {
    if (lane.thread() == 0) {
      for (int i = 0; i < 16; ++i) lane.shared_store(4 * i, i);
    }
    lane.sync_block();
    if (lane.thread() / 32 == 0) first(lane);
    if (barrier) lane.sync_block();
    if (lane.thread() / 32 == 1) second(lane);
  });
}

void read_word(emulated_lane& lane) {
  (void)lane.shared_load<int>(16);
}
void write_word(emulated_lane& lane) {
  if (lane.thread() % 32 == 5) lane.shared_store(16, 1);
}

TEST(emulator_shared_memory, every_kind_of_race_between_warps_is_found) {
  EXPECT_TRUE(in_turn(false, read_word, read_word).ok());
  EXPECT_TRUE(in_turn(true, read_word, write_word).ok());
  EXPECT_TRUE(in_turn(true, write_word, read_word).ok());
  EXPECT_TRUE(in_turn(true, write_word, write_word).ok());
  EXPECT_GT(in_turn(false, read_word, write_word).error_count, 0);
  EXPECT_GT(in_turn(false, write_word, read_word).error_count, 0);
  EXPECT_EQ(in_turn(false, write_word, write_word).error_count, 1);
}

TEST(emulator_shared_memory, the_sentence_names_block_threads_and_byte) {
  emulation_report const writes = emulate({.shared_bytes = 64}, [](emulated_lane& lane) {
    if (lane.thread() == 3 || lane.thread() == 4) lane.shared_store<std::uint16_t>(16, 1);
  });
  EXPECT_EQ(writes.error_count, 1);
  std::string const after = " of shared memory, which thread ";
  expect_found(writes, "block 0, thread ");
  expect_found(writes, " writes byte 16" + after);

  emulation_report const reads = emulate({.shared_bytes = 64}, [](emulated_lane& lane) {
    if (lane.thread() == 9) lane.shared_store(16, 1);
    (void)lane.shuffle_xor(0, 1);
    if (lane.thread() == 2) (void)lane.shared_load<std::uint8_t>(18);
  });
  expect_error(reads,
               "block 0, thread 2 reads byte 18 of shared memory, which thread 9 wrote with no "
               "barrier in between");

  emulation_report const overwrites = emulate({.shared_bytes = 64}, [](emulated_lane& lane) {
    if (lane.thread() == 9) lane.shared_store(16, 1);
    lane.sync_warp();
    if (lane.thread() == 2) (void)lane.shared_load<int>(16);
    (void)lane.shuffle_xor(0, 1);
    if (lane.thread() == 4) lane.shared_store(16, 2);
  });
  expect_error(overwrites,
               "block 0, thread 4 writes byte 16 of shared memory, which thread 2 read with no "
               "barrier in between");
}

TEST(emulator_shared_memory, a_later_reader_does_not_hide_an_earlier_one) {
  // Thread 40 of the other warp read first; then the lanes of the writer's warp, with a sync_warp.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    emulation_report const report =
        emulate({.threads = 64, .shared_bytes = 64, .seed = seed}, [](emulated_lane& lane) {
          if (lane.thread() == 0) lane.shared_store(0, 1);
          lane.sync_block();
          if (lane.thread() == 40 || lane.thread() < 32) (void)lane.shared_load<int>(0);
          lane.sync_warp();
          if (lane.thread() == 0) lane.shared_store(0, 2);
        });
    EXPECT_GT(report.error_count, 0) << "seed " << seed;
  }
  // Two lanes of the writer's own warp, itself the last one.
  emulation_report const own = emulate({.shared_bytes = 64}, [](emulated_lane& lane) {
    if (lane.thread() == 0) lane.shared_store(0, 1);
    lane.sync_warp();
    if (lane.thread() == 1) (void)lane.shared_load<int>(0);
    (void)lane.shuffle_xor(0, 1);
    if (lane.thread() == 0) {
      (void)lane.shared_load<int>(0);
      lane.shared_store(0, 2);
    }
  });
  expect_error(own,
               "block 0, thread 0 writes byte 0 of shared memory, which other threads read with no "
               "barrier in between");
}

TEST(emulator_shared_memory, a_sync_warp_orders_nothing_for_other_warps) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    emulation_report const report =
        emulate({.threads = 64, .shared_bytes = 64, .seed = seed}, [](emulated_lane& lane) {
          if (lane.thread() == 0) lane.shared_store(0, 1);
          lane.sync_block();
          if (lane.thread() == 40) (void)lane.shared_load<int>(0);
          lane.sync_warp();
          if (lane.thread() == 0) lane.shared_store(0, 2);
        });
    EXPECT_GT(report.error_count, 0) << "seed " << seed;
  }
}

TEST(emulator_shared_memory, a_sync_warp_is_enough_within_a_warp) {
  auto const read_then_write = [](bool last_reader_writes) {
    return emulate({.shared_bytes = 64}, [&](emulated_lane& lane) {
      if (lane.thread() == 0) lane.shared_store(0, 1);
      lane.sync_warp();
      if (lane.thread() < 4) (void)lane.shared_load<int>(0);
      lane.sync_warp();
      if (lane.thread() != 9) return;
      if (last_reader_writes) (void)lane.shared_load<int>(0);
      lane.shared_store(0, 2);
    });
  };
  EXPECT_TRUE(read_then_write(false).ok());
  EXPECT_TRUE(read_then_write(true).ok());
}

TEST(emulator_shared_memory, bytes_of_a_word_are_told_apart) {
  emulation_report const report = emulate({.shared_bytes = 64}, [](emulated_lane& lane) {
    lane.shared_store(2 * lane.thread(), static_cast<std::uint16_t>(lane.thread()));
    lane.sync_warp();
    auto const pair = lane.shared_load<std::uint32_t>(4 * (lane.thread() / 2));
    auto const even = static_cast<std::uint32_t>(lane.thread() / 2 * 2);
    if (pair != (even | (even + 1) << 16)) throw std::runtime_error("wrong value");
  });
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST(emulator_shared_memory, bytes_never_written_are_not_read) {
  auto const load_after = [](int stored_bytes) {
    return emulate({.shared_bytes = 64}, [&](emulated_lane& lane) {
      if (lane.thread() != 6) return;
      for (int i = 0; i < stored_bytes; ++i) lane.shared_store<std::uint8_t>(16 + i, 1);
      (void)lane.shared_load<four_words>(16);
    });
  };
  EXPECT_TRUE(load_after(16).ok());
  expect_error(load_after(15),
               "block 0, thread 6 reads byte 31 of shared memory, which was never written");
}

TEST(emulator_shared_memory, accesses_stay_inside_and_aligned) {
  auto const store_at = [](int offset) {
    return emulate({.shared_bytes = 64}, [&](emulated_lane& lane) {
      if (lane.thread() == 1) lane.shared_store(offset, four_words{});
    });
  };
  EXPECT_TRUE(store_at(0).ok());
  EXPECT_TRUE(store_at(48).ok());
  expect_error(store_at(64),
               "block 0, thread 1: store of 16 bytes at byte 64 of shared memory is out of bounds, "
               "it has 64 bytes");
  expect_error(store_at(-16),
               "block 0, thread 1: store of 16 bytes at byte -16 of shared memory is out of "
               "bounds, it has 64 bytes");
  expect_error(store_at(8),
               "block 0, thread 1: store of 16 bytes at byte 8 of shared memory is misaligned");
  EXPECT_GT(store_at(56).error_count, 0);

  emulation_report const load = emulate({}, [](emulated_lane& lane) {
    if (lane.thread() == 1 && lane.shared_load<int>(0) != 0) throw std::runtime_error("no zero");
  });
  expect_error(load,
               "block 0, thread 1: load of 4 bytes at byte 0 of shared memory is out of bounds, it "
               "has 0 bytes");
}

TEST(emulator_shared_memory, a_block_does_not_see_what_the_last_one_left) {
  emulation_report const report =
      emulate({.blocks = 2, .shared_bytes = 64}, [](emulated_lane& lane) {
        if (lane.thread() != 0) return;
        if (lane.block() == 0) lane.shared_store(0, 1);
        if (lane.block() == 1) (void)lane.shared_load<int>(0);
      });
  expect_error(report, "block 1, thread 0 reads byte 0 of shared memory, which was never written");
}

// Global memory.

class emulator_global_memory : public testing::Test {
 protected:
  static constexpr std::size_t words = 64;

  /// A region of 64 words, all 0, with as many words of nobody's before and behind it.
  std::uint32_t* add(char const* name, region_use use) {
    std::vector<std::uint32_t>& room = rooms_.emplace_back(3 * words, 0u);
    memory.add_region(name, room.data() + words, words * 4, use);
    return room.data() + words;
  }

  /// Thread 5 of block 1 does something.
  template <class Act>
  emulation_report by_one_thread(Act act) {
    return emulate({.blocks = 2, .memory = &memory}, [&](emulated_lane& lane) {
      if (lane.block() == 1 && lane.thread() == 5) act(lane);
    });
  }

  emulator_memory memory;

 private:
  std::vector<std::vector<std::uint32_t>> rooms_ = [] {
    std::vector<std::vector<std::uint32_t>> rooms;
    rooms.reserve(8);
    return rooms;
  }();
};

TEST_F(emulator_global_memory, only_regions_may_be_touched) {
  std::uint32_t* const data = add("inputs", region_use::data);
  std::uint32_t* const out = add("result", region_use::output);
  data[63] = 17;
  EXPECT_TRUE(
      by_one_thread([&](emulated_lane& lane) { lane.store(out, lane.load(data + 63)); }).ok());
  EXPECT_EQ(out[0], 17u);
  expect_error(by_one_thread([&](emulated_lane& lane) { (void)lane.load(data + 64); }),
               "block 1, thread 5: load of 4 bytes at byte 256 of region 'inputs' is out of "
               "bounds, the region has 256 bytes");
  expect_error(by_one_thread([&](emulated_lane& lane) { (void)lane.load_stream(data - 2); }),
               "block 1, thread 5: load of 4 bytes at byte -8 of region 'inputs' is out of bounds, "
               "the region has 256 bytes");
  expect_error(by_one_thread([&](emulated_lane& lane) { lane.store(out + 70, 1u); }),
               "block 1, thread 5: store of 4 bytes at byte 280 of region 'result' is out of "
               "bounds, the region has 256 bytes");
  EXPECT_EQ(out[70], 0u);
}

TEST_F(emulator_global_memory, an_access_must_not_leave_its_region_half_way) {
  alignas(16) std::array<std::uint32_t, 8> room{};
  memory.add_region("six words", room.data(), 24, region_use::data);
  auto const* const vectors = reinterpret_cast<four_words const*>(room.data());
  EXPECT_TRUE(by_one_thread([&](emulated_lane& lane) { (void)lane.load(vectors); }).ok());
  expect_error(by_one_thread([&](emulated_lane& lane) { (void)lane.load(vectors + 1); }),
               "block 1, thread 5: load of 16 bytes at byte 16 of region 'six words' is out of "
               "bounds, the region has 24 bytes");
}

TEST_F(emulator_global_memory, without_regions_nothing_may_be_touched) {
  std::uint32_t word = 0;
  emulation_report const report = emulate({}, [&](emulated_lane& lane) {
    if (lane.thread() == 0) lane.store(&word, 1u);
  });
  expect_error(report, "block 0, thread 0: store of 4 bytes outside all regions: there are none");
  EXPECT_EQ(word, 0u);
}

TEST_F(emulator_global_memory, accesses_are_aligned_to_their_size) {
  std::uint32_t* const data = add("inputs", region_use::data);
  auto const at = [&](std::size_t offset) {
    return reinterpret_cast<std::uint64_t const*>(reinterpret_cast<std::uintptr_t>(data) + offset);
  };
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % 8, 0u);
  EXPECT_TRUE(by_one_thread([&](emulated_lane& lane) { (void)lane.load(at(8)); }).ok());
  expect_error(by_one_thread([&](emulated_lane& lane) { (void)lane.load(at(4)); }),
               "block 1, thread 5: load of 8 bytes at byte 4 of region 'inputs' is misaligned");
}

TEST_F(emulator_global_memory, uses_are_kept) {
  std::uint32_t* const weights = add("weights", region_use::weights);
  std::uint32_t* const data = add("inputs", region_use::data);
  std::uint32_t* const out = add("result", region_use::output);
  std::uint64_t* const wide = reinterpret_cast<std::uint64_t*>(data);
  expect_error(by_one_thread([&](emulated_lane& lane) { lane.store(weights + 1, 1u); }),
               "block 1, thread 5: store of 4 bytes at byte 4 of region 'weights', which is read "
               "only");
  expect_error(by_one_thread([&](emulated_lane& lane) { lane.store(data, 1u); }),
               "block 1, thread 5: store of 4 bytes at byte 0 of region 'inputs', which is read "
               "only");
  expect_error(by_one_thread([&](emulated_lane& lane) { (void)lane.load(out + 2); }),
               "block 1, thread 5: load of 4 bytes at byte 8 of region 'result', which is write "
               "only");
  expect_error(by_one_thread([&](emulated_lane& lane) { lane.atomic_add(out, 1); }),
               "block 1, thread 5: atomic_add of 4 bytes at byte 0 of region 'result', which takes "
               "no atomics, it is no workspace");
  expect_error(by_one_thread([&](emulated_lane& lane) { lane.atomic_max(wide, 1); }),
               "block 1, thread 5: atomic_max of 8 bytes at byte 0 of region 'inputs', which takes "
               "no atomics, it is no workspace");
  EXPECT_EQ(weights[1], 0u);
  EXPECT_EQ(data[0], 0u);
}

TEST_F(emulator_global_memory, an_output_in_place_is_read_before_it_is_written) {
  std::uint32_t* const sums = add("sums", region_use::data | region_use::output);
  EXPECT_TRUE(
      by_one_thread([&](emulated_lane& lane) { lane.store(sums, lane.load(sums) + 3u); }).ok());
  EXPECT_EQ(sums[0], 3u);
  expect_error(by_one_thread([&](emulated_lane& lane) {
                 lane.store(sums, 1u);
                 (void)lane.load(sums);
               }),
               "block 1, thread 5: load of 4 bytes at byte 0 of region 'sums', which was written "
               "in this launch");
}

TEST_F(emulator_global_memory, loads_of_weights_are_counted_byte_by_byte) {
  std::uint32_t* const weights = add("weights", region_use::weights);
  add("inputs", region_use::data);
  emulation_report const once = emulate({.blocks = 2, .memory = &memory}, [&](emulated_lane& lane) {
    (void)lane.load_stream(weights + 32 * lane.block() + lane.thread());
  });
  EXPECT_TRUE(once.ok()) << once.text();
  EXPECT_TRUE(all_equal(once.load_counts("weights"), 1));

  emulation_report const twice = by_one_thread([&](emulated_lane& lane) {
    (void)lane.load_stream(weights + 2);
    (void)lane.load(reinterpret_cast<std::uint16_t const*>(weights) + 5);
  });
  byte_counts expected(256);
  for (std::size_t i = 8; i < 12; ++i) expected[i] = i < 10 ? 1 : 2;
  EXPECT_EQ(twice.load_counts("weights"), expected);
  EXPECT_FALSE(all_equal(twice.load_counts("weights"), 1));
  EXPECT_THROW((void)twice.load_counts("inputs"), std::out_of_range);

  emulation_report const many = by_one_thread([&](emulated_lane& lane) {
    for (int i = 0; i < 300; ++i) (void)lane.load(weights);
  });
  EXPECT_EQ(many.load_counts("weights")[0], 255);
}

TEST_F(emulator_global_memory, stores_to_outputs_are_counted_byte_by_byte) {
  std::uint32_t* const out = add("result", region_use::output);
  emulation_report const report = by_one_thread([&](emulated_lane& lane) {
    lane.store(out + 1, 1u);
    lane.store(reinterpret_cast<std::uint8_t*>(out) + 7, std::uint8_t{1});
  });
  EXPECT_TRUE(report.ok()) << report.text();
  byte_counts expected(256);
  for (std::size_t i = 4; i < 8; ++i) expected[i] = i < 7 ? 1 : 2;
  EXPECT_EQ(report.write_counts("result"), expected);
}

TEST_F(emulator_global_memory, regions_that_make_no_sense_are_refused) {
  std::array<std::uint32_t, 8> room{};
  memory.add_region("a", room.data(), 16, region_use::data);
  memory.add_region("b", room.data() + 4, 8, region_use::workspace | region_use::initialised);
  auto const adding = [&](char const* name, void const* pointer, std::size_t bytes,
                          region_use use) {
    EXPECT_THROW(memory.add_region(name, pointer, bytes, use), std::invalid_argument);
  };
  adding("a", room.data() + 6, 4, region_use::data);
  adding("c", room.data() + 3, 4, region_use::data);
  adding("c", room.data() + 5, 16, region_use::data);
  adding("c", room.data() + 6, 0, region_use::data);
  adding("c", nullptr, 4, region_use::data);
  adding("c", room.data() + 6, 4, region_use::weights | region_use::output);
  adding("c", room.data() + 6, 4, region_use::data | region_use::initialised);
  adding("c", room.data() + 6, 4, region_use::initialised);
  EXPECT_EQ(memory.regions().size(), 2u);
}

// Workspace.

/// Thread 0 of block 0 does one thing, then thread 0 of block 1 another.
template <class First, class Second>
emulation_report block_after_block(emulator_memory& memory, First first, Second second) {
  return emulate({.blocks = 2, .memory = &memory}, [&](emulated_lane& lane) {
    if (lane.thread() != 0) return;
    if (lane.block() == 0) first(lane);
    if (lane.block() == 1) second(lane);
  });
}

std::string const unordered =
    "was written by another block in no certain order: between the store and here a barrier or an "
    "atomic is missing, or the fence comes after them";
std::string const unfenced =
    "is unfenced: the thread of another block that stored it called no fence_device since";

TEST_F(emulator_global_memory, a_store_reaches_other_blocks_by_a_fence_and_an_atomic) {
  std::uint32_t* const partials = add("partials", region_use::workspace);
  std::uint32_t* const tickets = add("tickets", region_use::workspace | region_use::initialised);
  // A letter for each operation of a block: s stores, r reads, f is a fence, t and u
  // take tickets.
  auto const run = [&](std::string const& first, std::string const& second) {
    auto const act = [&](std::string const& letters) {
      return [&](emulated_lane& lane) {
        for (char letter : letters) {
          if (letter == 's') lane.store(partials, 9u);
          if (letter == 'r' && lane.load_volatile(partials) != 9u) {
            throw std::runtime_error("wrong value");
          }
          if (letter == 'f') lane.fence_device();
          if (letter == 't') lane.atomic_add(tickets, 1);
          if (letter == 'u') lane.atomic_add(tickets + 1, 1);
        }
      };
    };
    return block_after_block(memory, act(first), act(second));
  };
  auto const load = [](std::string const& fault) {
    return "block 1, thread 0: load of 4 bytes at byte 0 of region 'partials', which " + fault;
  };
  EXPECT_TRUE(run("sft", "tr").ok());
  EXPECT_TRUE(run("sffutt", "utr").ok());
  EXPECT_TRUE(run("st", "").ok());
  expect_error(run("st", "tr"), load(unfenced));
  expect_error(run("fst", "tr"), load(unfenced));
  expect_error(run("sftst", "tr"), load(unfenced));
  expect_error(run("stf", "tr"), load(unordered));
  expect_error(run("sf", "tr"), load(unordered));
  expect_error(run("sft", "r"), load(unordered));
  expect_error(run("sft", "rt"), load(unordered));
  expect_error(run("sfu", "tr"), load(unordered));
  expect_error(run("sftsf", "tr"), load(unordered));
  // A store over a store is no better than a load.
  EXPECT_TRUE(run("sft", "ts").ok());
  expect_found(run("sft", "s"), unordered);
  expect_found(run("s", "ts"), unfenced);
}

TEST_F(emulator_global_memory, every_byte_of_a_load_must_have_come) {
  std::uint32_t* const partials = add("partials", region_use::workspace);
  std::uint32_t* const tickets = add("tickets", region_use::workspace | region_use::initialised);
  auto const* const pair = reinterpret_cast<std::uint64_t const*>(partials);
  auto const read = [&](emulated_lane& lane) {
    lane.atomic_add(tickets, 1);
    (void)lane.load_volatile(pair);
  };
  auto const store_with_fence_after = [&](std::ptrdiff_t fenced_words) {
    return [&, fenced_words](emulated_lane& lane) {
      for (std::ptrdiff_t i = 0; i < 2; ++i) {
        lane.store(partials + i, 1u);
        if (i < fenced_words) lane.fence_device();
      }
      lane.atomic_add(tickets, 1);
    };
  };
  EXPECT_TRUE(block_after_block(memory, store_with_fence_after(2), read).ok());
  expect_found(block_after_block(memory, store_with_fence_after(1), read), unfenced);
}

TEST_F(emulator_global_memory, barriers_lead_from_a_thread_to_the_ticket_and_back) {
  std::uint32_t* const partials = add("partials", region_use::workspace);
  std::uint32_t* const tickets = add("tickets", region_use::workspace | region_use::initialised);
  using step = void (*)(emulated_lane&);
  step const nothing = [](emulated_lane&) {};
  step const fence = [](emulated_lane& lane) { lane.fence_device(); };
  step const warp = [](emulated_lane& lane) { lane.sync_warp(); };
  step const block = [](emulated_lane& lane) { lane.sync_block(); };
  auto const run = [&](std::vector<step> const& before, step after, int distance) {
    return emulate({.blocks = 2, .threads = 64, .memory = &memory}, [&](emulated_lane& lane) {
      if (lane.block() == 0) lane.store(partials + lane.thread(), 1u);
      for (step const& act : before) act(lane);
      if (lane.thread() == 0) lane.atomic_add(tickets, 1);
      after(lane);
      if (lane.block() == 1 && lane.thread() < 32) {
        (void)lane.load_volatile(partials + lane.thread() + distance);
      }
    });
  };
  EXPECT_TRUE(run({fence, block}, block, 32).ok());
  EXPECT_TRUE(run({fence, warp}, warp, 0).ok());
  EXPECT_EQ(run({fence, warp}, warp, 32).error_count, 32);
  EXPECT_EQ(run({fence}, block, 32).error_count, 32);
  EXPECT_EQ(run({fence}, block, 0).error_count, 31);
  EXPECT_EQ(run({block, fence}, block, 32).error_count, 32);
  EXPECT_EQ(run({block}, block, 32).error_count, 32);
  EXPECT_EQ(run({fence, block}, nothing, 32).error_count, 31);
  // The fence of the thread that takes the ticket does not do for the others.
  step const one_fence = [](emulated_lane& lane) {
    if (lane.thread() == 0) lane.fence_device();
  };
  EXPECT_EQ(run({block, one_fence}, block, 0).error_count, 31);
}

TEST_F(emulator_global_memory, knowledge_is_handed_on_from_word_to_word) {
  std::uint32_t* const partials = add("partials", region_use::workspace);
  std::uint32_t* const tickets = add("tickets", region_use::workspace | region_use::initialised);
  auto const run = [&](std::uint32_t* read_by_second) {
    return emulate({.blocks = 3, .memory = &memory}, [&](emulated_lane& lane) {
      if (lane.thread() != 0) return;
      if (lane.block() == 0) {
        lane.store(partials, 1u);
        lane.fence_device();
        lane.atomic_add(tickets, 1);
      } else if (lane.block() == 1) {
        lane.atomic_add(read_by_second, 1);
        lane.atomic_add(tickets + 1, 1);
      } else {
        lane.atomic_add(tickets + 1, 1);
        (void)lane.load_volatile(partials);
      }
    });
  };
  EXPECT_TRUE(run(tickets).ok());
  expect_found(run(tickets + 2), unordered);
}

TEST_F(emulator_global_memory, a_plain_load_may_find_an_old_line) {
  std::uint32_t* const partials = add("partials", region_use::workspace);
  std::uint32_t* const tickets = add("tickets", region_use::workspace | region_use::initialised);
  auto const fenced = [&](emulated_lane& lane) {
    lane.store(partials, 9u);
    lane.fence_device();
    lane.atomic_add(tickets, 1);
  };
  std::string const stale =
      "block 1, thread 0: load of 4 bytes at byte 0 of region 'partials', which was written by "
      "another block, so that L1 may be stale: load_volatile is wanted";
  auto const plain = [&](emulated_lane& lane) {
    lane.atomic_add(tickets, 1);
    (void)lane.load(partials);
  };
  auto const stream = [&](emulated_lane& lane) {
    lane.atomic_add(tickets, 1);
    (void)lane.load_stream(partials);
  };
  expect_error(block_after_block(memory, fenced, plain), stale);
  expect_error(block_after_block(memory, fenced, stream), stale);
  expect_found(
      block_after_block(memory, fenced, [&](emulated_lane& lane) { (void)lane.load(tickets); }),
      "L1 may be stale");
  // What a launch before left is in no L1.
  EXPECT_TRUE(by_one_thread([&](emulated_lane& lane) { (void)lane.load(partials); }).ok());
}

TEST_F(emulator_global_memory, atomics_are_seen_by_all) {
  std::uint32_t* const tickets = add("tickets", region_use::workspace | region_use::initialised);
  auto* const best = reinterpret_cast<std::uint64_t*>(tickets + 2);
  std::set<std::uint32_t> taken;
  emulation_report const report = emulate(
      {.blocks = 4, .threads = 64, .memory = &memory, .resident = 4}, [&](emulated_lane& lane) {
        taken.insert(lane.atomic_add(tickets, 1));
        (void)lane.atomic_max(best, static_cast<std::uint64_t>(lane.block() * 64 + lane.thread())
                                        << 33);
        (void)lane.load_volatile(tickets);
      });
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(taken.size(), 256u);
  EXPECT_EQ(*taken.rbegin(), 255u);
  EXPECT_EQ(tickets[0], 256u);
  EXPECT_EQ(*best, std::uint64_t{255} << 33);
}

TEST_F(emulator_global_memory, a_plain_load_beside_an_atomic_wants_a_barrier) {
  std::uint32_t* const tickets = add("tickets", region_use::workspace | region_use::initialised);
  auto const run = [&](auto between, auto load) {
    return emulate({.threads = 64, .memory = &memory}, [&](emulated_lane& lane) {
      if (lane.thread() == 0) lane.atomic_add(tickets, 1);
      between(lane);
      if (lane.thread() == 1) load(lane);
    });
  };
  auto const plain = [&](emulated_lane& lane) { (void)lane.load(tickets); };
  auto const fresh = [&](emulated_lane& lane) { (void)lane.load_volatile(tickets); };
  auto const shuffle = [](emulated_lane& lane) { (void)lane.shuffle_xor(0, 1); };
  EXPECT_TRUE(run([](emulated_lane& lane) { lane.sync_warp(); }, plain).ok());
  EXPECT_TRUE(run(shuffle, fresh).ok());
  EXPECT_EQ(run(shuffle, plain).error_count, 1);
}

TEST_F(emulator_global_memory, an_atomic_on_an_unfenced_store_is_an_error) {
  std::uint32_t* const words_of = add("tickets", region_use::workspace);
  auto const add_one = [&](emulated_lane& lane) { lane.atomic_add(words_of, 1); };
  expect_found(block_after_block(
                   memory, [&](emulated_lane& lane) { lane.store(words_of, 0u); }, add_one),
               "is unfenced");
  EXPECT_EQ(words_of[0], 1u);
}

TEST_F(emulator_global_memory, a_workspace_is_initialised_before_it_is_read) {
  std::uint32_t* const fresh = add("fresh", region_use::workspace);
  std::uint32_t* const ready = add("ready", region_use::workspace | region_use::initialised);
  expect_error(by_one_thread([&](emulated_lane& lane) { (void)lane.load(fresh + 3); }),
               "block 1, thread 5: load of 4 bytes at byte 12 of region 'fresh', which was never "
               "initialised");
  expect_error(by_one_thread([&](emulated_lane& lane) { lane.atomic_add(fresh, 1); }),
               "block 1, thread 5: atomic_add of 4 bytes at byte 0 of region 'fresh', which was "
               "never initialised");
  EXPECT_TRUE(by_one_thread([&](emulated_lane& lane) { (void)lane.load(ready + 3); }).ok());
  // The next launch finds what this one stored, without a fence.
  EXPECT_TRUE(by_one_thread([&](emulated_lane& lane) { lane.store(fresh + 3, 7u); }).ok());
  emulation_report const later = emulate({.memory = &memory}, [&](emulated_lane& lane) {
    if (lane.load(fresh + 3) != 7u) throw std::runtime_error("wrong value");
  });
  EXPECT_TRUE(later.ok()) << later.text();
}

TEST_F(emulator_global_memory, threads_of_a_block_need_a_barrier_in_a_workspace) {
  std::uint32_t* const words_of = add("partials", region_use::workspace);
  auto const exchange = [&](bool barrier) {
    return emulate({.threads = 64, .memory = &memory}, [&](emulated_lane& lane) {
      lane.store(words_of + lane.thread(), 1u);
      if (barrier) lane.sync_block();
      (void)lane.load(words_of + (lane.thread() ^ 33));
    });
  };
  EXPECT_TRUE(exchange(true).ok());
  expect_found(exchange(false),
               "which was written by another thread of the block with no barrier in between");
  emulation_report const twice = emulate({.memory = &memory}, [&](emulated_lane& lane) {
    if (lane.thread() < 2) lane.store(words_of, 1u);
  });
  EXPECT_EQ(twice.error_count, 1) << twice.text();
}

}  // namespace
}  // namespace qpn::test
