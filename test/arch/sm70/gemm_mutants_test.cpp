// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/emulated_case.hpp"

namespace qpn::test {
namespace {

// Mutants: each changes one thing that the program relies on; its tests must see it.

constexpr weight_kind nvfp4_kind{format_id::nvfp4, scale_mode::tensor, dtype::f16};
constexpr weight_kind fp8_kind{format_id::fp8, scale_mode::tensor, dtype::f16};
constexpr weight_kind block_kind{format_id::fp8, scale_mode::block, dtype::f16};

/// Shared: 4 x 24 steps for 6 runs in pairs, which share tile groups, and k ends inside a record.
/// Else 8 x 3 steps for 2 runs of 4 whole tile groups.
std::vector<std::string> problems_of(mutation const& how, bool shared = true, std::int64_t m = 12,
                                     weight_kind kind = nvfp4_kind) {
  gemm_case c;
  c.kind = kind;
  c.m = m;
  c.n = shared ? 256 : 512;
  c.k = (shared ? 1488 : 192) / (kind.format == format_id::nvfp4 ? 1 : 2);
  c.sm_count = shared ? 3 : 1;
  c.seed = 5;
  c.options.resident = 4;
  return problems_of_mutant(c, how);
}

TEST(gemm_program_mutants, the_program_itself_has_no_problem) {
  for (std::int64_t const m : {12, 40}) {
    for (weight_kind const kind : {nvfp4_kind, fp8_kind, block_kind}) {
      EXPECT_EQ(joined(problems_of({"none"}, true, m, kind)), "");
      EXPECT_EQ(joined(problems_of({"none"}, false, m, kind)), "");
    }
  }
}

void expect_every_barrier_is_missed(int in_shared_part, int in_whole_part, std::int64_t m,
                                    weight_kind kind) {
  for (int which = 0; which < in_shared_part; ++which) {
    mutation how{"barrier"};
    how.drop_sync_block = which;
    EXPECT_FALSE(problems_of(how, true, m, kind).empty())
        << to_string(kind) << " m " << m << ": barrier " << which << " can go unnoticed";
    if (which >= in_whole_part) continue;
    EXPECT_FALSE(problems_of(how, false, m, kind).empty())
        << to_string(kind) << " m " << m << ": barrier " << which << " can go unnoticed";
  }
}

TEST(gemm_program_mutants, a_dropped_barrier_is_found_wherever_it_is) {
  // A part passes add_warps (two barriers for two row tiles), then a ticket with two where CTAs
  // share the tile group, else one.
  expect_every_barrier_is_missed(2 + 2, 2 + 1, 12, nvfp4_kind);
  mutation warp{"warp barrier"};
  warp.drop_sync_warp = true;
  EXPECT_FALSE(problems_of(warp).empty());
}

TEST(gemm_program_mutants, a_dropped_barrier_of_two_teams_is_found_wherever_it_is) {
  // Few warps have two rounds, with a barrier between them, and row tiles two at a time.
  expect_every_barrier_is_missed(4 + 1 + 4 + 2, 4 + 1 + 4 + 1, 30, nvfp4_kind);
  expect_every_barrier_is_missed(8 + 2, 8 + 1, 30, fp8_kind);
  expect_every_barrier_is_missed(4 + 1 + 4 + 2, 4 + 1 + 4 + 1, 30, block_kind);
  // Warps with rows of their own have one for each step, 16 or 3, and hand over half of the rows
  // at a time.
  expect_every_barrier_is_missed(16 + 4 + 2, 3 + 4 + 1, 40, nvfp4_kind);
  expect_every_barrier_is_missed(16 + 4 + 2, 3 + 4 + 1, 90, fp8_kind);
  for (std::int64_t const m : {30, 60}) {
    for (weight_kind const kind : {nvfp4_kind, fp8_kind, block_kind}) {
      mutation warp{"warp barrier"};
      warp.drop_sync_warp = true;
      EXPECT_FALSE(problems_of(warp, true, m, kind).empty()) << to_string(kind) << " m " << m;
      if (m > 32 && kind.scale != scale_mode::block) continue;  // all of a CTA are mates
      mutation pair{"barrier of mates"};
      pair.drop_sync_pair = true;
      EXPECT_FALSE(problems_of(pair, true, m, kind).empty()) << to_string(kind) << " m " << m;
    }
  }
}

TEST(gemm_program_mutants, each_other_mutant_is_found) {
  mutation fence{"no fence"};
  fence.drop_fence = true;
  mutation ticket{"lost ticket"};
  ticket.lose_ticket = true;
  mutation lanes{"swapped lane map"};
  lanes.swap_lanes = true;
  mutation scales{"scale of another group"};
  scales.rotate_scales = true;
  mutation halves{"scale of the other half"};
  halves.swap_scale_halves = true;
  mutation longer{"k tail one too long"};
  longer.k_change = 1;
  mutation shorter{"k tail one too short"};
  shorter.k_change = -1;
  for (std::int64_t const m : {12, 40}) {
    for (mutation const& how : {fence, ticket, lanes, scales, halves, longer, shorter}) {
      EXPECT_FALSE(problems_of(how, true, m).empty()) << how.name << " goes unnoticed at m " << m;
    }
  }
  mutation column{"scale of another block of k"};
  for (int const change : {-1, 1}) {
    column.k_scale_change = change;
    for (std::int64_t const m : {3, 12, 40}) {
      EXPECT_FALSE(problems_of(column, true, m, block_kind).empty()) << change << " m " << m;
    }
  }
}

}  // namespace
}  // namespace qpn::test
