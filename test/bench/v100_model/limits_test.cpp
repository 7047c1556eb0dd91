// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "fit.hpp"
#include "rows.hpp"

namespace qpn::bench::v100 {
namespace {

constexpr model_shape gate_up{"", format_id::nvfp4, dtype::e2m1, 8704, 5120, true};

/// The sentences about gate_up with m rows from a table with one value changed.
std::vector<std::string> misses_with(char const* key, double factor, int m = 8) {
  sass_table table = built_in_sass_table();
  for (sass_kernel& one : table.kernels) one.values[key] = one.values[key] * factor;
  std::vector<model_row> rows;
  rows.push_back(make_row(table, gate_up, m, fitted));
  return missed_limits(rows);
}

TEST(limits, what_keeps_them_says_nothing) {
  EXPECT_TRUE(misses_with("registers", 1).empty());
  EXPECT_TRUE(misses_with("registers", 1, 16).empty());
  EXPECT_TRUE(misses_with("registers", 1, 32).empty());
}

TEST(limits, instructions_per_weight) {
  auto const misses = misses_with("weights", 0.9);
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_EQ(misses[0], "nvfp4 mt1 needs 3.32 instructions per weight, 3.2 are allowed.");
  EXPECT_EQ(misses_with("weights", 0.96, 16).size(), 1u);
  EXPECT_EQ(misses_with("weights", 0.98, 32).size(), 1u);
}

TEST(limits, spills) {
  sass_table table = built_in_sass_table();
  for (sass_kernel& one : table.kernels) one.values["spills"] = 12;
  std::vector<model_row> const rows = {make_row(table, gate_up, 8, fitted),
                                       make_row(table, gate_up, 1, fitted)};
  EXPECT_EQ(missed_limits(rows),
            std::vector<std::string>{"nvfp4 mt1 spills 12 bytes, none are allowed."});
}

TEST(limits, bank_conflicts) {
  model_row row = make_row(built_in_sass_table(), gate_up, 8, fitted);
  row.launch.reduction.conflicts = 2;
  ASSERT_EQ(missed_limits({row}).size(), 1u);
  EXPECT_NE(missed_limits({row})[0].find("2 bank conflicts"), std::string::npos);
}

TEST(limits, balance_and_bytes_in_flight) {
  model_row row = make_row(built_in_sass_table(), gate_up, 8, fitted);
  row.launch.work.ctas.resize(100);
  ASSERT_EQ(missed_limits({row}).size(), 1u);
  EXPECT_NE(missed_limits({row})[0].find("62.5 % balanced, 97 % are needed"), std::string::npos);
  row.launch.work.ctas.resize(80);
  ASSERT_EQ(missed_limits({row}).size(), 1u);
  EXPECT_NE(missed_limits({row})[0].find("9216 bytes are on their way"), std::string::npos);
}

TEST(limits, time_of_rows_with_a_target) {
  model_row row = make_row(built_in_sass_table(), gate_up, 8, fitted);
  row.us = 1.12 * row.read_us;
  ASSERT_EQ(missed_limits({row}).size(), 1u);
  EXPECT_NE(missed_limits({row})[0].find("nvfp4 8704 x 5120 at m = 8"), std::string::npos);
  EXPECT_NE(missed_limits({row})[0].find("1.120 of the modelled read, 1.11 are allowed"),
            std::string::npos);
  row.shape.has_target = false;
  EXPECT_TRUE(missed_limits({row}).empty());
}

TEST(limits, time_grows_with_m_and_less_with_fp8) {
  EXPECT_EQ(time_limit(format_id::nvfp4, 16), 1.11);
  EXPECT_EQ(time_limit(format_id::fp8, 17), 1.18);
  EXPECT_EQ(time_limit(format_id::nvfp4, 32), 1.18);
  EXPECT_EQ(time_limit(format_id::nvfp4, 64), 1.7);
  EXPECT_EQ(time_limit(format_id::fp8, 64), 1.2);
  EXPECT_EQ(time_limit(format_id::nvfp4, 96), 2.5);
  EXPECT_EQ(time_limit(format_id::fp8, 96), 1.45);
}

}  // namespace
}  // namespace qpn::bench::v100
