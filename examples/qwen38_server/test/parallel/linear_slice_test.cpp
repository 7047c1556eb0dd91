// SPDX-License-Identifier: Apache-2.0
#include "parallel/linear_slice.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <qpn/packed_weight.hpp>
#include <qpn/reference/dequant.hpp>

#include "checkpoint_fixture.hpp"

namespace qwen38::parallel {
namespace {

using checkpoint::storage_dtype;
using checkpoint::test::checkpoint_fixture;

constexpr std::int64_t n = 320;
constexpr std::int64_t k = 384;

/// FP8 [320, 384] whose 3 x 3 blocks have scales of their own.
checkpoint_fixture block_linear() {
  checkpoint_fixture f;
  f.add("m.weight", storage_dtype::f8_e4m3, {n, k});
  auto& codes = f.tensors.at("m.weight").bytes;
  for (std::int64_t i = 0; i < n * k; ++i) {
    codes.push_back(static_cast<std::byte>(1 + (i * 7 + i / 251) % 126));
  }
  f.add("m.weight_scale_inv", storage_dtype::f32, {3, 3});
  auto& grid = f.tensors.at("m.weight_scale_inv").bytes;
  for (int i = 0; i < 9; ++i) {
    float const scale = 0.5F + 0.125F * static_cast<float>(i);
    auto const* const bytes = reinterpret_cast<std::byte const*>(&scale);
    grid.insert(grid.end(), bytes, bytes + sizeof scale);
  }
  return f;
}

TEST(linear_slice, rows_and_columns_keep_the_scales_of_their_blocks) {
  checkpoint::test::temp_directory const dir;
  block_linear().write(dir.path());
  checkpoint::repository files(dir.path());
  checkpoint::linear_view const linear = checkpoint::find_linear(files, "m", n, k);
  std::vector<float> const whole = checkpoint::test::held_values(linear);
  for (std::int64_t first : {0, 32, 64, 128, 224, 288}) {
    for (index_range const columns : {index_range{0, k}, {128, 128}, {256, 128}, {128, 256}}) {
      tensor_slice const wanted{{{first, n - first}, {0, 32}}, columns};
      linear_slice const slice = slice_linear(linear, wanted);
      ASSERT_EQ(slice.k, columns.count);
      qpn::packed_layout layout;
      ASSERT_TRUE(qpn::make_packed_layout(qpn::format_id::fp8, qpn::scale_mode::block,
                                          wanted.row_count(), slice.k, qpn::dtype::f16, layout)
                      .ok());
      std::vector<double> values(static_cast<std::size_t>(wanted.row_count() * slice.k));
      qpn::reference::dequant(layout, slice.parts.data(), slice.parts.size(), values.data());
      std::size_t at = 0;
      for (index_range const& rows : wanted.rows) {
        for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) {
          for (std::int64_t c = columns.first; c < columns.first + columns.count; ++c, ++at) {
            ASSERT_EQ(static_cast<float>(values[at]), whole[static_cast<std::size_t>(r * k + c)])
                << "first row " << first << ", row " << r << ", column " << c;
          }
        }
      }
    }
  }
}

TEST(linear_slice, columns_that_begin_inside_a_block_of_scales_are_refused) {
  checkpoint::test::temp_directory const dir;
  block_linear().write(dir.path());
  checkpoint::repository files(dir.path());
  checkpoint::linear_view const linear = checkpoint::find_linear(files, "m", n, k);
  EXPECT_EQ(checkpoint::test::error_of([&] {
              (void)slice_linear(linear, {{{0, n}}, {96, 288}});
            }),
            "linear m: a rank's columns begin at 96, inside a 128x128 block of FP8 scales: a "
            "multiple of 128 is expected");
}

}  // namespace
}  // namespace qwen38::parallel
