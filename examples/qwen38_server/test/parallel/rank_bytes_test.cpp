// SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_bytes.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "checkpoint/inspect.hpp"
#include "checkpoint_fixture.hpp"

namespace qwen38::parallel {
namespace {

using checkpoint::group_bytes;
using checkpoint::weight_group;

std::vector<group_bytes> cut(checkpoint::test::checkpoint_fixture const& fixture, int size) {
  checkpoint::test::temp_directory const dir;
  fixture.write_headers_only(dir.path());
  auto const seen = checkpoint::inspect_checkpoint(dir.path(), checkpoint::open_mode::headers_only);
  shard_plan const plan(seen.config.value(), size);
  std::vector<group_bytes> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(bytes_of_rank(seen.weights.value(), *seen.config, plan, rank));
  }
  return ranks;
}

std::uint64_t of(group_bytes const& bytes, weight_group group) {
  return bytes[static_cast<std::size_t>(group)];
}

double gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
}

TEST(rank_bytes, the_27b_over_1_2_and_4_ranks_is_the_published_table) {
  for (std::uint64_t size : {1U, 2U, 4U}) {
    auto const ranks = cut(checkpoint::test::make_27b(), static_cast<int>(size));
    ASSERT_EQ(ranks.size(), size);
    for (group_bytes const& rank : ranks) {
      EXPECT_EQ(of(rank, weight_group::mlp), 9'625'927'680 / size);
      EXPECT_EQ(of(rank, weight_group::head), 715'161'600 / size);
      EXPECT_EQ(of(rank, weight_group::attention), 1'677'721'600 / size);
      EXPECT_EQ(of(rank, weight_group::gdn), 5'536'481'280 / size);
      EXPECT_EQ(of(rank, weight_group::gdn_gates), 47'185'920 / size);
      EXPECT_EQ(of(rank, weight_group::embedding), 2'542'796'800U);
      // 16-bit: conv 10240 x 4, A_log and dt_bias of 48 are cut; 2 x 64 + 1 norms of 5120, 48 of
      // 128 and 2 x 16 of 256 are not.
      std::uint64_t const cut_small = 2U * 48 * (10240 * 4 + 2 * 48);
      std::uint64_t const whole_small = 2U * (129 * 5120 + 48 * 128 + 32 * 256);
      EXPECT_EQ(of(rank, weight_group::small), cut_small / size + whole_small);
      // fc and 5 + 2 norms are whole.
      std::uint64_t const whole_mtp = 2U * (5120 * 10240 + 5 * 5120 + 2 * 256);
      EXPECT_EQ(of(rank, weight_group::mtp), (849'398'784 - whole_mtp) / size + whole_mtp);
      EXPECT_EQ(of(rank, weight_group::vision), 0U);
    }
  }
}

TEST(rank_bytes, the_27b_over_4_ranks_in_gib) {
  group_bytes const rank = cut(checkpoint::test::make_27b(), 4).front();
  EXPECT_NEAR(gib(of(rank, weight_group::mlp)), 2.241, 5e-4);
  EXPECT_NEAR(gib(of(rank, weight_group::head)), 0.1665, 5e-5);
  EXPECT_NEAR(gib(of(rank, weight_group::attention)), 0.391, 5e-4);
  EXPECT_NEAR(gib(of(rank, weight_group::gdn)), 1.289, 5e-4);
  EXPECT_NEAR(gib(of(rank, weight_group::gdn_gates)), 0.011, 5e-4);
  EXPECT_NEAR(gib(of(rank, weight_group::embedding)), 2.368, 5e-4);
  EXPECT_NEAR(gib(of(rank, weight_group::small)), 0.002, 5e-4);
  // The table cuts fc too (0.198); three quarters of its 0.0977 are what replication adds.
  EXPECT_NEAR(gib(of(rank, weight_group::mtp)), 0.198 + 0.75 * 0.0977, 5e-4);
  std::uint64_t const all = std::accumulate(rank.begin(), rank.end(), std::uint64_t{0});
  EXPECT_NEAR(gib(all), 6.67 + 0.75 * 0.0977, 5e-3);
}

TEST(rank_bytes, scales_by_channel_go_with_their_rows_and_blocks_count_where_they_are_touched) {
  // 2 ranks: kv heads, GDN key heads and MLP of the small model split.
  for (auto const& fixture :
       {checkpoint::test::make_small_compressed(), checkpoint::test::make_small_blocks()}) {
    auto const whole = cut(fixture, 1);
    auto const halves = cut(fixture, 2);
    bool const has_blocks =
        fixture.tensors.contains("model.language_model.layers.3.self_attn.q_proj.weight_scale_inv");
    // q [256, 64], k and v [64, 64], o [64, 128] in two layers. Only q has more than one 128x128
    // block, of fp32 scales; channel scales are BF16.
    std::uint64_t const codes = 256 * 64 + 2 * 64 * 64 + 64 * 128;
    std::uint64_t const scales = has_blocks ? 2 * 4 : 2 * (256 + 2 * 64 + 64);
    std::uint64_t const cut_scales = has_blocks ? 4 : 2 * (128 + 2 * 32 + 64);
    EXPECT_EQ(of(whole[0], weight_group::attention), 2 * (codes + scales));
    EXPECT_EQ(of(halves[0], weight_group::attention), 2 * (codes / 2 + cut_scales));
    // in_proj_qkv [256, 64], z [128, 64] and out [64, 128] in six layers. A rank's q, k and v lie
    // in both of in_proj_qkv's blocks, of which its q and k share one.
    std::uint64_t const gdn_codes = 256 * 64 + 128 * 64 + 64 * 128;
    std::uint64_t const gdn_scales = has_blocks ? 2 * 4 : 2 * (256 + 128 + 64);
    std::uint64_t const cut_gdn_scales = has_blocks ? 2 * 4 : 2 * (128 + 64 + 64);
    EXPECT_EQ(of(whole[0], weight_group::gdn), 6 * (gdn_codes + gdn_scales));
    EXPECT_EQ(of(halves[0], weight_group::gdn), 6 * (gdn_codes / 2 + cut_gdn_scales));
    EXPECT_EQ(halves[0], halves[1]);
  }
}

}  // namespace
}  // namespace qwen38::parallel
