// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <qpn/detail/quadpair_map.hpp>
#include <qpn/format.hpp>
#include <vector>

namespace {

using namespace qpn::detail;

// From the tables of the PTX ISA: lanes 0..3 and 16..19 are quad-pair 0, lanes 4..7 and 20..23
// are 1.
static_assert(quadpair_of_lane(3) == 0 && quadpair_of_lane(16) == 0);
static_assert(quadpair_of_lane(4) == 1 && quadpair_of_lane(23) == 1);
static_assert(position_of_lane(3) == 3 && position_of_lane(16) == 4 && position_of_lane(31) == 7);
static_assert(weight_row_of_lane(0) == 0 && weight_row_of_lane(16) == 4);
static_assert(weight_row_of_lane(4) == 8 && weight_row_of_lane(31) == 31);
// D of lane 0: rows 0 and 2, columns 0, 1, 4 and 5; of lane 3: rows 1 and 3, columns 2, 3, 6, 7.
static_assert(accumulator_row(0, 0) == 0 && accumulator_column(0, 0) == 0);
static_assert(accumulator_row(0, 3) == 2 && accumulator_column(0, 3) == 1);
static_assert(accumulator_row(3, 6) == 3 && accumulator_column(3, 6) == 6);
static_assert(accumulator_row(16, 0) == 4 && accumulator_weight_row(20, 5) == 13);

static_assert(quadpair_record<qpn::nvfp4>::k == 64 && quadpair_record<qpn::nvfp4>::bytes == 1152);
static_assert(quadpair_record<qpn::fp8>::k == 32 && quadpair_record<qpn::fp8>::bytes == 1024);
static_assert(quadpair_record<qpn::dense16>::k == 16);
static_assert(quadpair_record<qpn::dense16>::bytes == 1024);

/// Whether `values` is 0, 1, ... in some order.
bool is_permutation_of_indices(std::vector<int> values) {
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<int>(i)) return false;
  }
  return true;
}

template <class Format>
void expect_record_is_covered() {
  using record = quadpair_record<Format>;
  std::array<int, record::bytes> writes{};
  for (int lane = 0; lane < warp_lanes; ++lane) {
    for (int word = 0; word < record::words; ++word) {
      EXPECT_EQ(record::word_offset(lane, word) % 4, 0);
      for (int byte = 0; byte < 4; ++byte) {
        ++writes.at(static_cast<std::size_t>(record::word_offset(lane, word) + byte));
      }
    }
    for (int group = 0; group < record::scales_per_lane; ++group) {
      ++writes.at(static_cast<std::size_t>(record::scale_offset(lane, group)));
    }
    // The four words of a half are one load of 16 bytes; neighbouring lanes load neighbouring
    // bytes.
    for (int half = 0; half < 2; ++half) {
      EXPECT_EQ(record::word_offset(lane, 4 * half), record::half_bytes * half + 16 * lane);
      EXPECT_EQ(record::word_offset(lane, 4 * half + 3),
                record::half_bytes * half + 16 * lane + 12);
    }
  }
  for (int const count : writes) EXPECT_EQ(count, 1);
}

}  // namespace

TEST(quadpair_map, quadpair_and_position_name_every_lane_once) {
  std::vector<int> places;
  for (int lane = 0; lane < warp_lanes; ++lane) {
    places.push_back(8 * quadpair_of_lane(lane) + position_of_lane(lane));
  }
  EXPECT_TRUE(is_permutation_of_indices(places));
}

TEST(quadpair_map, lanes_and_weight_rows_are_a_bijection) {
  std::vector<int> rows;
  for (int lane = 0; lane < warp_lanes; ++lane) {
    rows.push_back(weight_row_of_lane(lane));
    EXPECT_EQ(lane_of_weight_row(weight_row_of_lane(lane)), lane);
    EXPECT_EQ(weight_row_of_lane(lane_of_weight_row(lane)), lane);
  }
  EXPECT_TRUE(is_permutation_of_indices(rows));
}

TEST(quadpair_map, accumulators_cover_8_rows_by_32_weight_rows_once) {
  std::vector<int> elements;
  for (int lane = 0; lane < warp_lanes; ++lane) {
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(accumulator_weight_row(lane, i) / 8, quadpair_of_lane(lane));
      EXPECT_EQ(accumulator_weight_row(lane, i) % 8, accumulator_column(lane, i));
      elements.push_back(32 * accumulator_row(lane, i) + accumulator_weight_row(lane, i));
    }
  }
  EXPECT_EQ(elements.size(), 256u);
  EXPECT_TRUE(is_permutation_of_indices(elements));
}

TEST(quadpair_map, words_and_scales_cover_every_byte_of_a_record_once) {
  expect_record_is_covered<qpn::nvfp4>();
  expect_record_is_covered<qpn::fp8>();
  expect_record_is_covered<qpn::dense16>();
}
