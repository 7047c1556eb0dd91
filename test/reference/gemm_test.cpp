// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <qpn/reference/dequant.hpp>
#include <qpn/reference/gemm.hpp>
#include <vector>

#include "support/published_weight.hpp"
#include "support/random.hpp"

namespace {

using qpn::dtype;
using qpn::format_id;
using qpn::scale_mode;
using qpn::test::published_weight;
using qpn::test::random_source;

}  // namespace

TEST(reference_gemm, a_hand_computed_nvfp4_product) {
  random_source random(1);
  published_weight weight({format_id::nvfp4, scale_mode::tensor, dtype::f16}, {1}, 16, random);
  qpn::test::published_part& part = weight.parts().front();
  part.codes = {0x21, 0xf7, 0, 0, 0, 0, 0, 0xa0};  // 0.5 1 6 -6 0 ... 0 -1
  part.block_scales = {0xc0};                      // -2
  part.global_scale = 0.25f;
  std::vector<double> x(16, 0.0);
  x[0] = 1.0;
  x[1] = 10.0;
  x[2] = 100.0;
  x[3] = 1000.0;
  x[15] = 10000.0;
  double y = 0.0;
  std::vector<qpn::weight_part> const parts = weight.views();
  qpn::reference::gemm(weight.layout(), parts.data(), 1, x.data(), 1, &y);
  EXPECT_EQ(y, -0.5 * (0.5 + 10.0 + 600.0 - 6000.0 - 10000.0));
}

TEST(reference_gemm, a_hand_computed_fp8_product_with_channel_scales) {
  random_source random(1);
  published_weight weight({format_id::fp8, scale_mode::channel, dtype::f16}, {2}, 2, random);
  qpn::test::published_part& part = weight.parts().front();
  part.codes = {0x38, 0xb8, 0x7e, 0x01};  // 1 -1 / 448 2^-9
  part.channel_scales = {2.0f, 0.5f};
  std::vector<double> const x = {3.0, 5.0, 1.0, 512.0};
  std::vector<double> y(4);
  std::vector<qpn::weight_part> const parts = weight.views();
  qpn::reference::gemm(weight.layout(), parts.data(), 1, x.data(), 2, y.data());
  std::vector<double> const expected = {-4.0, 0.5 * (1344.0 + 5.0 / 512.0), -1022.0, 0.5 * 449.0};
  EXPECT_EQ(y, expected);
}

TEST(reference_gemm, a_hand_computed_fp8_product_with_block_scales) {
  random_source random(2);
  published_weight weight({format_id::fp8, scale_mode::block, dtype::f16}, {129}, 129, random);
  qpn::test::published_part& part = weight.parts().front();
  std::fill(part.codes.begin(), part.codes.end(), std::uint8_t{0x38});  // 1
  part.scale_blocks = {2.0f, 0.5f, -1.0f, 4.0f};
  std::vector<double> x(129, 1.0);
  x.back() = 8.0;
  std::vector<double> y(129);
  std::vector<qpn::weight_part> const parts = weight.views();
  qpn::reference::gemm(weight.layout(), parts.data(), 1, x.data(), 1, y.data());
  for (std::size_t row = 0; row < 128; ++row) EXPECT_EQ(y[row], 128 * 2.0 + 8 * 0.5);
  EXPECT_EQ(y[128], 128 * -1.0 + 8 * 4.0);
}

TEST(reference_gemm, published_and_packed_weights_give_the_same_numbers) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    random_source random(seed);
    for (qpn::test::weight_kind const kind : qpn::test::all_weight_kinds) {
      std::int64_t const k =
          kind.format == format_id::nvfp4 ? 16 * random.integer(1, 6) : random.integer(1, 290);
      published_weight weight(kind, {32, random.integer(1, 200)}, k, random);
      qpn::packed_weight const packed = weight.pack();
      std::vector<qpn::weight_part> const parts = weight.views();
      std::int64_t const n = weight.layout().n;
      std::vector<double> published_w(static_cast<std::size_t>(n * k));
      std::vector<double> packed_w(published_w.size());
      qpn::reference::dequant(weight.layout(), parts.data(), parts.size(), published_w.data());
      qpn::reference::dequant(packed, packed_w.data());
      ASSERT_EQ(published_w, packed_w) << kind << ", seed " << seed;

      constexpr std::int64_t m = 3;
      std::vector<double> x;
      for (float const value : random.normals(m * k)) x.push_back(static_cast<double>(value));
      std::vector<double> published_y(static_cast<std::size_t>(m * n));
      std::vector<double> packed_y(published_y.size());
      qpn::reference::gemm(weight.layout(), parts.data(), parts.size(), x.data(), m,
                           published_y.data());
      qpn::reference::gemm(packed, x.data(), m, packed_y.data());
      ASSERT_EQ(published_y, packed_y) << kind << ", seed " << seed;
    }
  }
}
