// SPDX-License-Identifier: Apache-2.0
#include "gemm_roofline/report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace {

using namespace qpn::bench;
using namespace qpn::bench::roofline;

report some_report() {
  report made;
  made.context = {"a \"GPU\"", "SM 1980 MHz", "CUDA 13", "gemm_roofline --m 1,8 <x>"};
  made.cublas = "13.0.2";
  made.reads = {{50, 12.5}};
  measured_row row;
  row.shape = shape_named("tp4.gdn_out");
  row.m = 8;
  row.bytes = 7'865'000;
  row.us = 6.88;
  row.read_us = 3.44;
  row.cublas_us = 13.76;
  row.route = "sm70/fp8/mt1/emulated";
  row.sm_mhz = 1980;
  row.memory_mhz = 3201;
  made.rows.push_back(row);
  row.m = 1;
  row.us = 4.3;
  row.cublas_us.reset();
  row.sm_mhz = row.memory_mhz = 0;
  made.rows.push_back(row);
  row.x = qpn::x_order::fragments;
  row.shape = shape_named("tp1.down");
  row.m = 8;
  row.us = 400.0;
  made.rows.push_back(row);
  made.skipped = {"bm_gemm/fp8/tp4.gdn_out/m:128 is skipped: too many rows"};
  return made;
}

TEST(gemm_roofline_json, is_an_array_of_rows_with_context) {
  auto const rows = nlohmann::json::parse(json_of(some_report()));
  ASSERT_TRUE(rows.is_array());
  ASSERT_EQ(rows.size(), 3U);
  auto const& row = rows[0];
  EXPECT_EQ(row.at("shape"), "tp4.gdn_out");
  EXPECT_EQ(row.at("format"), "fp8");
  EXPECT_EQ(row.at("n"), 5120);
  EXPECT_EQ(row.at("k"), 1536);
  EXPECT_EQ(row.at("m"), 8);
  EXPECT_EQ(row.at("us"), 6.88);
  EXPECT_EQ(row.at("read_us"), 3.44);
  EXPECT_EQ(row.at("cublas_us"), 13.76);
  EXPECT_EQ(row.at("route"), "sm70/fp8/mt1/emulated");
  EXPECT_EQ(row.at("bytes"), 7'865'000);
  EXPECT_EQ(row.at("sm_mhz"), 1980);
  EXPECT_EQ(row.at("memory_mhz"), 3201);
  for (auto const& each : rows) {
    EXPECT_EQ(each.at("device"), "a \"GPU\"");
    EXPECT_EQ(each.at("clocks"), "SM 1980 MHz");
    EXPECT_EQ(each.at("toolkit"), "CUDA 13");
    EXPECT_EQ(each.at("command"), "gemm_roofline --m 1,8 <x>");
  }
  EXPECT_EQ(row.at("x"), "rows");
  EXPECT_EQ(rows[2].at("format"), "nvfp4");
  EXPECT_EQ(rows[2].at("x"), "fragments");
}

TEST(gemm_roofline_json, says_null_where_nothing_was_measured) {
  auto const rows = nlohmann::json::parse(json_of(some_report()));
  EXPECT_TRUE(rows[1].at("cublas_us").is_null());
  EXPECT_TRUE(rows[1].at("sm_mhz").is_null());
  EXPECT_TRUE(rows[1].at("memory_mhz").is_null());
  EXPECT_EQ(nlohmann::json::parse(json_of(report())), nlohmann::json::array());
}

TEST(gemm_roofline_table, shows_times_ratios_and_what_was_skipped) {
  std::string const text = markdown_of(some_report());
  for (char const* const line :
       {"- device: a \"GPU\"\n- clocks: SM 1980 MHz\n- toolkit: CUDA 13\n"
        "- command: `gemm_roofline --m 1,8 <x>`\n- cuBLAS: 13.0.2\n",
        "\n| 50 | 12.50 | 4000 |\n",
        "\n| tp4.gdn_out | fp8 | 5120 x 1536 | 7.9 | 8 | 6.88 | 3.44 | 2.00 | 1143 | 13.76 | 0.50 "
        "| sm70/fp8/mt1/emulated |\n",
        "\n| tp4.gdn_out | fp8 | 5120 x 1536 | 7.9 | 1 | 4.30 | 3.44 | 1.25 | 1829 | - | - | "
        "sm70/fp8/mt1/emulated |\n",
        " | sm70/fp8/mt1/emulated, x in fragment order |\n",
        "\nNot measured:\n\n- bm_gemm/fp8/tp4.gdn_out/m:128 is skipped: too many rows\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nis missing in\n" << text;
  }
}

TEST(gemm_roofline_table, leaves_out_what_there_is_nothing_of) {
  report empty;
  empty.context = some_report().context;
  std::string const text = markdown_of(empty);
  EXPECT_EQ(text.find('|'), std::string::npos) << text;
  EXPECT_EQ(text.find("Not measured"), std::string::npos) << text;
}

/// All first groups of a pattern.
std::vector<std::string> matches(std::string const& text, char const* pattern) {
  std::regex const regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.push_back((*it)[1]);
  }
  return found;
}

TEST(gemm_roofline_svg, places_each_fraction_at_its_height) {
  std::string const text = svg_of(some_report());
  EXPECT_EQ(text.find("<svg "), 0U);
  EXPECT_EQ(text.substr(text.size() - 7), "</svg>\n");
  // Shapes in the order of their names, rows in that of m: tp1.down at 8; tp4.gdn_out at 1, 8. The
  // plot is 360 high for 1.1 and ends at 480: 0.0086, 0.8 and 0.5 of the ceiling.
  EXPECT_EQ(matches(text, "<circle cx=\"[0-9.]+\" cy=\"([0-9.]+)\""),
            (std::vector<std::string>{"477.2", "218.2", "316.4"}));
  // m = 1 to 8 fills the width between the margins.
  EXPECT_EQ(matches(text, "<circle cx=\"([0-9.]+)\""),
            (std::vector<std::string>{"600.0", "80.0", "600.0"}));
  // A line and its sample in the legend, dashed for TP4.
  EXPECT_EQ(matches(text, "(<polyline)").size(), 4U);
  EXPECT_EQ(matches(text, "(stroke-dasharray)").size(), 2U);
  EXPECT_NE(text.find(">tp4.gdn_out (fp8)<"), std::string::npos);
}

TEST(gemm_roofline_svg, says_where_and_how) {
  std::string const text = svg_of(some_report());
  for (char const* const line :
       {">device: a \"GPU\"<", ">clocks: SM 1980 MHz<", ">toolkit: CUDA 13<",
        ">command: gemm_roofline --m 1,8 &lt;x&gt;<"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

TEST(gemm_roofline_svg, can_be_drawn_of_nothing) {
  EXPECT_TRUE(matches(svg_of(report()), "(<polyline)").empty());
}

}  // namespace
