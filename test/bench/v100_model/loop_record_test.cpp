// SPDX-License-Identifier: Apache-2.0
#include "loop_record.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <qpn/detail/quadpair_map.hpp>
#include <stdexcept>

namespace qpn::bench::v100 {
namespace {

struct kernel_case {
  format_id format;
  dtype code_type;
  int record_bytes;
  int record_k;
};

constexpr kernel_case cases[] = {
    {format_id::nvfp4, dtype::e2m1, detail::quadpair_record<nvfp4>::bytes, 64},
    {format_id::fp8, dtype::e4m3, detail::quadpair_record<fp8>::bytes, 32},
    {format_id::dense16, dtype::f16, detail::quadpair_record<dense16>::bytes, 16},
    {format_id::dense16, dtype::bf16, detail::quadpair_record<dense16>::bytes, 16},
};

TEST(loop_record, a_turn_is_two_records_and_their_rows_of_x) {
  for (kernel_case const& one : cases) {
    for (int tiles : {1, 2, 4}) {
      for (int m = 1; m <= 8 * tiles; ++m) {
        loop_record const turn = record_loop(one.format, one.code_type, tiles, 5120, m);
        auto const where = [&] {
          return std::string(to_string(one.format)) + " tiles " + std::to_string(tiles) + " m " +
                 std::to_string(m);
        };
        EXPECT_EQ(turn.weight_bytes, 2 * one.record_bytes) << where();
        // A row beyond m loads the last one again: up to a load of it for each that there is.
        double const sharers = tiles > 2 ? 2 : 1;
        EXPECT_GE(turn.activation_bytes, 2 * m * one.record_k / sharers) << where();
        EXPECT_LE(turn.activation_bytes, 2 * 8 * tiles * one.record_k / sharers) << where();
        if (m == 8 * tiles) {
          EXPECT_EQ(turn.activation_bytes, 2 * m * one.record_k / sharers) << where();
        }
        EXPECT_EQ(turn.products, 2 * tiles * one.record_k / 4) << where();
        EXPECT_EQ(turn.conflicts, 0) << where();
        EXPECT_GE(turn.wavefronts, turn.weight_wavefronts) << where();
      }
    }
  }
}

TEST(loop_record, weights_come_in_whole_lines) {
  loop_record const turn = record_loop(format_id::nvfp4, dtype::e2m1, 1, 5120, 8);
  EXPECT_EQ(turn.weight_wavefronts, 4 * 4 + 2);  // 4 loads of 512 bytes, 2 of 128
  // x: 2 loads and 2 stores of 512 bytes, 8 fragments of 8 rows that four quad-pairs share.
  EXPECT_EQ(turn.wavefronts, 18 + 2 * 4 + 2 * 4 + 8 * 4);
}

TEST(loop_record, k_that_breaks_the_lines_of_x_costs_sectors_only_where_it_must) {
  loop_record const aligned = record_loop(format_id::fp8, dtype::e4m3, 1, 4096, 8);
  loop_record const shifted = record_loop(format_id::fp8, dtype::e4m3, 1, 4096 + 8, 8);
  EXPECT_GT(shifted.activation_bytes, aligned.activation_bytes);
  EXPECT_EQ(record_loop(format_id::fp8, dtype::e4m3, 1, 64, 8).activation_bytes,
            aligned.activation_bytes);
}

TEST(loop_record, the_reduction_stores_and_loads_without_conflicts) {
  for (kernel_case const& one : cases) {
    reduction_record const record = record_reduction(one.format, one.code_type, 1);
    EXPECT_EQ(record.loads, 16);  // 8 warps, 2 tiles
    EXPECT_EQ(record.load_wavefronts, 16);
    EXPECT_EQ(record.store_wavefronts, 16);  // 8 of 256 bytes
    EXPECT_EQ(record.conflicts, 0);
  }
}

TEST(loop_record, the_reduction_of_more_row_tiles_is_free_of_conflicts) {
  for (kernel_case const& one : cases) {
    for (int const tiles : {2, 4}) {
      reduction_record const record = record_reduction(one.format, one.code_type, tiles);
      // What a warp stores of each row tile, and what it adds: as many for each of its rows.
      EXPECT_EQ(record.store_wavefronts, 16 * tiles);
      EXPECT_EQ(record.loads, 16 * tiles);
      EXPECT_EQ(record.load_wavefronts, 16 * tiles);
      EXPECT_EQ(record.conflicts, 0);
    }
  }
}

TEST(loop_record, row_tiles_without_a_kernel_are_refused) {
  EXPECT_THROW(static_cast<void>(record_loop(format_id::fp8, dtype::e4m3, 3, 5120, 8)),
               std::invalid_argument);
}

}  // namespace
}  // namespace qpn::bench::v100
