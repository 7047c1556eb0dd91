// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/overlap.hpp"
#include "support/rotation.hpp"
#include "support/run_context.hpp"
#include "support/statistics.hpp"
#include "support/svg.hpp"

namespace {

using namespace qpn::bench;

TEST(median, is_the_middle_value) {
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({9.0, 1.0, 5.0}), 5.0);
  EXPECT_EQ(median({4.0, 1.0, 100.0, 2.0}), 3.0);
  EXPECT_EQ(median({2.0, 2.0, 7.0, 2.0, 2.0, 7.0, 7.0}), 2.0);
  EXPECT_THROW(static_cast<void>(median({})), std::invalid_argument);
}

TEST(spread, is_that_of_the_middle_half) {
  EXPECT_EQ(spread({3.0}), 0.0);
  EXPECT_EQ(spread({1.0, 9.0}), 8.0 / 5.0);
  EXPECT_EQ(spread({4.0, 1.0, 100.0, 2.0}), 2.0 / 3.0);
  EXPECT_EQ(spread({10.0, 9.0, 50.0, 11.0, 1.0, 10.0, 12.0}), 3.0 / 10.0);
  EXPECT_THROW(static_cast<void>(spread({})), std::invalid_argument);
}

TEST(rotation, copies_leave_nothing_in_l2) {
  constexpr std::int64_t l2 = 60 << 20;
  for (std::int64_t const bytes : {2'000'000, 7'864'320, 25'067'520, 715'161'600}) {
    std::int64_t const copies = copies_of(bytes, rotation_bytes(l2));
    EXPECT_GE(copies, 2);
    EXPECT_GE(copies * bytes, 4 * l2) << bytes;
    EXPECT_TRUE(copies == 2 || (copies - 1) * bytes < rotation_bytes(l2)) << bytes;
  }
}

TEST(rotation, launches_are_whole_rounds) {
  EXPECT_EQ(launches_of(2, 200), 200);
  EXPECT_EQ(launches_of(31, 200), 217);
  EXPECT_EQ(launches_of(250, 200), 250);
}

struct args_with_overlap {
  bool overlap_previous = false;
};
struct args_without_overlap {
  bool other = false;
};

TEST(overlap, is_asked_for_where_it_can_be_had) {
  EXPECT_TRUE(offers_overlap<args_with_overlap>);
  args_with_overlap with;
  overlap_previous(with);
  EXPECT_TRUE(with.overlap_previous);
  EXPECT_FALSE(offers_overlap<args_without_overlap>);
  args_without_overlap without;
  overlap_previous(without);
  EXPECT_FALSE(without.other);
}

TEST(run_context, a_command_can_be_given_to_a_shell_again) {
  char const* const words[] = {"build/cuda/bench/gemm_roofline", "--m", "1,8", "a b", "it's", ""};
  EXPECT_EQ(command_line(6, words), "build/cuda/bench/gemm_roofline --m 1,8 'a b' 'it'\\''s' ''");
}

TEST(run_context, all_four_parts_stand_beside_the_numbers) {
  run_context const context{"a GPU", "SM 1 MHz", "CUDA 13", "run --m 1"};
  EXPECT_EQ(lines_of(context),
            (std::vector<std::string>{"device: a GPU", "clocks: SM 1 MHz", "toolkit: CUDA 13",
                                      "command: run --m 1"}));
  EXPECT_EQ(markdown_of(context),
            "- device: a GPU\n- clocks: SM 1 MHz\n- toolkit: CUDA 13\n- command: `run --m 1`\n");
  nlohmann::ordered_json row;
  add_context(context, row);
  EXPECT_EQ(row.dump(),
            R"({"device":"a GPU","clocks":"SM 1 MHz","toolkit":"CUDA 13","command":"run --m 1"})");
}

TEST(run_context, an_array_holds_a_row_on_each_line) {
  EXPECT_EQ(array_text({}), "[\n]\n");
  EXPECT_EQ(array_text({{{"a", 1}}, {{"a", nullptr}}}), "[\n  {\"a\":1},\n  {\"a\":null}\n]\n");
  EXPECT_EQ(json_us(3.44449), 3.444);
}

TEST(run_context, files_are_written_or_named) {
  std::string const name = testing::TempDir() + "run_context_test.json";
  write_file(name, "[\n]\n");
  std::ifstream file(name);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "[\n]\n");
  std::remove(name.c_str());
  std::string const nowhere = testing::TempDir() + "no such folder/a.json";
  try {
    write_file(nowhere, "");
    FAIL() << nowhere << " was written";
  } catch (std::runtime_error const& error) {
    EXPECT_EQ(std::string(error.what()), nowhere + " cannot be written");
  }
}

TEST(svg, words_cannot_end_their_element) {
  EXPECT_EQ(
      svg::text_at(1, 2, "start", "a < b & c > d"),
      "<text x=\"1.0\" y=\"2.0\" text-anchor=\"start\" fill=\"#222222\">a &lt; b &amp; c &gt; "
      "d</text>\n");
}

TEST(svg, lines_are_dashed_where_asked_for) {
  EXPECT_EQ(svg::polyline("0,0 1,1", "#111111", "").find("dasharray"), std::string::npos);
  EXPECT_NE(svg::polyline("0,0 1,1", "#111111", "5 3").find("stroke-dasharray=\"5 3\""),
            std::string::npos);
}

}  // namespace
