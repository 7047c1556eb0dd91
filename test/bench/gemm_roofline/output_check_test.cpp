// SPDX-License-Identifier: Apache-2.0
#include "support/output_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

using namespace qpn;
using namespace qpn::bench;

/// Two columns of three rows, right as they are: sums of 64 products of about 1.
sampled_output right_output() {
  sampled_output output;
  output.m = 3;
  output.k = 64;
  output.columns = {5, 9};
  for (double const sum : {1.0, -2.0, 0.5, 3.0, 0.0, -0.25}) {
    output.sums.push_back({sum, 64.0, 64.0});
    output.y.push_back(sum);
  }
  return output;
}

TEST(output_check, right_outputs_pass) {
  EXPECT_EQ(output_error(right_output()), "");
}

TEST(output_check, the_first_wrong_element_is_named) {
  sampled_output output = right_output();
  output.y[4] = 0.01;
  output.y[5] = 7.0;
  EXPECT_EQ(output_error(output).find("row 1 column 9 of y is 0.01, expected 0 within"), 0U)
      << output_error(output);
}

TEST(output_check, an_element_may_be_as_far_off_as_promised_and_no_further) {
  // 2 k 2^-24 sum |x w| = 2^-11, half a unit of f16 at 1 and the two roundings on top of it.
  for (double const sign : {1.0, -1.0}) {
    sampled_output output = right_output();
    output.y[0] = 1.0 + sign * 0x1p-10;
    EXPECT_EQ(output_error(output), "");
    output.y[0] = 1.0 + sign * 0x1.1p-10;
    EXPECT_NE(output_error(output), "");
    // Slack is a part of sum |x w|.
    EXPECT_EQ(output_error(output, 0x1p-17), "");
  }
}

TEST(output_check, nan_and_infinity_are_wrong_wherever_they_are) {
  sampled_output output = right_output();
  output.y[2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(output_error(output), "");
  output.y[2] = std::numeric_limits<double>::infinity();
  EXPECT_NE(output_error(output), "");
  output = right_output();
  output.nans = 2;
  EXPECT_EQ(output_error(output), "2 elements of y are NaN or were not written");
}

TEST(output_check, gate_and_residual_take_part) {
  sampled_output output = right_output();
  output.up_sums = output.sums;
  output.residual = {10.0, 20.0, 30.0, 40.0, 50.0, 60.0};
  for (std::size_t i = 0; i < output.y.size(); ++i) {
    double const gate = output.sums[i].sum;
    output.y[i] = gate / (1.0 + std::exp(-gate)) * gate + output.residual[i];
  }
  EXPECT_EQ(output_error(output), "");
  output.residual[3] = 41.0;
  EXPECT_NE(output_error(output), "");
  output.residual[3] = 40.0;
  output.up_sums[3].sum = 2.0;
  EXPECT_NE(output_error(output), "");
}

TEST(output_check, require_right_throws_with_the_name) {
  sampled_output output = right_output();
  EXPECT_NO_THROW(require_right("sm70/nvfp4/mt1", output));
  output.nans = 1;
  try {
    require_right("sm70/nvfp4/mt1", output);
    FAIL() << "a wrong output passed";
  } catch (wrong_output const& error) {
    EXPECT_STREQ(error.what(), "sm70/nvfp4/mt1: 1 elements of y are NaN or were not written");
  }
}

TEST(sample_columns, are_all_where_there_are_few) {
  EXPECT_EQ(sample_columns(3, 4), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(sample_columns(1, 256), (std::vector<std::int64_t>{0}));
}

TEST(sample_columns, reach_from_first_to_last_and_into_every_place_of_a_tile) {
  std::vector<std::int64_t> const columns = sample_columns(5120, 256);
  ASSERT_EQ(columns.size(), 256U);
  EXPECT_EQ(columns.front(), 0);
  EXPECT_EQ(columns.back(), 5119);
  std::vector<int> places(32);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i != 0) {
      EXPECT_LT(columns[i - 1], columns[i]);
    }
    ++places[static_cast<std::size_t>(columns[i] % 32)];
  }
  EXPECT_GE(std::count_if(places.begin(), places.end(), [](int count) { return count > 0; }), 30);
}

}  // namespace
