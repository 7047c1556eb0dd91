// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <qpn/packed_weight.hpp>

#include "support/devices.hpp"

namespace qpn::test {

/// The layout of a weight on an H200.
[[nodiscard]] inline packed_layout hopper_layout(format_id format, scale_mode scale, std::int64_t n,
                                                 std::int64_t k) {
  packed_layout layout;
  status const made = make_packed_layout(format, scale, n, k, dtype::f16, hopper_h200(), layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

}  // namespace qpn::test
