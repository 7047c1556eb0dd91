// SPDX-License-Identifier: Apache-2.0
#include "own_kernels.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include "fit.hpp"
#include "simulation.hpp"

namespace qpn::bench::v100 {
namespace {

own_launch launch_of(format_id format, dtype type, std::int64_t n, std::int64_t k, int m) {
  return make_own_launch(built_in_sass_table(), kernel_for(v100_layout(format, type, n, k), m), n,
                         k, m);
}

std::string name_for(format_id format, dtype type, std::int64_t m, std::int64_t n = 4096) {
  return kernel_for(v100_layout(format, type, n, 5120), m).name;
}

TEST(own_kernels, m_decides_the_kernel) {
  EXPECT_EQ(name_for(format_id::nvfp4, dtype::e2m1, 1), "nvfp4 mt1");
  EXPECT_EQ(name_for(format_id::nvfp4, dtype::e2m1, 8), "nvfp4 mt1");
  EXPECT_EQ(name_for(format_id::nvfp4, dtype::e2m1, 9), "nvfp4 mt2");
  EXPECT_EQ(name_for(format_id::dense16, dtype::bf16, 16), "bf16 mt2");
  EXPECT_EQ(name_for(format_id::dense16, dtype::f16, 17), "f16 mt4");
  EXPECT_EQ(name_for(format_id::dense16, dtype::f16, 17, 24), "f16 mt2");
  EXPECT_EQ(name_for(format_id::fp8, dtype::e4m3, 64), "fp8 mt8");
  EXPECT_EQ(name_for(format_id::fp8, dtype::e4m3, 96), "fp8 mt12");
  EXPECT_EQ(name_for(format_id::nvfp4, dtype::e2m1, 33), "nvfp4 mt8");
  for (int const m : {0, 97}) {
    EXPECT_THROW(static_cast<void>(name_for(format_id::fp8, dtype::e4m3, m)),
                 std::invalid_argument);
  }
}

TEST(own_kernels, the_ctas_read_every_record_once) {
  std::mt19937 random(23);
  for (int round = 0; round < 40; ++round) {
    std::int64_t const n = std::uniform_int_distribution<std::int64_t>(1, 9000)(random);
    std::int64_t const k = 16 * std::uniform_int_distribution<std::int64_t>(1, 400)(random);
    int const m = std::uniform_int_distribution<int>(1, 96)(random);
    auto const format = round % 2 == 0 ? format_id::nvfp4 : format_id::fp8;
    own_launch const made = launch_of(format, round % 2 == 0 ? dtype::e2m1 : dtype::e4m3, n, k, m);
    auto const where = "seed 23, round " + std::to_string(round);
    auto const records = static_cast<double>(made.layout.scales_offset);
    EXPECT_NEAR(made.work.dram_bytes(), records, 1e-9 * records) << where;
    int const row_blocks = (m - 1) / (8 * made.kernel->row_tiles) + 1;
    EXPECT_EQ(made.work.ctas.size(), static_cast<std::size_t>(made.layout.ctas) *
                                         static_cast<std::size_t>(row_blocks) /
                                         (made.kernel->row_tiles > 2 ? 2 : 1))
        << where;
    EXPECT_NEAR(made.read.dram_bytes(), made.work.dram_bytes(), 1e-6 * made.read.dram_bytes())
        << where;
    EXPECT_LE(made.work.balance(), 1 + 1e-9) << where;
    EXPECT_GT(simulate(made.work, fitted), simulate(made.read, fitted)) << where;
  }
}

TEST(own_kernels, a_group_of_one_cta_has_no_plane) {
  own_launch const made = launch_of(format_id::fp8, dtype::e4m3, 64, 32, 1);
  ASSERT_EQ(made.work.ctas.size(), 1u);
  EXPECT_EQ(made.work.ctas[0][0].group, -1);
  own_launch const shared = launch_of(format_id::fp8, dtype::e4m3, 5120, 1536, 1);
  for (auto const& cta : shared.work.ctas) EXPECT_GE(cta.front().group, 0);
}

TEST(own_kernels, row_blocks_read_the_weight_once_from_memory_and_each_from_l2) {
  own_launch const one = launch_of(format_id::dense16, dtype::f16, 8704, 5120, 32);
  own_launch const three = launch_of(format_id::dense16, dtype::f16, 8704, 5120, 96);
  EXPECT_NEAR(three.work.dram_bytes(), one.work.dram_bytes(), 1);
  EXPECT_EQ(three.work.ctas.size(), 3 * one.work.ctas.size());
  EXPECT_EQ(three.work.turn.l2_bytes, one.work.turn.l2_bytes);
  EXPECT_GT(simulate(three.work, fitted), simulate(one.work, fitted));
  EXPECT_EQ(simulate(three.read, fitted), simulate(one.read, fitted));
}

// Four warps of a team have a quarter of the rows each and all of k: one turn of all is one step.
TEST(own_kernels, warps_with_rows_of_their_own_read_a_weight_and_x_once) {
  for (int const m : {64, 96}) {
    own_launch const made = launch_of(format_id::fp8, dtype::e4m3, 4096, 5120, m);
    constexpr double unit_bytes = 2 * 1024;
    constexpr int warps = 8;
    loop_turn const& turn = made.work.turn;
    EXPECT_EQ(made.loop.weight_bytes, unit_bytes);
    EXPECT_EQ(warps * turn.weight_bytes, 2 * unit_bytes) << m;         // of two teams
    EXPECT_EQ(warps * made.loop.activation_bytes, m * 32.0 * 2) << m;  // of both together
    EXPECT_EQ(turn.l2_bytes, turn.weight_bytes + made.loop.activation_bytes) << m;
    EXPECT_EQ(made.work.ctas.size(), static_cast<std::size_t>(made.layout.ctas / 2)) << m;
    EXPECT_EQ(made.work.bytes_in_flight(), 3.5 * 2 * unit_bytes) << m;
    double steps = 0;
    for (auto const& cta : made.work.ctas) {
      for (launch_part const& part : cta) {
        EXPECT_EQ(part.turns, std::vector<double>(warps, part.turns.front()));
        steps += 2 * part.turns.front();
      }
    }
    EXPECT_EQ(steps, 4096.0 / 64 * 5120 / 32) << m;
    own_launch const without = make_own_launch(built_in_sass_table(), *made.kernel, 4096, 5120, m,
                                               /*l1_serves=*/false);
    EXPECT_EQ(without.work.turn.l2_bytes, unit_bytes + made.loop.activation_bytes) << m;
    EXPECT_EQ(without.work.dram_bytes(), made.work.dram_bytes()) << m;
    EXPECT_GT(simulate(without.work, fitted), simulate(made.work, fitted)) << m;
  }
}

// Shares are added in registers while nothing else runs.
TEST(own_kernels, sums_of_shares_take_the_time_of_their_instructions) {
  sass_table longer = built_in_sass_table();
  for (sass_kernel& one : longer.kernels) one.values["sums"] += 100;
  own_kernel const& kernel = kernel_for(v100_layout(format_id::fp8, dtype::e4m3, 4096, 5120), 64);
  own_launch const made = make_own_launch(built_in_sass_table(), kernel, 4096, 5120, 64);
  own_launch const more = make_own_launch(longer, kernel, 4096, 5120, 64);
  EXPECT_NEAR(more.work.ctas[0][0].reduce_cycles - made.work.ctas[0][0].reduce_cycles,
              8.0 * 100 * 8 / 4, 1e-6);  // shares, instructions, warps, schedulers
}

TEST(own_kernels, two_teams_have_the_warps_of_two_ctas_and_half_the_activations_each) {
  own_launch const two_tiles = launch_of(format_id::fp8, dtype::e4m3, 4096, 5120, 16);
  own_launch const teams = launch_of(format_id::fp8, dtype::e4m3, 4096, 5120, 32);
  EXPECT_EQ(2 * teams.work.ctas.size(), two_tiles.work.ctas.size());
  EXPECT_EQ(teams.work.ctas[0][0].turns.size(), 2 * two_tiles.work.ctas[0][0].turns.size());
  EXPECT_EQ(teams.work.bytes_in_flight(), two_tiles.work.bytes_in_flight());
  EXPECT_EQ(teams.loop.activation_bytes, two_tiles.loop.activation_bytes);
  // Half as many warps with block scales, in two rounds and with two records ahead.
  own_launch const rounds = launch_of(format_id::nvfp4, dtype::e2m1, 8704, 5120, 32);
  EXPECT_EQ(rounds.work.ctas[0][0].turns.size(), 8u);
  EXPECT_EQ(rounds.work.ctas[0][0].group, -1);
  EXPECT_GE(rounds.work.ctas[0][1].group, 0);
  EXPECT_EQ(rounds.work.bytes_in_flight(), 8 * 1.5 * 2304);
}

TEST(own_kernels, a_table_of_other_kernels_is_refused) {
  sass_table table = built_in_sass_table();
  own_kernel const& kernel = kernel_for(v100_layout(format_id::nvfp4, dtype::e2m1, 64, 64), 8);
  for (char const* key : {"ldg", "lds", "sts", "tensor"}) {
    sass_table changed = table;
    for (sass_kernel& one : changed.kernels) one.values[key] += 1;
    EXPECT_THROW(static_cast<void>(make_own_launch(changed, kernel, 64, 64, 1)), std::runtime_error)
        << key;
  }
  table.kernels.clear();
  EXPECT_THROW(static_cast<void>(make_own_launch(table, kernel, 64, 64, 1)), std::runtime_error);
}

TEST(own_kernels, a_shape_that_the_library_refuses_is_refused_in_its_words) {
  try {
    static_cast<void>(launch_of(format_id::nvfp4, dtype::e2m1, 64, 24, 1));
    FAIL() << "expected std::invalid_argument";
  } catch (std::invalid_argument const& error) {
    EXPECT_NE(std::string(error.what()).find("multiple of 16"), std::string::npos);
  }
}

}  // namespace
}  // namespace qpn::bench::v100
