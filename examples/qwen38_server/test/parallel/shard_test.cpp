// SPDX-License-Identifier: Apache-2.0
#include "parallel/shard.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "checkpoint/inventory.hpp"
#include "checkpoint_fixture.hpp"

namespace qwen38::parallel {
namespace {

using checkpoint::model_config;
using checkpoint::test::error_of;

model_config config_27b() {
  checkpoint::diagnostics strict(checkpoint::diagnostics::mode::strict);
  return checkpoint::parse_model_config(checkpoint::test::make_27b().config, "27b", strict);
}

std::string last_component(std::string name) {
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  return name.substr(name.rfind('.') + 1);
}

std::int64_t columns_of(std::vector<std::int64_t> const& shape) {
  std::int64_t columns = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
  return columns;
}

/// How many of the ranges hold each index of [0, count).
std::vector<int> cover(std::vector<index_range> const& ranges, std::int64_t count) {
  std::vector<int> holders(static_cast<std::size_t>(count), 0);
  for (index_range const& range : ranges) {
    EXPECT_GE(range.first, 0);
    EXPECT_LE(range.first + range.count, count);
    for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
      ++holders.at(static_cast<std::size_t>(i));
    }
  }
  return holders;
}

TEST(shard_plan, every_tensor_of_the_27b_is_held_once_or_whole_by_rule) {
  std::set<std::string> const replicated = {"embed_tokens",
                                            "input_layernorm",
                                            "post_attention_layernorm",
                                            "norm",
                                            "q_norm",
                                            "k_norm",
                                            "fc",
                                            "pre_fc_norm_embedding",
                                            "pre_fc_norm_hidden"};
  model_config const config = config_27b();
  for (int size : {1, 2, 4}) {
    shard_plan const plan(config, size);
    for (auto const& entry : checkpoint::list_model(config, "model.language_model.")) {
      SCOPED_TRACE(entry.name + " over " + std::to_string(size));
      std::int64_t const n = entry.shape.front();
      std::int64_t const k = columns_of(entry.shape);
      std::vector<index_range> rows;
      std::vector<index_range> columns;
      for (int rank = 0; rank < size; ++rank) {
        tensor_slice const slice = plan.slice(rank, entry.name, entry.shape);
        rows.insert(rows.end(), slice.rows.begin(), slice.rows.end());
        columns.push_back(slice.columns);
        EXPECT_EQ(slice.row_count() * slice.columns.count,
                  replicated.contains(last_component(entry.name)) ? n * k : n * k / size);
      }
      int const holders_of_row = cover(rows, n).front();
      int const holders_of_column = cover(columns, k).front();
      EXPECT_EQ(cover(rows, n), std::vector<int>(static_cast<std::size_t>(n), holders_of_row));
      EXPECT_EQ(cover(columns, k),
                std::vector<int>(static_cast<std::size_t>(k), holders_of_column));
      if (replicated.contains(last_component(entry.name))) {
        EXPECT_EQ(holders_of_row, size);
        EXPECT_EQ(holders_of_column, size);
      } else {
        // Cut one way: the rows lie on one rank each and have all columns, or the other way round.
        EXPECT_EQ(holders_of_row * holders_of_column, size);
        EXPECT_TRUE(holders_of_row == 1 || holders_of_column == 1);
      }
    }
  }
}

TEST(shard_plan, the_27b_over_4_ranks_is_the_published_table) {
  shard_plan const plan(config_27b(), 4);
  std::string const gdn = "model.language_model.layers.0.linear_attn.";
  std::string const full = "model.language_model.layers.3.self_attn.";
  std::string const mlp = "model.language_model.layers.3.mlp.";
  for (std::int64_t r = 0; r < 4; ++r) {
    int const rank = static_cast<int>(r);
    SCOPED_TRACE(rank);
    auto const rows = [&](std::string const& name, std::int64_t n, std::int64_t k) {
      return plan.slice(rank, name, {n, k});
    };
    EXPECT_EQ(rows(full + "q_proj", 12288, 5120), (tensor_slice{{{3072 * r, 3072}}, {0, 5120}}));
    for (char const* const name : {"k_proj", "v_proj"}) {
      EXPECT_EQ(rows(full + name, 1024, 5120), (tensor_slice{{{256 * r, 256}}, {0, 5120}}));
    }
    EXPECT_EQ(rows(full + "o_proj", 5120, 6144), (tensor_slice{{{0, 5120}}, {1536 * r, 1536}}));
    std::vector<index_range> const qkv = {
        {512 * r, 512}, {2048 + 512 * r, 512}, {4096 + 1536 * r, 1536}};
    EXPECT_EQ(rows(gdn + "in_proj_qkv", 10240, 5120), (tensor_slice{qkv, {0, 5120}}));
    EXPECT_EQ(plan.slice(rank, gdn + "conv1d.weight", {10240, 1, 4}), (tensor_slice{qkv, {0, 4}}));
    EXPECT_EQ(rows(gdn + "in_proj_z", 6144, 5120), (tensor_slice{{{1536 * r, 1536}}, {0, 5120}}));
    for (char const* const name : {"in_proj_b", "in_proj_a"}) {
      EXPECT_EQ(rows(gdn + name, 48, 5120), (tensor_slice{{{12 * r, 12}}, {0, 5120}}));
    }
    for (char const* const name : {"A_log", "dt_bias"}) {
      EXPECT_EQ(plan.slice(rank, gdn + name, {48}), (tensor_slice{{{12 * r, 12}}, {0, 1}}));
    }
    EXPECT_EQ(plan.slice(rank, gdn + "norm.weight", {128}), (tensor_slice{{{0, 128}}, {0, 1}}));
    EXPECT_EQ(rows(gdn + "out_proj", 5120, 6144), (tensor_slice{{{0, 5120}}, {1536 * r, 1536}}));
    for (char const* const name : {"gate_proj", "up_proj"}) {
      EXPECT_EQ(rows(mlp + name, 17408, 5120), (tensor_slice{{{4352 * r, 4352}}, {0, 5120}}));
    }
    EXPECT_EQ(rows(mlp + "down_proj", 5120, 17408), (tensor_slice{{{0, 5120}}, {4352 * r, 4352}}));
    EXPECT_EQ(rows("mtp.layers.0.mlp.down_proj", 5120, 17408),
              (tensor_slice{{{0, 5120}}, {4352 * r, 4352}}));
    EXPECT_EQ(rows("lm_head", 248320, 5120), (tensor_slice{{{62080 * r, 62080}}, {0, 5120}}));
    EXPECT_EQ(plan.vocabulary(rank), (index_range{62080 * r, 62080}));
    EXPECT_EQ(rows("mtp.fc", 5120, 10240), (tensor_slice{{{0, 5120}}, {0, 10240}}));
  }
}

TEST(shard_plan, a_rank_of_the_27b_runs_a_model_of_its_share_of_heads) {
  for (std::int64_t size : {1, 2, 4}) {
    shard_plan const plan(config_27b(), static_cast<int>(size));
    model_config const& c = plan.rank_shape();
    EXPECT_EQ(plan.size(), size);
    EXPECT_EQ(c.num_attention_heads, 24 / size);
    EXPECT_EQ(c.num_kv_heads, 4 / size);
    EXPECT_EQ(c.linear_num_key_heads, 16 / size);
    EXPECT_EQ(c.linear_num_value_heads, 48 / size);
    EXPECT_EQ(c.intermediate_size, 17408 / size);
    EXPECT_EQ(c.vocab_size, 248320 / size);
    EXPECT_EQ(c.hidden_size, 5120);
    EXPECT_EQ(c.head_dim, 256);
    EXPECT_EQ(c.num_hidden_layers, 64);
    EXPECT_EQ(c.linear_qkv_dim(), 10240 / size);
  }
}

TEST(shard_plan, one_rank_holds_every_tensor_whole_and_in_one_piece) {
  model_config const config = config_27b();
  shard_plan const plan(config, 1);
  for (auto const& entry : checkpoint::list_model(config, "model.")) {
    EXPECT_EQ(plan.slice(0, entry.name, entry.shape),
              (tensor_slice{{{0, entry.shape.front()}}, {0, columns_of(entry.shape)}}))
        << entry.name;
  }
}

TEST(shard_plan, odd_shapes_split_where_every_extent_does) {
  model_config config = config_27b();
  config.num_kv_heads = 3;
  config.num_attention_heads = 9;
  config.head_dim = 16;
  config.linear_num_key_heads = 3;
  config.linear_num_value_heads = 15;
  config.linear_key_head_dim = 7;
  config.linear_value_head_dim = 48;
  config.intermediate_size = 48;
  config.vocab_size = 33;
  shard_plan const plan(config, 3);
  EXPECT_EQ(plan.slice(2, "in_proj_qkv", {762, 5}),
            (tensor_slice{{{14, 7}, {35, 7}, {42 + 480, 240}}, {0, 5}}));
  EXPECT_EQ(plan.slice(1, "down_proj", {5, 48}), (tensor_slice{{{0, 5}}, {16, 16}}));
  EXPECT_EQ(plan.vocabulary(2), (index_range{22, 11}));
}

TEST(shard_plan, what_does_not_split_is_refused_by_name) {
  auto const refusal = [](int size, auto change) {
    model_config config = config_27b();
    change(config);
    return error_of([&] { shard_plan(config, size); });
  };
  auto const same = [](model_config&) {};
  EXPECT_EQ(refusal(3, same),
            "4 kv heads do not split over 3 ranks: expected a number of ranks that divides them");
  EXPECT_EQ(refusal(8, same),
            "4 kv heads do not split over 8 ranks: expected a number of ranks that divides them");
  EXPECT_EQ(refusal(0, same), "0 ranks: expected at least one");
  EXPECT_EQ(refusal(-1, same), "-1 ranks: expected at least one");
  EXPECT_EQ(refusal(4, [](model_config& c) { c.linear_num_key_heads = 6; }),
            "6 GDN key heads do not split over 4 ranks: expected a number of ranks that divides "
            "them");
  EXPECT_EQ(refusal(4, [](model_config& c) { c.intermediate_size = 17410; }),
            "17410 MLP columns do not split over 4 ranks: expected a number of ranks that divides "
            "them");
  EXPECT_EQ(refusal(4, [](model_config& c) { c.vocab_size = 248321; }),
            "248321 vocabulary rows do not split over 4 ranks: expected a number of ranks that "
            "divides them");
  EXPECT_EQ(refusal(4, [](model_config& c) { c.intermediate_size = 96; }),
            "the 96 columns of down_proj do not split over 4 ranks at borders of the NVFP4 group: "
            "expected a multiple of 16 on each");
  EXPECT_EQ(refusal(1, [](model_config& c) { c.intermediate_size = 97; }), "");
  EXPECT_EQ(refusal(2, same), "");
  EXPECT_EQ(refusal(4, same), "");
}

TEST(shard_plan, a_tensor_without_a_rule_is_an_error_never_replicated_in_silence) {
  shard_plan const plan(config_27b(), 2);
  EXPECT_EQ(error_of([&] {
              (void)plan.slice(0, "model.layers.0.mlp.new_proj", {4, 4});
            }),
            "tensor model.layers.0.mlp.new_proj: no rule says how it is split over ranks");
}

}  // namespace
}  // namespace qwen38::parallel
