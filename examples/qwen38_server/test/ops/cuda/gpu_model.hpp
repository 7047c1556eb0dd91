// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "test/model/golden.hpp"
#include "test/model/tiny_model.hpp"
#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {

/// Relative, per row: activations and the cache are fp16, the oracle's all fp32.
inline constexpr double gpu_tolerance = 5e-3;

[[nodiscard]] inline std::unique_ptr<model::qwen38_model> open_on_gpu(
    std::filesystem::path const& directory, model::qwen38_options const& options) {
  return open_model_on(ops::cuda::make_backend(open_test_device()), directory, options);
}

/// Largest of the rows' relative errors.
[[nodiscard]] inline double worst_row(std::span<float const> got, std::span<float const> wanted,
                                      std::size_t columns) {
  EXPECT_EQ(got.size(), wanted.size());
  double worst = 0;
  for (std::size_t row = 0; row + columns <= std::min(got.size(), wanted.size()); row += columns) {
    worst =
        std::max(worst, relative_error(got.subspan(row, columns), wanted.subspan(row, columns)));
  }
  return worst;
}

}  // namespace qwen38::test
