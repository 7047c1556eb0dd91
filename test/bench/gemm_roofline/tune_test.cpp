// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <qpn/arch/sm90/gemm_table_h200.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gemm_tune/candidates.hpp"
#include "gemm_tune/header.hpp"
#include "gemm_tune/options.hpp"
#include "gemm_tune/report.hpp"
#include "support/devices.hpp"
#include "support/hopper_layout.hpp"

namespace {

using namespace qpn;
using namespace qpn::bench;

tune::options parsed(std::initializer_list<char const*> words) {
  std::vector<char const*> arguments{"gemm_tune"};
  arguments.insert(arguments.end(), words);
  return tune::parse(static_cast<int>(arguments.size()), arguments.data());
}

std::string refusal(std::initializer_list<char const*> words) {
  try {
    static_cast<void>(parsed(words));
  } catch (std::invalid_argument const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(gemm_tune_options, default_to_all_weights_once) {
  tune::options const chosen = parsed({});
  EXPECT_EQ(chosen.shapes.size(), 12U) << "attn_o has the weight of gdn_out";
  EXPECT_TRUE(std::is_sorted(chosen.m.begin(), chosen.m.end()));
  for (std::int64_t const m : {1, 8, 16, 32, 64, 96, 128, 512, 2048}) {
    EXPECT_EQ(std::count(chosen.m.begin(), chosen.m.end(), m), 1) << m;
  }
  EXPECT_EQ(chosen.replays, 7);
  EXPECT_EQ(chosen.launches, 200);
  EXPECT_TRUE(chosen.header_file.empty() && chosen.json_file.empty());
  EXPECT_FALSE(chosen.help);
}

TEST(gemm_tune_options, take_every_value) {
  tune::options const chosen =
      parsed({"--shape", "tp4.down,nvfp4:34816x5120,fp8:64x128,tp4.down,nvfp4:5120x4352", "--m",
              "64,1,64", "--replays", "3", "--launches", "400", "--most-ms", "5", "--header",
              "a/my_card.hpp", "--json", "a.json", "--help"});
  ASSERT_EQ(chosen.shapes.size(), 3U);
  EXPECT_EQ(chosen.shapes[0].name, "tp4.down");
  EXPECT_EQ(chosen.shapes[1].name, "nvfp4:34816x5120");
  EXPECT_EQ(chosen.shapes[1].format, format_id::nvfp4);
  EXPECT_EQ(chosen.shapes[1].n, 34816);
  EXPECT_EQ(chosen.shapes[1].k, 5120);
  EXPECT_EQ(chosen.shapes[2].format, format_id::fp8);
  EXPECT_EQ(chosen.m, (std::vector<std::int64_t>{1, 64}));
  EXPECT_EQ(chosen.replays, 3);
  EXPECT_EQ(chosen.launches, 400);
  EXPECT_EQ(chosen.most_ms, 5);
  EXPECT_EQ(chosen.header_file, "a/my_card.hpp");
  EXPECT_EQ(chosen.json_file, "a.json");
  EXPECT_TRUE(chosen.help);
}

TEST(gemm_tune_options, are_refused_in_one_sentence) {
  auto const no_shape = [](std::string const& word) {
    return "--shape takes nvfp4 or fp8, a colon, and n x k up to a million, as in "
           "nvfp4:34816x5120, not '" +
           word + "'";
  };
  for (char const* const word : {"int4:64x64", "nvfp4:64", "nvfp4:64x", "nvfp4:x64", "nvfp4:0x64",
                                 "nvfp4:64x64x64", "fp8:64x1000001", ":64x64"}) {
    EXPECT_EQ(refusal({"--shape", word}), no_shape(word));
  }
  EXPECT_NE(refusal({"--shape", "tp4.up"}).find("no shape is called tp4.up"), std::string::npos);
  EXPECT_EQ(refusal({"--shapes", "tp4"}), "unknown argument --shapes, see --help");
  EXPECT_EQ(refusal({"--m", "0"}), "--m takes integers from 1 to 65535, not '0'");
  EXPECT_EQ(refusal({"--launches", "9"}), "--launches takes integers from 200 to 100000, not '9'");
  EXPECT_EQ(refusal({"--header", "a/9.hpp"}),
            "--header takes a file whose name could be that of an array, not 'a/9.hpp'");
}

std::vector<std::string> texts_of(std::vector<gemm_choice> const& choices) {
  std::vector<std::string> texts;
  for (gemm_choice const choice : choices) texts.push_back(tune::text_of(choice));
  return texts;
}

TEST(gemm_tune_candidates, are_what_the_plan_takes_and_the_rules_come_first) {
  device_info const device = test::hopper_h200();
  packed_layout const layout =
      test::hopper_layout(format_id::nvfp4, scale_mode::tensor, 5120, 17408);
  EXPECT_EQ(texts_of(tune::candidates_of(layout, 16, device)),
            (std::vector<std::string>{"mt2", "mt1", "mt1 r56", "mt1 r128", "mt2 r96", "mt2 r128",
                                      "mt4", "group 32/1", "group 64/1", "group 64/2", "group 96/1",
                                      "group 96/3"}));
  EXPECT_EQ(texts_of(tune::candidates_of(layout, 80, device)),
            (std::vector<std::string>{"group 96/3", "mt2", "mt2 r128", "mt4", "group 96/1"}));
  // 80 tiles of 128 rows are a wave of single CTAs, and more than waves of clusters.
  std::vector<std::string> const many = texts_of(tune::candidates_of(layout, 512, device));
  EXPECT_EQ(std::count(many.begin(), many.end(), "wide 128/1"), 1);
  EXPECT_EQ(std::count(many.begin(), many.end(), "wide 128/1+4"), 0);
  EXPECT_EQ(std::count(many.begin(), many.end(), "wide 128/2+4"), 1);
  EXPECT_EQ(std::count(many.begin(), many.end(), "mt4"), 0) << "16 row blocks";
  for (std::int64_t const m : {1, 24, 96, 97, 2048}) {
    std::vector<gemm_choice> const found = tune::candidates_of(layout, m, device);
    EXPECT_EQ(found.front(), tune::rule_of(layout, m, device)) << m;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(std::count(found.begin(), found.end(), found[i]), 1) << m << " " << i;
    }
  }
  // Of one row block a CTA has half a strip, so that any count of registers is another kernel.
  EXPECT_EQ(texts_of(tune::candidates_of(layout, 8, device)),
            (std::vector<std::string>{"mt1", "mt1 r56", "mt1 r64", "mt1 r128", "mt2", "mt2 r96",
                                      "mt2 r128", "mt4", "group 32/1", "group 64/1", "group 64/2",
                                      "group 96/1", "group 96/3"}));
  // Without wgmma row tiles are left.
  device_info ampere = device;
  ampere.compute_capability = 80;
  EXPECT_EQ(texts_of(tune::candidates_of(layout, 64, ampere)),
            (std::vector<std::string>{"mt4", "mt1", "mt1 r56", "mt1 r64", "mt2", "mt2 r128"}));
}

TEST(gemm_tune_candidates, add_alike_where_k_is_shared_alike) {
  gemm_choice const few = {gemm_method::mt1};
  gemm_choice const group = {gemm_method::group, 64, 2};
  gemm_choice const wide = {gemm_method::wide, 128, 0, 1};
  EXPECT_TRUE(tune::adds_alike(few, group));
  EXPECT_FALSE(tune::adds_alike(few, wide));
  EXPECT_FALSE(tune::adds_alike(wide, group));
  EXPECT_TRUE(tune::adds_alike(wide, {gemm_method::wide, 96, 0, 1}));
  EXPECT_FALSE(tune::adds_alike(wide, {gemm_method::wide, 128, 0, 2}));
  EXPECT_FALSE(tune::adds_alike(wide, {gemm_method::wide, 128, 0, 1, 4}));
  EXPECT_TRUE(tune::adds_alike({gemm_method::wide, 96, 0, 1, 4}, {gemm_method::wide, 96, 0, 1, 4}));
  EXPECT_FALSE(
      tune::adds_alike({gemm_method::wide, 96, 0, 1, 4}, {gemm_method::wide, 128, 0, 1, 4}));
}

TEST(gemm_tune_candidates, stand_for_rows_up_to_those_measured) {
  std::vector<std::int64_t> const all = {1, 8, 16, 96, 128, 500, 512, 2048};
  std::map<std::int64_t, std::int64_t> const expected = {
      {1, 1}, {8, 2}, {16, 9}, {96, 17}, {128, 97}, {500, 481}, {512, 501}, {2048, 2017}};
  for (auto const& [m, first] : expected) EXPECT_EQ(tune::first_m_of(all, m), first) << m;
  EXPECT_EQ(tune::first_m_of({200}, 200), 193);
  EXPECT_EQ(tune::first_m_of({100}, 100), 97);
  EXPECT_EQ(tune::first_m_of({40}, 40), 1);
}

tune::report some_report() {
  tune::report made;
  made.context = {"a \"GPU\"", "SM 1980 MHz", "CUDA 13", "gemm_tune --m 16,64"};
  tune::tuned_call call{shape_named("tp4.down"), 9, 16, {}};
  // The second turn was slow for both; ratios are 0.97, 0.96, 0.97 and 0.97.
  call.choices = {{{gemm_method::mt2}, {10.0, 15.0, 10.0, 10.0}},
                  {{gemm_method::mt1}, {9.7, 14.4, 9.7, 9.7}},
                  {{gemm_method::mt4}, {9.0}}};
  made.calls.push_back(call);
  call.first_m = call.m = 64;
  call.choices = {{{gemm_method::group, 64, 1}, {10.0, 10.0}},
                  {{gemm_method::group, 64, 2}, {9.85, 9.85}}};
  made.calls.push_back(call);
  return made;
}

TEST(gemm_tune_report, has_rows_for_gains_above_two_percent_and_the_noise) {
  tune::tuned_call call = some_report().calls[0];
  EXPECT_EQ(call.best().choice, gemm_choice{gemm_method::mt1}) << "mt4 was not timed to the end";
  EXPECT_NEAR(call.gain(), 0.03, 1e-12);
  EXPECT_NEAR(call.noise(), 0.0, 1e-12);
  EXPECT_TRUE(call.is_worth_a_row());
  EXPECT_EQ(call.row(), (gemm_tuning_row{format_id::nvfp4, 5120, 4352, 9, 16, {gemm_method::mt1}}));
  call.choices[1].turns = {9.4, 14.4, 9.7, 9.8};
  EXPECT_NEAR(call.gain(), 0.035, 1e-12);
  EXPECT_NEAR(call.noise(), 0.01 / 0.965, 1e-12);
  EXPECT_TRUE(call.is_worth_a_row());
  call.choices[1].turns = {9.2, 14.1, 10.1, 9.89};
  EXPECT_NEAR(call.gain(), 0.0355, 1e-12);
  EXPECT_NEAR(call.noise(), 0.049 / 0.9645, 1e-12);
  EXPECT_FALSE(call.is_worth_a_row());
  EXPECT_FALSE(some_report().calls[1].is_worth_a_row()) << "1.5 %";
  call.choices.resize(1);
  EXPECT_FALSE(call.is_worth_a_row()) << "nothing but the rules";
}

TEST(gemm_tune_report, shows_every_call) {
  std::string const text = tune::markdown_of(some_report());
  for (char const* const line :
       {"- device: a \"GPU\"\n- clocks: SM 1980 MHz\n",
        "\n| tp4.down | nvfp4 | 5120 x 4352 | 9..16 | mt2 | 10.00 | mt1 | 9.70 | 3.0 | 0.0 | 3 | "
        "yes |\n",
        "\n| tp4.down | nvfp4 | 5120 x 4352 | 64 | group 64/1 | 10.00 | group 64/2 | 9.85 | 1.5 | "
        "0.0 | 2 | - |\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nis missing in\n" << text;
  }
  auto const rows = nlohmann::json::parse(tune::json_of(some_report()));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("shape"), "tp4.down");
  EXPECT_EQ(rows[0].at("first_m"), 9);
  EXPECT_EQ(rows[0].at("m"), 16);
  EXPECT_EQ(rows[0].at("rule"), "mt2");
  EXPECT_EQ(rows[0].at("rule_us"), 10.0);
  EXPECT_EQ(rows[0].at("best"), "mt1");
  EXPECT_EQ(rows[0].at("best_us"), 9.7);
  EXPECT_EQ(rows[0].at("gain"), 0.03);
  EXPECT_EQ(rows[0].at("noise"), 0.0);
  EXPECT_EQ(rows[0].at("row"), true);
  EXPECT_EQ(rows[0].at("choices")[2].at("choice"), "mt4");
  EXPECT_EQ(rows[0].at("choices")[2].at("us"), 9.0);
  EXPECT_EQ(rows[0].at("choices")[2].at("turns"), 1);
  EXPECT_EQ(rows[1].at("row"), false);
  EXPECT_EQ(rows[1].at("command"), "gemm_tune --m 16,64");
}

TEST(gemm_tune_header, has_the_rows_and_what_they_gain) {
  tune::report measured = some_report();
  measured.context.command =
      "gemm_tune --json a-file-with-a-name.json --header "
      "a-folder-with-a-name/table.hpp --m 16,64";
  measured.calls[1].choices[1] = {{gemm_method::wide, 128, 0, 1, 4}, {8.0, 8.0}};
  measured.calls.push_back(measured.calls[0]);
  measured.calls[2].choices[1] = {{gemm_method::mt2, 0, 0, 0, 0, 128}, {8.0, 12.0, 8.0, 8.0}};
  EXPECT_EQ(tune::header_text("my_card", measured.context, tune::table_lines(measured)),
            R"(// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/gemm_choice.hpp"

// Written by gemm_tune (docs/gemm_tune.md). Behind each row: the change of the time of the rules at
//   its last m.
// device: a "GPU"
// clocks: SM 1980 MHz
// toolkit: CUDA 13
// command: gemm_tune --json a-file-with-a-name.json --header a-folder-with-a-name/table.hpp --m
//   16,64

namespace qpn {

inline constexpr gemm_tuning_row my_card[] = {
    {format_id::nvfp4, 5120, 4352, 9, 16, {gemm_method::mt1}},                   // -3.0 %
    {format_id::nvfp4, 5120, 4352, 64, 64, {gemm_method::wide, 128, 0, 1, 4}},   // -20.0 %
    {format_id::nvfp4, 5120, 4352, 9, 16, {gemm_method::mt2, 0, 0, 0, 0, 128}},  // -20.0 %
};

}  // namespace qpn
)");
}

TEST(gemm_tune_header, names_the_array_like_the_file) {
  EXPECT_EQ(tune::array_name("gemm_table_h200.hpp"), "gemm_table_h200");
  EXPECT_EQ(tune::array_name("/a.b/Card2.x.hpp"), "Card2");
  EXPECT_EQ(tune::array_name("a/"), "");
  EXPECT_EQ(tune::array_name("a-b.hpp"), "");
  EXPECT_EQ(tune::array_name("_a.hpp"), "");
}

/// A table's file: its context, and what stands behind its rows.
struct table_file {
  run_context context;
  std::vector<std::string> comments;
  std::string text;

  explicit table_file(std::string const& name) {
    std::ifstream file(name);
    text.assign(std::istreambuf_iterator<char>(file), {});
    std::vector<std::string> words;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::size_t const comment = line.find("  // ");
      if (line.find("// ") == 0 && line.find("//   ") != 0) words.push_back(line.substr(3));
      if (line.find("//   ") == 0) words.back() += line.substr(4);
      if (line.find("    {") == 0) comments.push_back(line.substr(comment + 5));
    }
    auto const behind = [&](std::string const& key) {
      for (std::string const& line : words) {
        if (line.find(key) == 0) return line.substr(key.size());
      }
      return std::string();
    };
    context = {behind("device: "), behind("clocks: "), behind("toolkit: "), behind("command: ")};
  }
};

TEST(gemm_tune_header, of_the_library_is_what_the_program_writes) {
  table_file const file("../../../include/qpn/arch/sm90/gemm_table_h200.hpp");
  ASSERT_EQ(file.comments.size(), std::size(gemm_table_h200));
  std::vector<tune::table_line> lines;
  for (gemm_tuning_row const& row : gemm_table_h200) {
    lines.push_back({row, file.comments[lines.size()]});
  }
  EXPECT_EQ(tune::header_text("gemm_table_h200", file.context, lines), file.text);
}

}  // namespace
