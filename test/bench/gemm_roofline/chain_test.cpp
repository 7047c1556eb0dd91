// SPDX-License-Identifier: Apache-2.0
#include "gemm_chain/chain.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using namespace qpn::bench;
using namespace qpn::bench::chain;

TEST(gemm_chain, has_both_layers_at_both_sizes) {
  std::vector<std::string> names;
  for (layer const& of : layers()) {
    std::string name = of.name + std::to_string(of.tp) + ":";
    for (model_shape const& shape : of.projections) name.append(" ").append(shape.name);
    names.push_back(name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "gdn1: tp1.gdn_in tp1.gdn_out tp1.gate_up tp1.down",
                       "attention1: tp1.attn_qkv tp1.attn_o tp1.gate_up tp1.down",
                       "gdn4: tp4.gdn_in tp4.gdn_out tp4.gate_up tp4.down",
                       "attention4: tp4.attn_qkv tp4.attn_o tp4.gate_up tp4.down",
                   }));
}

TEST(gemm_chain, every_projection_finds_its_k_in_what_the_one_before_has_written) {
  for (layer const& of : layers()) {
    EXPECT_EQ(of.projections[in].k, columns_of(of, down)) << of.name << of.tp;
    EXPECT_LE(of.projections[out].k, columns_of(of, in)) << of.name << of.tp;
    EXPECT_EQ(of.projections[gate_up].k, columns_of(of, out)) << of.name << of.tp;
    EXPECT_EQ(of.projections[down].k, columns_of(of, gate_up)) << of.name << of.tp;
    // silu_gate takes pairs of tiles.
    EXPECT_EQ(of.projections[gate_up].n % 64, 0) << of.name << of.tp;
  }
}

std::vector<measured_chain> some_rows() {
  return {{"gdn", 4, 8, std::nullopt, 30.0, 24.0, {"a", "b", "c", "d"}},
          {"attention", 1, 1, 40.0, 50.0, 40.0, {"a", "b", "c", "d"}}};
}

run_context const some_context{"a GPU", "SM 1 MHz", "CUDA 13", "gemm_chain"};

TEST(gemm_chain_json, is_an_array_of_chains_with_context) {
  auto const rows = nlohmann::json::parse(json_of(some_rows(), some_context));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("layer"), "gdn");
  EXPECT_EQ(rows[0].at("tp"), 4);
  EXPECT_EQ(rows[0].at("m"), 8);
  EXPECT_TRUE(rows[0].at("pdl_us").is_null());
  EXPECT_EQ(rows[0].at("plain_us"), 30.0);
  EXPECT_EQ(rows[0].at("sum_read_us"), 24.0);
  EXPECT_EQ(rows[0].at("routes"), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(rows[1].at("pdl_us"), 40.0);
  for (auto const& row : rows) {
    EXPECT_EQ(row.at("device"), "a GPU");
    EXPECT_EQ(row.at("clocks"), "SM 1 MHz");
    EXPECT_EQ(row.at("toolkit"), "CUDA 13");
    EXPECT_EQ(row.at("command"), "gemm_chain");
  }
}

TEST(gemm_chain_table, shows_times_and_ratios) {
  std::string const text = markdown_of(some_rows(), some_context);
  for (char const* const line :
       {"- device: a GPU\n", "- command: `gemm_chain`\n",
        "\n| gdn | 4 | 8 | 30.00 | - | 24.00 | 1.25 | - |\n",
        "\n| attention | 1 | 1 | 50.00 | 40.00 | 40.00 | 1.25 | 1.00 |\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nis missing in\n" << text;
  }
}

}  // namespace
