// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "ops/cuda/gpu_device.hpp"
#include "support/error.hpp"

namespace qwen38::test {
namespace {

TEST(idle_gpu, is_refused_while_2_gib_are_held) {
  auto const gpu = ops::cuda::open_gpu(0);
  ops::cuda::require_idle(0);
  void* const held = gpu->allocate(std::size_t{2} << 30, "a test");
  try {
    ops::cuda::require_idle(0);
    ADD_FAILURE() << "a busy GPU was taken for an idle one";
  } catch (error const& refused) {
    EXPECT_EQ(refused.kind(), error_kind::unavailable);
    EXPECT_NE(std::string(refused.what()).find("in use already: expected an idle GPU"),
              std::string::npos)
        << refused.what();
  }
  gpu->release(held);
  EXPECT_THROW(ops::cuda::require_idle(1000), error);
}

}  // namespace
}  // namespace qwen38::test
