// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace qpn::bench::v100 {
namespace {

constexpr fitted_constants plain{2.0, 8.0};

/// So many CTAs of 8 warps, all with the same turns of 2048 bytes, that only read.
launch read_of(std::size_t ctas, double turns) {
  launch work;
  work.turn.dram_bytes = 2048;
  work.turn.weight_bytes = 2048;
  work.turn.unhidden = 0.5;
  work.ctas_per_sm = 2;
  launch_part part;
  part.turns.assign(8, turns);
  work.ctas.assign(ctas, {part});
  return work;
}

double ceiling_us(launch const& work) {
  return work.dram_bytes() / read_gb_s.value * 1e-3;
}

TEST(simulation, is_the_read_ceiling_where_nothing_else_binds) {
  launch const work = read_of(160, 100);
  EXPECT_NEAR(simulate(work, plain), plain.launch_us + ceiling_us(work), 1e-3 * ceiling_us(work));
}

TEST(simulation, grows_with_bytes) {
  std::mt19937 random(17);
  for (int round = 0; round < 50; ++round) {
    auto const ctas = std::uniform_int_distribution<std::size_t>(1, 700)(random);
    double const turns = std::uniform_real_distribution<double>(0.5, 90)(random);
    launch const work = read_of(ctas, turns);
    launch more = work;
    more.turn.dram_bytes *= 1.5;
    double const us = simulate(work, plain);
    auto const where = "seed 17, round " + std::to_string(round);
    EXPECT_GE(us, plain.launch_us + ceiling_us(work)) << where;
    EXPECT_GE(simulate(more, plain), us) << where;
    EXPECT_GT(simulate(read_of(ctas, turns + 1), plain), us) << where;
    EXPECT_GE(simulate(read_of(ctas + 1, turns), plain), us * (1 - 1e-9)) << where;
  }
}

TEST(simulation, every_part_of_a_multiprocessor_can_bind) {
  launch const read = read_of(160, 100);
  double const us = simulate(read, plain);
  // 16 warps share what one turn costs them: far more than the 285 cycles of its bytes.
  double const cycles = 1000;
  double const expected = microseconds(cycles * 16 * 100);
  for (auto const& [field, per_turn] : {std::pair{&loop_turn::instructions, cycles * 4},
                                        {&loop_turn::alu, cycles * 2},
                                        {&loop_turn::fma, cycles * 2},
                                        {&loop_turn::fp16, cycles * 2},
                                        {&loop_turn::xu, cycles / 2},
                                        {&loop_turn::hmma, cycles * 4 / hmma_cycles.value},
                                        {&loop_turn::wavefronts, cycles}}) {
    launch bound = read;
    bound.turn.*field = per_turn;
    EXPECT_NEAR(simulate(bound, plain) / (plain.launch_us + expected), 1, 0.01);
    EXPECT_GT(simulate(bound, plain), us);
  }
  launch bound = read;
  bound.turn.l2_bytes = 10 * 2048;
  EXPECT_NEAR(simulate(bound, plain),
              plain.launch_us + 10 * ceiling_us(read) * read_gb_s.value / l2_gb_s.value, 0.5);
}

TEST(simulation, a_lone_warp_waits_for_its_loads) {
  launch work = read_of(1, 0);
  work.ctas.front().front().turns = {10};
  work.turn.stall_cycles = 200;
  EXPECT_NEAR(simulate(work, plain),
              plain.launch_us + microseconds(10 * (load_latency.value + 100)), 1e-3);
  work.turn.turns_ahead = 2;
  EXPECT_NEAR(simulate(work, plain),
              plain.launch_us + microseconds(10 * (load_latency.value + 100) / 2), 1e-3);
  work.turn.turns_ahead = 1;
  work.turn.stall_cycles = 4000;  // loads hide behind its own instructions
  EXPECT_NEAR(simulate(work, plain), plain.launch_us + microseconds(10 * 4000), 1e-2);
}

TEST(simulation, one_multiprocessor_too_many_costs_another_round) {
  // 161 CTAs do not fit 80 multiprocessors twice: the last one starts when another ends.
  launch few = read_of(160, 20);
  launch one_more = read_of(161, 20);
  few.turn.stall_cycles = one_more.turn.stall_cycles = 20000;
  EXPECT_NEAR(
      (simulate(one_more, plain) - plain.launch_us) / (simulate(few, plain) - plain.launch_us), 2,
      0.01);
}

TEST(simulation, the_last_cta_of_a_group_adds_the_planes) {
  launch work = read_of(2, 5);
  double const us = simulate(work, plain);
  for (auto& cta : work.ctas) {
    cta.front().group = 7;
    cta.front().reduce_cycles = 1530;
    cta.front().last_cycles = 3060;
  }
  work.ctas[1].front().turns.assign(8, 4);
  EXPECT_NEAR(simulate(work, plain), us + 1 + 2, 1e-6);
}

TEST(simulation, parts_follow_one_another) {
  launch one = read_of(80, 40);
  launch two = read_of(80, 20);
  for (auto& cta : two.ctas) {
    cta.front().reduce_cycles = 1530;
    cta.push_back(cta.front());
  }
  EXPECT_NEAR(simulate(two, plain), simulate(one, plain) + 2, 1e-6);
  two.start_cycles = 1530;
  EXPECT_NEAR(simulate(two, plain), simulate(one, plain) + 4, 1e-6);
}

TEST(simulation, a_part_without_turns_ends_at_once) {
  launch const work = read_of(160, 0);
  EXPECT_EQ(simulate(work, plain), plain.launch_us);
}

TEST(simulation, resources_interfere_less_the_larger_p) {
  launch work = read_of(160, 100);
  work.turn.wavefronts = 285;
  double before = 1e9;
  for (double const p : {1.0, 2.0, 4.0, 16.0}) {
    double const us = simulate(work, {2, p});
    EXPECT_LT(us, before) << "p = " << p;
    before = us;
  }
  EXPECT_GE(before, plain.launch_us + ceiling_us(work));
}

TEST(simulation, names_what_binds_beside_memory) {
  loop_turn turn;
  turn.dram_bytes = 2048;
  turn.wavefronts = 400;
  bottleneck const most = busiest_beside_dram(turn, 16);
  EXPECT_STREQ(most.name, "L1 wavefronts");
  EXPECT_NEAR(most.share_of_dram, 400 / (2048 / (879 / 1.53 / 80)), 1e-6);
  turn.wavefronts = 0;
  EXPECT_STREQ(busiest_beside_dram(turn, 1).name, "memory latency");
}

}  // namespace
}  // namespace qpn::bench::v100
