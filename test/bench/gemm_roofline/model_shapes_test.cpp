// SPDX-License-Identifier: Apache-2.0
#include "support/model_shapes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <qpn/packed_weight.hpp>
#include <set>
#include <stdexcept>
#include <string>

namespace {

using namespace qpn;
using namespace qpn::bench;

/// Names, sizes and megabytes (10^6 bytes) as they stand in the table of measured ceilings.
struct expected_shape {
  char const* name;
  format_id format;
  std::int64_t n;
  std::int64_t k;
  double megabytes;
};

constexpr expected_shape expected[] = {
    {"tp1.gate_up", format_id::nvfp4, 34816, 5120, 100.3},
    {"tp1.down", format_id::nvfp4, 5120, 17408, 50.1},
    {"tp1.lm_head", format_id::nvfp4, 248320, 5120, 715.2},
    {"tp1.gdn_in", format_id::fp8, 16384, 5120, 83.9},
    {"tp1.gdn_out", format_id::fp8, 5120, 6144, 31.5},
    {"tp1.attn_qkv", format_id::fp8, 14336, 5120, 73.4},
    {"tp1.attn_o", format_id::fp8, 5120, 6144, 31.5},
    {"tp4.gate_up", format_id::nvfp4, 8704, 5120, 25.1},
    {"tp4.down", format_id::nvfp4, 5120, 4352, 12.5},
    {"tp4.lm_head", format_id::nvfp4, 62080, 5120, 178.8},
    {"tp4.gdn_in", format_id::fp8, 4096, 5120, 21.0},
    {"tp4.gdn_out", format_id::fp8, 5120, 1536, 7.9},
    {"tp4.attn_qkv", format_id::fp8, 3584, 5120, 18.4},
    {"tp4.attn_o", format_id::fp8, 5120, 1536, 7.9},
};

TEST(model_shapes, are_those_of_the_model_with_their_bytes) {
  EXPECT_EQ(model_shapes().size(), std::size(expected));
  for (expected_shape const& of : expected) {
    model_shape const& shape = shape_named(of.name);
    EXPECT_EQ(shape.format, of.format) << of.name;
    EXPECT_EQ(shape.n, of.n) << of.name;
    EXPECT_EQ(shape.k, of.k) << of.name;
    EXPECT_EQ(shape.tp, of.name[2] - '0') << of.name;
    EXPECT_NEAR(static_cast<double>(published_bytes(shape)) * 1e-6, of.megabytes, 0.0501)
        << of.name;
  }
}

TEST(model_shapes, have_names_of_their_own) {
  std::set<std::string_view> names;
  for (model_shape const& shape : model_shapes()) names.insert(shape.name);
  EXPECT_EQ(names.size(), model_shapes().size());
}

// The time of reading the packed weight stands for that of the published one.
TEST(model_shapes, take_no_more_bytes_packed_than_published) {
  device_info device;
  device.compute_capability = 90;
  device.sm_count = 132;
  for (model_shape const& shape : model_shapes()) {
    packed_layout layout;
    ASSERT_TRUE(make_packed_layout(shape.format, scale_mode::tensor, shape.n, shape.k, dtype::f16,
                                   device, layout)
                    .ok())
        << shape.name;
    auto const bytes = static_cast<double>(published_bytes(shape));
    EXPECT_NEAR(static_cast<double>(layout.total_bytes), bytes, 0.001 * bytes) << shape.name;
  }
}

TEST(model_shapes, unknown_names_are_refused_with_the_known_ones) {
  try {
    static_cast<void>(shape_named("tp2.down"));
    FAIL() << "tp2.down was found";
  } catch (std::invalid_argument const& error) {
    EXPECT_NE(std::string(error.what()).find("tp2.down"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("tp4.attn_o"), std::string::npos);
  }
}

}  // namespace
