// SPDX-License-Identifier: Apache-2.0
#include "gemm_roofline/options.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "gemm_chain/chain.hpp"

namespace {

using namespace qpn::bench;

std::vector<char const*> arguments_of(std::initializer_list<char const*> words) {
  std::vector<char const*> arguments{"program"};
  arguments.insert(arguments.end(), words);
  return arguments;
}

roofline::options parsed(std::initializer_list<char const*> words) {
  std::vector<char const*> const arguments = arguments_of(words);
  return roofline::parse(static_cast<int>(arguments.size()), arguments.data());
}

chain::options parsed_chain(std::initializer_list<char const*> words) {
  std::vector<char const*> const arguments = arguments_of(words);
  return chain::parse(static_cast<int>(arguments.size()), arguments.data());
}

/// The sentence that arguments are refused with.
template <class Parse>
std::string refusal(Parse parse, std::initializer_list<char const*> words) {
  try {
    static_cast<void>(parse(words));
  } catch (std::invalid_argument const& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<std::string> names_of(roofline::options const& chosen) {
  std::vector<std::string> names;
  for (model_shape const& shape : chosen.shapes) names.emplace_back(shape.name);
  return names;
}

TEST(gemm_roofline_options, default_to_all_shapes_and_rows) {
  roofline::options const chosen = parsed({});
  EXPECT_EQ(chosen.shapes.size(), 14U);
  EXPECT_EQ(chosen.m, (std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 64, 96, 128, 512, 2048}));
  EXPECT_EQ(chosen.replays, 7);
  EXPECT_EQ(chosen.launches, 200);
  EXPECT_TRUE(chosen.read_megabytes.empty());
  EXPECT_TRUE(chosen.json_file.empty() && chosen.svg_file.empty());
  EXPECT_EQ(chosen.x, qpn::x_order::rows);
  EXPECT_FALSE(chosen.table || chosen.help);
}

TEST(gemm_roofline_options, take_every_value) {
  roofline::options const chosen =
      parsed({"--shapes", "tp4.down,tp4.gdn_out", "--m", "1,65535", "--x", "fragments",
              "--read-sizes", "2,800", "--replays", "3", "--launches", "400", "--json", "a.json",
              "--svg", "a.svg", "--table", "--benchmark_filter=x"});
  EXPECT_EQ(names_of(chosen), (std::vector<std::string>{"tp4.down", "tp4.gdn_out"}));
  EXPECT_EQ(chosen.m, (std::vector<std::int64_t>{1, 65535}));
  EXPECT_EQ(chosen.x, qpn::x_order::fragments);
  EXPECT_EQ(parsed({"--x", "rows"}).x, qpn::x_order::rows);
  EXPECT_EQ(chosen.read_megabytes, (std::vector<std::int64_t>{2, 800}));
  EXPECT_EQ(chosen.replays, 3);
  EXPECT_EQ(chosen.launches, 400);
  EXPECT_EQ(chosen.json_file, "a.json");
  EXPECT_EQ(chosen.svg_file, "a.svg");
  EXPECT_TRUE(chosen.table);
}

TEST(gemm_roofline_options, choose_shapes_by_size_and_format) {
  EXPECT_EQ(parsed({"--shapes", "tp1"}).shapes.size(), 7U);
  EXPECT_EQ(parsed({"--shapes", "tp4,tp1"}).shapes.size(), 14U);
  EXPECT_EQ(parsed({"--formats", "fp8"}).shapes.size(), 8U);
  EXPECT_EQ(names_of(parsed({"--shapes", "tp4", "--formats", "nvfp4"})),
            (std::vector<std::string>{"tp4.gate_up", "tp4.down", "tp4.lm_head"}));
}

TEST(gemm_roofline_options, are_refused_in_one_sentence) {
  struct refused {
    std::initializer_list<char const*> words;
    char const* sentence;
  };
  refused const cases[] = {
      {{"--shape", "tp4"}, "unknown argument --shape, see --help"},
      {{"--json"}, "--json needs a value"},
      {{"--m", "0"}, "--m takes integers from 1 to 65535, not '0'"},
      {{"--m", "8,8x"}, "--m takes integers from 1 to 65535, not '8x'"},
      {{"--m", "-1"}, "--m takes integers from 1 to 65535, not '-1'"},
      {{"--m", "99999999999999999999"},
       "--m takes integers from 1 to 65535, not '99999999999999999999'"},
      {{"--m", "1,,2"}, "--m has an empty word between its commas"},
      {{"--shapes", ""}, "--shapes has an empty word between its commas"},
      {{"--launches", "199"}, "--launches takes integers from 200 to 100000, not '199'"},
      {{"--x", "columns"}, "--x takes rows or fragments, not 'columns'"},
      {{"--formats", "f16"}, "no shape has format f16, expected nvfp4 or fp8"},
      {{"--shapes", "tp4.down", "--formats", "fp8"}, "--shapes and --formats leave no shape"},
  };
  for (refused const& one : cases) EXPECT_EQ(refusal(parsed, one.words), one.sentence);
  EXPECT_NE(refusal(parsed, {"--shapes", "tp4.up"}).find("no shape is called tp4.up"),
            std::string::npos);
}

TEST(gemm_chain_options, take_every_value) {
  EXPECT_EQ(parsed_chain({}).m, (std::vector<std::int64_t>{1, 8}));
  EXPECT_EQ(parsed_chain({}).replays, 7);
  chain::options const chosen =
      parsed_chain({"--m", "4", "--replays", "9", "--json", "b.json", "--help"});
  EXPECT_EQ(chosen.m, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(chosen.replays, 9);
  EXPECT_EQ(chosen.json_file, "b.json");
  EXPECT_TRUE(chosen.help);
}

TEST(gemm_chain_options, are_refused_in_one_sentence) {
  EXPECT_EQ(refusal(parsed_chain, {"--tp", "4"}), "unknown argument --tp, see --help");
  EXPECT_EQ(refusal(parsed_chain, {"--replays", "0"}),
            "--replays takes integers from 1 to 10000, not '0'");
}

}  // namespace
