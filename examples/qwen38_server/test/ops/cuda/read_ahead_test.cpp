// SPDX-License-Identifier: Apache-2.0
// What the model announces to a device that may fetch weights ahead of their products, and which
// launches may read before those before them have ended.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cuda/cuda_backend.hpp"
#include "test/model/tiny_model.hpp"
#include "test/ops/cuda/naming_device.hpp"

namespace qwen38::test {
namespace {

constexpr char const* tiny = "../model/golden/tiny";
model::qwen38_options const tiny_options{.valid_ids = tiny_valid_ids, .max_context = 512};

struct announced_pass {
  std::vector<naming_device::announced_range> ranges;
  std::int64_t layers = 0;
};

/// What a forward pass of so many rows announces.
announced_pass run_pass(int rows) {
  auto device = std::make_shared<naming_device>();
  auto const lm = open_model_on(ops::cuda::make_backend(device), tiny, tiny_options);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
  std::iota(ids.begin(), ids.end(), 1);
  lm->begin(0, lane_pages(*lm, 0));
  static_cast<void>(device->take_announced());
  model::sequence_rows const batch{0, 0, ids, false, rows - 1};
  lm->forward({&batch, 1});
  return {device->take_announced(), checkpoint::load_model_config(tiny).num_hidden_layers};
}

TEST(read_ahead, comes_before_a_kernel_and_is_what_one_of_the_next_two_products_reads) {
  for (int const rows : {1, 16}) {
    announced_pass const pass = run_pass(rows);
    // Behind each mixer its projection, behind the two norms of a layer the product that follows.
    ASSERT_EQ(std::ssize(pass.ranges), 3 * pass.layers) << rows << " rows";
    for (std::size_t i = 0; i < pass.ranges.size(); ++i) {
      auto const& one = pass.ranges[i];
      EXPECT_FALSE(one.product.empty()) << rows << " rows, range " << i;
      EXPECT_GE(one.kernels, 1) << rows << " rows, range " << i;
      EXPECT_LE(one.products, 2) << rows << " rows, range " << i;
      EXPECT_GT(one.range.bytes, 0U) << rows << " rows, range " << i;
      EXPECT_EQ(one.range.bytes % 16, 0U) << rows << " rows, range " << i;
    }
  }
}

TEST(read_ahead, is_not_for_passes_that_compute_for_longer_than_they_read) {
  EXPECT_TRUE(run_pass(17).ranges.empty());
}

TEST(early_reads, are_of_the_state_in_every_layer_of_a_short_pass) {
  auto device = std::make_shared<naming_device>();
  auto const lm = open_model_on(ops::cuda::make_backend(device), tiny, tiny_options);
  std::vector<std::int32_t> const ids = {1, 2, 3};
  lm->begin(0, lane_pages(*lm, 0));
  static_cast<void>(device->take_launches());
  std::uint64_t const borders = device->borders();
  model::sequence_rows const batch{0, 0, ids, false, std::ssize(ids) - 1};
  lm->forward({&batch, 1});
  launch_counts const launches = device->take_launches();
  std::int64_t const gdn_layers = launches.at("gdn_short");
  EXPECT_EQ(device->early_states(), gdn_layers);
  // Each product is a border but b and a of GDN, which start beside another one.
  std::int64_t products = 0;
  for (auto const& [name, count] : launches) products += name.starts_with("gemm") ? count : 0;
  EXPECT_EQ(static_cast<std::int64_t>(device->borders() - borders), products - gdn_layers);
}

}  // namespace
}  // namespace qwen38::test
