// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "access_pattern.hpp"
#include "qpn/arch/sm70/gemm_wide_program.hpp"
#include "recording_lane.hpp"

// What the loop and the end of the kernel for many rows cost in shared memory, by their addresses.

namespace qpn::bench::v100 {
namespace {

using namespace detail::sm70;

/// Also has what only an epilogue calls.
struct finishing_lane : recording_lane {
  using recording_lane::recording_lane;
  template <class T>
  void store(T*, T) {}
  [[nodiscard]] float exp(float) { return 0.0F; }
};

struct shared_counts {
  int loads = 0;
  int stores = 0;
  int conflicts = 0;
  int wavefronts = 0;
};

/// Of all warps of a CTA, whose lanes run `program` in step.
template <class Program>
shared_counts count_shared(Program program) {
  shared_counts counts;
  for (int warp = 0; warp < wide_warps; ++warp) {
    std::vector<finishing_lane> lanes;
    for (int id = 0; id < detail::warp_lanes; ++id) {
      lanes.emplace_back(warp * detail::warp_lanes + id);
      program(lanes.back());
    }
    for (std::size_t i = 0; i < lanes[0].accesses().size(); ++i) {
      recording_lane::access const& first = lanes[0].accesses()[i];
      using kind = warp_access::kind;
      if (first.what != kind::shared_load && first.what != kind::shared_store) continue;
      warp_access access;
      access.what = first.what;
      access.bytes = first.bytes;
      for (std::size_t id = 0; id < lanes.size(); ++id) {
        EXPECT_EQ(lanes[id].accesses()[i].what, first.what) << "lanes go in step";
        access.address[id] = lanes[id].accesses()[i].address;
      }
      access_cost const cost = shared_cost(access);
      (first.what == kind::shared_load ? counts.loads : counts.stores) += 1;
      counts.conflicts += cost.conflicts;
      counts.wavefronts += cost.wavefronts;
    }
  }
  return counts;
}

template <class Operand, int RowTiles>
shared_counts count_steps(int steps) {
  std::vector<std::uint16_t> x(static_cast<std::size_t>(8 * RowTiles * steps * wide_step_k));
  std::vector<std::byte> records(
      static_cast<std::size_t>(wide_warps * steps * 2 * wide_weights<Operand>::stride));
  gemm_wide_params p;
  p.records = records.data();
  p.tile_groups = wide_warps;
  p.record_steps = steps * wide_step_k / Operand::record_k + 1;
  p.x = x.data();
  p.ldx = steps * wide_step_k;
  p.x_step = wide_rows_between * p.ldx;
  p.k = p.ldx;
  p.m = 8 * RowTiles;
  p.row_blocks = 1;
  p.x_by_words = true;
  return count_shared([&](finishing_lane& lane) {
    float acc[RowTiles][tiles_per_group][8] = {};
    wide_place const place{0, lane.thread() / detail::warp_lanes, true};
    multiply_wide_steps<true, Operand>(lane, p, place, 0, steps, acc);
  });
}

template <class Operand, int RowTiles>
void expect_no_conflicts() {
  shared_counts const counts = count_steps<Operand, RowTiles>(4);
  EXPECT_EQ(counts.conflicts, 0);
  EXPECT_EQ(counts.loads, wide_warps * 4 * wide_fragments * RowTiles);
  EXPECT_EQ(counts.stores, wide_warps * 4 * RowTiles / 4);
  // The tensor cores take 8 cycles for an m8n8k4, and each of the 4 warps has its own; shared
  // memory serves all of them, one wavefront a cycle. Loads of x leave it half free.
  int const tensor_cycles = 4 * wide_fragments * RowTiles * tiles_per_group * 2 * 8;
  EXPECT_LE(counts.wavefronts, tensor_cycles * 6 / 10);
}

TEST(wide_access, has_no_bank_conflicts_in_the_loop) {
  expect_no_conflicts<weight_operand<nvfp4, dtype::e2m1>, 4>();
  expect_no_conflicts<weight_operand<nvfp4, dtype::e2m1>, 8>();
  expect_no_conflicts<weight_operand<fp8, dtype::e4m3>, 4>();
  expect_no_conflicts<weight_operand<fp8, dtype::e4m3>, 8>();
  expect_no_conflicts<weight_operand<dense16, dtype::f16>, 4>();
  expect_no_conflicts<weight_operand<dense16, dtype::bf16>, 8>();
}

TEST(wide_access, has_no_bank_conflicts_at_the_end) {
  gemm_wide_params p;
  p.m = 64;
  p.epilogue.n = 0;  // only shared memory is looked at
  shared_counts const counts = count_shared([&](finishing_lane& lane) {
    float const acc[8][tiles_per_group][8] = {};
    finish_wide(lane, p, {0, 0, true}, acc);
  });
  EXPECT_EQ(counts.conflicts, 0);
  EXPECT_EQ(counts.stores, wide_warps * 8 * tiles_per_group * 4);
  EXPECT_EQ(counts.loads, wide_warps * 64 * 2);
}

}  // namespace
}  // namespace qpn::bench::v100
