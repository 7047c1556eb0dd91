// SPDX-License-Identifier: Apache-2.0
// What the model announces to a device that may fetch weights ahead of their products.

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

}  // namespace
}  // namespace qwen38::test
