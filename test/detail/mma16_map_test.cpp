// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <qpn/detail/mma16_map.hpp>
#include <qpn/detail/tile_map.hpp>
#include <qpn/prepack.hpp>
#include <qpn/reference/dequant.hpp>
#include <vector>

#include "support/devices.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "support/weight_pieces.hpp"

namespace qpn::test {
namespace {

using namespace qpn::detail;

TEST(mma16_map, strips_deal_the_rows_of_a_group_out_in_halves_of_both_tiles) {
  EXPECT_EQ(mma16_strip(0), 0);
  EXPECT_EQ(mma16_strip(15), 0);
  EXPECT_EQ(mma16_strip(16), 1);
  EXPECT_EQ(mma16_strip(32), 0);
  EXPECT_EQ(mma16_strip(63), 1);
  EXPECT_EQ(mma16_strip(64), 2);
  for (int row = 0; row < 256; ++row) {
    std::int64_t const strip = mma16_strip(row);
    EXPECT_EQ(strip / 2 * 64 + mma16_column(strip, mma16_half(row), row % 16), row);
  }
}

TEST(mma16_map, accumulators_cover_16_weight_rows_by_8_rows_of_x_once) {
  std::vector<int> seen(128);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      ++seen[static_cast<std::size_t>(mma16_weight_row(lane, i) * 8 + mma16_x_row(lane, i))];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(128, 1));
}

template <class Format>
void expect_every_byte_once() {
  using record = mma16_record<Format>;
  std::vector<int> seen(record::bytes);
  for (int half = 0; half < 2; ++half) {
    for (int row = 0; row < 16; ++row) {
      for (int word = 0; word < record::words; ++word) {
        for (int i = 0; i < 4; ++i) {
          ++seen[static_cast<std::size_t>(record::word_offset(half, row, word) + i)];
        }
      }
      for (int group = 0; group < (Format::group_k == 0 ? 0 : 4); ++group) {
        ++seen[static_cast<std::size_t>(record::scale_offset(half, row, group))];
      }
    }
  }
  EXPECT_EQ(seen, std::vector<int>(record::bytes, 1));
}

TEST(mma16_map, words_and_scales_cover_every_byte_of_a_record_once) {
  expect_every_byte_once<nvfp4>();
  expect_every_byte_once<fp8>();
  expect_every_byte_once<dense16>();
  // Lane 4 * 3 + 1, row 11: the second word of its quarter of k, in half 1.
  EXPECT_EQ(mma16_record<nvfp4>::word_offset(1, 11, 3), 512 + 13 * 16 + 4 * (1 + 2));
  EXPECT_EQ(mma16_record<nvfp4>::scale_offset(1, 11, 1), 1024 + 4 * 13 + 2 + 1);
}

TEST(mma16_map, records_of_a_strip_lie_side_by_side) {
  packed_layout layout;
  ASSERT_TRUE(make_packed_layout(format_id::nvfp4, scale_mode::tensor, 192, 160, dtype::f16,
                                 hopper_h200(), layout)
                  .ok());
  std::int64_t const size = 1152;
  EXPECT_EQ(record_offset<nvfp4>(layout, 0, 0), 0);
  EXPECT_EQ(record_offset<nvfp4>(layout, 32, 2), 2 * size);
  EXPECT_EQ(record_offset<nvfp4>(layout, 16, 0), 3 * size);
  EXPECT_EQ(record_offset<nvfp4>(layout, 80, 1), (3 * 3 + 1) * size);
  EXPECT_EQ(record_offset<nvfp4>(layout, 191, 2), (5 * 3 + 2) * size);
  EXPECT_EQ(layout.scales_offset, 6 * 3 * size);
  EXPECT_EQ(mma16_record<nvfp4>::batch_k, 128);
  EXPECT_EQ(mma16_record<fp8>::batch_k, 128);
  EXPECT_EQ(mma16_record<dense16>::batch_k, 64);
}

/// A part as unpack returns it.
published_part canonical(published_part part) {
  for (std::size_t group = 0; group < part.block_scales.size(); ++group) {
    if (part.block_scales[group] < 0x80) continue;
    part.block_scales[group] &= 0x7f;
    for (std::size_t i = 0; i < 8; ++i) part.codes[8 * group + i] ^= 0x88;
  }
  return part;
}

TEST(prepack_mma16, unpack_returns_every_byte_and_the_reference_every_value) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      SCOPED_TRACE(testing::Message() << kind << ", seed " << seed);
      published_weight weight(kind, random_part_rows(kind.scale, random, 300),
                              random_reduction_length(kind.format, random), random);
      packed_layout const layout = layout_for_device(weight, hopper_h200());
      std::vector<std::byte> bytes(static_cast<std::size_t>(layout.total_bytes), std::byte{0xcd});
      std::vector<weight_part> const parts = weight.views();
      status const packed = prepack(layout, parts.data(), parts.size(), bytes.data());
      ASSERT_TRUE(packed.ok()) << packed.what;

      std::vector<double> expected(static_cast<std::size_t>(layout.n * layout.k));
      std::vector<double> found(expected.size());
      reference::dequant(layout, parts.data(), parts.size(), expected.data());
      reference::dequant({layout, bytes.data()}, found.data());
      EXPECT_EQ(found, expected);

      std::deque<published_part> out = blank_parts(weight.parts(), 7.0F);
      std::vector<unpacked_part> const views = unpacked_views(out);
      ASSERT_TRUE(unpack({layout, bytes.data()}, views.data(), views.size()).ok());
      std::deque<published_part> original;
      for (published_part const& part : weight.parts()) original.push_back(canonical(part));
      expect_same_parts(out, original, kind.scale == scale_mode::tensor);
    }
  }
}

}  // namespace
}  // namespace qpn::test
