// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <qpn/prepack.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/devices.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"

namespace {

using qpn::dtype;
using qpn::format_id;
using qpn::packed_layout;
using qpn::packed_weight;
using qpn::scale_mode;
using qpn::status;
using qpn::status_code;
using qpn::test::all_weight_kinds;
using qpn::test::is_kept_by_tile;
using qpn::test::published_part;
using qpn::test::published_weight;
using qpn::test::random_source;
using qpn::test::weight_kind;

status pack_status(published_weight& weight) {
  std::vector<std::byte> out(static_cast<std::size_t>(weight.layout().total_bytes));
  std::vector<qpn::weight_part> const parts = weight.views();
  return qpn::prepack(weight.layout(), parts.data(), parts.size(), out.data());
}

/// Unpacks into new parts and compares every byte with what was packed.
void expect_round_trip(published_weight& weight) {
  packed_weight const packed = weight.pack();
  std::deque<published_part> out = qpn::test::blank_parts(weight.parts(), std::nanf(""));
  std::vector<qpn::unpacked_part> const views = qpn::test::unpacked_views(out);
  status const unpacked = qpn::unpack(packed, views.data(), views.size());
  ASSERT_TRUE(unpacked.ok()) << unpacked.what;
  qpn::test::expect_same_parts(out, weight.parts(), weight.layout().scale == scale_mode::tensor);
}

std::vector<std::int64_t> random_parts(scale_mode scale, random_source& random) {
  std::vector<std::int64_t> rows;
  for (std::int64_t count = random.integer(1, 4); count > 1; --count) {
    rows.push_back(is_kept_by_tile(scale) ? 32 * random.integer(1, 7) : random.integer(1, 70));
  }
  rows.push_back(random.integer(1, scale == scale_mode::block ? 300 : 70));
  return rows;
}

/// Some rows of a fused weight, and the place of the first.
struct weight_piece {
  published_part rows;
  std::int64_t first_row;
};

/// Rows [first, first + count) of a part, in buffers of their own.
published_part rows_of(published_part const& part, std::int64_t first, std::int64_t count) {
  auto const slice = [&](auto const& values) {
    auto const per_row = static_cast<std::ptrdiff_t>(values.size()) / part.n;
    auto const begin = values.begin() + first * per_row;
    return std::decay_t<decltype(values)>(begin, begin + count * per_row);
  };
  std::vector<float> blocks;
  if (!part.scale_blocks.empty()) {
    auto const per_line =
        static_cast<std::ptrdiff_t>(part.scale_blocks.size()) / ((part.n + 127) / 128);
    auto const begin = part.scale_blocks.begin() + first / 128 * per_line;
    blocks.assign(begin, begin + (count + 127) / 128 * per_line);
  }
  return {count,
          slice(part.codes),
          slice(part.block_scales),
          part.global_scale,
          slice(part.channel_scales),
          blocks};
}

/// The rows of a weight cut at random, shuffled.
std::vector<weight_piece> random_pieces(published_weight& weight, random_source& random) {
  std::int64_t const unit = weight.layout().scale == scale_mode::block    ? 128
                            : weight.layout().scale == scale_mode::tensor ? 32
                                                                          : 1;
  std::vector<weight_piece> pieces;
  std::int64_t row = 0;
  for (published_part const& part : weight.parts()) {
    for (std::int64_t first = 0; first < part.n;) {
      std::int64_t const count =
          std::min(part.n - first, unit * random.integer(1, 1 + part.n / unit / 2));
      pieces.push_back({rows_of(part, first, count), row + first});
      first += count;
    }
    row += part.n;
  }
  for (std::size_t i = pieces.size(); i > 1; --i) {
    std::swap(
        pieces[i - 1],
        pieces[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i) - 1))]);
  }
  return pieces;
}

/// A weight of one part, [3, 32], to plant bad values in.
published_weight small_weight(format_id format, scale_mode scale, dtype dense = dtype::f16) {
  random_source random(5);
  return published_weight({format, scale, dense}, {3}, 32, random);
}

void expect_refused(published_weight& weight, status_code code, std::int64_t row,
                    std::int64_t column) {
  status const packed = pack_status(weight);
  EXPECT_EQ(packed.code, code) << packed.what;
  EXPECT_EQ(packed.row, row);
  EXPECT_EQ(packed.column, column);
}

}  // namespace

TEST(prepack, unpack_returns_every_byte_of_ragged_fused_weights) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      SCOPED_TRACE(testing::Message() << kind << ", seed " << seed);
      std::int64_t const k =
          kind.format == format_id::nvfp4 ? 16 * random.integer(1, 12) : random.integer(1, 200);
      published_weight weight(kind, random_parts(kind.scale, random), k, random);
      expect_round_trip(weight);
    }
  }
}

TEST(prepack, unpack_returns_every_nvfp4_code_under_every_scale) {
  random_source random(2);
  published_weight weight({format_id::nvfp4, scale_mode::tensor, dtype::f16}, {256}, 128, random);
  published_part& part = weight.parts().front();
  for (std::size_t row = 0; row < 256; ++row) {
    // Row r has block scale r (NaN replaced) and all 256 pairs of codes between its neighbours and
    // itself.
    auto const scale = static_cast<std::uint8_t>(row % 128 == 127 ? row - 1 : row);
    for (std::size_t group = 0; group < 8; ++group) part.block_scales[row * 8 + group] = scale;
    for (std::size_t i = 0; i < 64; ++i)
      part.codes[row * 64 + i] = static_cast<std::uint8_t>(64 * row + i);
  }
  expect_round_trip(weight);
}

TEST(prepack, unpack_returns_every_finite_16_bit_code) {
  for (dtype const type : {dtype::f16, dtype::bf16}) {
    random_source random(3);
    published_weight weight({format_id::dense16, scale_mode::none, type}, {256}, 256, random);
    std::uint32_t const exponent = type == dtype::f16 ? 0x7c00 : 0x7f80;
    published_part& part = weight.parts().front();
    for (std::uint32_t code = 0; code <= 0xffff; ++code) {
      std::uint32_t const word = (code & exponent) == exponent ? code & ~exponent : code;
      part.codes[2 * code] = static_cast<std::uint8_t>(word);
      part.codes[2 * code + 1] = static_cast<std::uint8_t>(word >> 8);
    }
    expect_round_trip(weight);
  }
}

TEST(prepack, elements_lie_where_the_layout_says) {
  random_source random(4);
  published_weight nvfp4({format_id::nvfp4, scale_mode::channel, dtype::f16}, {70}, 48, random);
  packed_weight packed = nvfp4.pack();
  published_part const& part = nvfp4.parts().front();
  for (std::size_t row = 0; row < 70; ++row) {
    std::size_t const tile = row / 32;
    std::size_t const lane = row % 32;
    for (std::size_t pair = 0; pair < 24; ++pair) {
      ASSERT_EQ(std::to_integer<int>(packed.data[(tile * 24 + pair) * 32 + lane]),
                part.codes[row * 24 + pair]);
    }
    for (std::size_t group = 0; group < 3; ++group) {
      ASSERT_EQ(std::to_integer<int>(packed.data[96 * 24 + (tile * 3 + group) * 32 + lane]),
                part.block_scales[row * 3 + group]);
    }
    float scale = 0.0f;
    std::memcpy(&scale, packed.data + 96 * 24 + 320 + row * 4,
                sizeof scale);  // 96 * 3 scales round up to 320 bytes
    ASSERT_EQ(scale, part.channel_scales[row]);
  }
  published_weight dense({format_id::dense16, scale_mode::none, dtype::bf16}, {33}, 3, random);
  packed = dense.pack();
  for (std::size_t row = 0; row < 33; ++row) {
    for (std::size_t k = 0; k < 3; ++k) {
      std::size_t const at = ((row / 32 * 16 + k) * 32 + row % 32) * 2;
      ASSERT_EQ(std::to_integer<int>(packed.data[at]),
                dense.parts().front().codes[(row * 3 + k) * 2]);
      ASSERT_EQ(std::to_integer<int>(packed.data[at + 1]),
                dense.parts().front().codes[(row * 3 + k) * 2 + 1]);
    }
  }
}

TEST(prepack, padding_is_zero) {
  for (weight_kind const kind : all_weight_kinds) {
    random_source random(6);
    published_weight full(kind, {33}, 48, random);
    packed_weight const packed = full.pack();
    std::vector<std::byte> expected(packed.data, packed.data + packed.layout.total_bytes);
    // Packing zeros over the same rows must leave zeros everywhere: whatever remains was not
    // written by a row.
    published_part& part = full.parts().front();
    std::fill(part.codes.begin(), part.codes.end(), std::uint8_t{0});
    std::fill(part.block_scales.begin(), part.block_scales.end(), std::uint8_t{0});
    std::fill(part.channel_scales.begin(), part.channel_scales.end(), 0.0f);
    std::fill(part.scale_blocks.begin(), part.scale_blocks.end(), 0.0f);
    part.global_scale = 0.0f;
    packed_weight const zeros = full.pack();
    for (std::int64_t i = 0; i < zeros.layout.total_bytes; ++i) {
      ASSERT_EQ(std::to_integer<int>(zeros.data[i]), 0) << kind << ", byte " << i;
    }
  }
}

TEST(prepack, fused_parts_keep_their_own_tensor_scales) {
  random_source random(7);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {64, 32, 5}, 16,
                          random);
  weight.parts()[0].global_scale = 1.0f;
  weight.parts()[1].global_scale = -0.25f;
  weight.parts()[2].global_scale = 3.0f;
  packed_weight const packed = weight.pack();
  float scales[4];
  std::memcpy(scales, packed.data + packed.layout.scales_offset, sizeof scales);
  EXPECT_EQ(scales[0], 1.0f);
  EXPECT_EQ(scales[1], 1.0f);
  EXPECT_EQ(scales[2], -0.25f);
  EXPECT_EQ(scales[3], 3.0f);
}

TEST(prepack, a_channel_weight_takes_a_part_with_one_scale_for_all_rows) {
  random_source random(8);
  published_weight weight({format_id::fp8, scale_mode::channel, dtype::f16}, {5, 3}, 16, random);
  weight.parts()[0].channel_scales.clear();
  weight.parts()[0].global_scale = 0.5f;
  packed_weight const packed = weight.pack();
  float scales[8];
  std::memcpy(scales, packed.data + packed.layout.scales_offset, sizeof scales);
  for (int row = 0; row < 5; ++row) EXPECT_EQ(scales[row], 0.5f);
  for (std::size_t row = 0; row < 3; ++row)
    EXPECT_EQ(scales[5 + row], weight.parts()[1].channel_scales[row]);
}

TEST(prepack, block_scales_lie_by_tile_and_128_k) {
  random_source random(11);
  // 160 rows have two lines of blocks, 140 k two columns; the second part begins at tile 5.
  published_weight weight({format_id::fp8, scale_mode::block, dtype::f16}, {160, 33}, 140, random);
  packed_weight const packed = weight.pack();
  float scales[7][2];
  ASSERT_GE(packed.layout.total_bytes - packed.layout.scales_offset,
            static_cast<std::int64_t>(sizeof scales));
  std::memcpy(scales, packed.data + packed.layout.scales_offset, sizeof scales);
  for (std::size_t tile = 0; tile < 7; ++tile) {
    published_part const& part = weight.parts()[tile < 5 ? 0 : 1];
    std::size_t const line = tile < 4 ? 0 : tile == 4 ? 1 : 0;
    for (std::size_t column = 0; column < 2; ++column) {
      EXPECT_EQ(scales[tile][column], part.scale_blocks[line * 2 + column])
          << "tile " << tile << ", column " << column;
    }
  }
}

TEST(prepack, a_block_weight_takes_a_part_with_one_scale) {
  random_source random(12);
  published_weight weight({format_id::fp8, scale_mode::block, dtype::f16}, {32, 3}, 256, random);
  weight.parts()[0].scale_blocks.clear();
  weight.parts()[0].global_scale = 0.5f;
  packed_weight const packed = weight.pack();
  float scales[4];
  std::memcpy(scales, packed.data + packed.layout.scales_offset, sizeof scales);
  EXPECT_EQ(scales[0], 0.5f);
  EXPECT_EQ(scales[1], 0.5f);
  EXPECT_EQ(scales[2], weight.parts()[1].scale_blocks[0]);
  EXPECT_EQ(scales[3], weight.parts()[1].scale_blocks[1]);
}

TEST(prepack, nan_weight_codes_are_refused_with_their_place) {
  for (int const code : {0x7f, 0xff}) {
    published_weight weight = small_weight(format_id::fp8, scale_mode::tensor);
    weight.parts().front().codes[2 * 32 + 31] = static_cast<std::uint8_t>(code);
    expect_refused(weight, status_code::invalid_value, 2, 31);
  }
}

TEST(prepack, nan_block_scales_are_refused_with_their_place) {
  for (int const code : {0x7f, 0xff}) {
    published_weight weight = small_weight(format_id::nvfp4, scale_mode::tensor);
    weight.parts().front().block_scales[1 * 2 + 1] = static_cast<std::uint8_t>(code);
    expect_refused(weight, status_code::invalid_value, 1, 1);
  }
}

TEST(prepack, non_finite_16_bit_weights_are_refused_with_their_place) {
  for (dtype const type : {dtype::f16, dtype::bf16}) {
    for (std::uint32_t const sign : {0u, 0x8000u}) {
      for (std::uint32_t const mantissa : {0u, 1u}) {
        published_weight weight = small_weight(format_id::dense16, scale_mode::none, type);
        std::uint32_t const word = (type == dtype::f16 ? 0x7c00u : 0x7f80u) | sign | mantissa;
        weight.parts().front().codes[(1 * 32 + 7) * 2] = static_cast<std::uint8_t>(word);
        weight.parts().front().codes[(1 * 32 + 7) * 2 + 1] = static_cast<std::uint8_t>(word >> 8);
        expect_refused(weight, status_code::invalid_value, 1, 7);
      }
    }
  }
}

TEST(prepack, non_finite_fp32_scales_are_refused_with_their_row) {
  float const infinity = std::numeric_limits<float>::infinity();
  for (float const bad : {infinity, -infinity, std::nanf("")}) {
    published_weight tensor = small_weight(format_id::nvfp4, scale_mode::tensor);
    tensor.parts().front().global_scale = bad;
    expect_refused(tensor, status_code::invalid_value, 0, -1);
    published_weight channel = small_weight(format_id::fp8, scale_mode::channel);
    channel.parts().front().channel_scales[2] = bad;
    expect_refused(channel, status_code::invalid_value, 2, -1);
    random_source random(10);
    published_weight block({format_id::fp8, scale_mode::block, dtype::f16}, {300}, 270, random);
    block.parts().front().scale_blocks[2 * 3 + 1] = bad;
    expect_refused(block, status_code::invalid_value, 256, 1);
  }
}

TEST(prepack, rows_that_do_not_add_up_are_refused) {
  published_weight weight = small_weight(format_id::fp8, scale_mode::tensor);
  std::vector<std::byte> out(static_cast<std::size_t>(weight.layout().total_bytes));
  std::vector<qpn::weight_part> parts = weight.views();
  for (std::int64_t const n : {0, 2, 4, -1}) {
    parts[0].n = n;
    EXPECT_EQ(qpn::prepack(weight.layout(), parts.data(), 1, out.data()).code,
              status_code::invalid_shape)
        << n;
  }
  EXPECT_EQ(qpn::prepack(weight.layout(), nullptr, 0, out.data()).code, status_code::invalid_shape);
}

TEST(prepack, a_boundary_of_scales_inside_a_tile_is_refused) {
  for (scale_mode const scale : {scale_mode::tensor, scale_mode::block}) {
    packed_layout layout;
    ASSERT_TRUE(qpn::make_packed_layout(format_id::fp8, scale, 40, 16, dtype::f16, layout).ok());
    std::vector<std::uint8_t> codes(40 * 16);
    std::vector<std::byte> out(static_cast<std::size_t>(layout.total_bytes));
    qpn::weight_part const parts[] = {{20, codes.data(), nullptr, 1.0f, nullptr},
                                      {20, codes.data(), nullptr, 2.0f, nullptr}};
    status const packed = qpn::prepack(layout, parts, 2, out.data());
    EXPECT_EQ(packed.code, status_code::invalid_shape);
    EXPECT_EQ(packed.row, 20);
  }
}

TEST(prepack, missing_pointers_and_foreign_layouts_are_refused) {
  published_weight weight = small_weight(format_id::nvfp4, scale_mode::tensor);
  std::vector<std::byte> out(static_cast<std::size_t>(weight.layout().total_bytes));
  std::vector<qpn::weight_part> parts = weight.views();
  parts[0].block_scales = nullptr;
  EXPECT_EQ(qpn::prepack(weight.layout(), parts.data(), 1, out.data()).code,
            status_code::invalid_value);
  parts = weight.views();
  parts[0].codes = nullptr;
  EXPECT_EQ(qpn::prepack(weight.layout(), parts.data(), 1, out.data()).code,
            status_code::invalid_value);
  parts = weight.views();
  packed_layout foreign = weight.layout();
  foreign.scales_offset += 64;
  EXPECT_EQ(qpn::prepack(foreign, parts.data(), 1, out.data()).code, status_code::invalid_value);
}

TEST(prepack, rows_packed_in_pieces_in_any_order_are_the_bytes_of_one_prepack) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      for (qpn::layout_id const id : {qpn::layout_id::cpu_tile32, qpn::layout_id::sm70_quadpair}) {
        SCOPED_TRACE(testing::Message()
                     << kind << ", layout " << static_cast<int>(id) << ", seed " << random.seed());
        std::int64_t const k =
            kind.format == format_id::nvfp4 ? 16 * random.integer(1, 17) : random.integer(1, 272);
        published_weight weight(kind, random_parts(kind.scale, random), k, random);
        packed_layout layout = weight.layout();
        if (id == qpn::layout_id::sm70_quadpair) {
          ASSERT_TRUE(qpn::make_packed_layout(kind.format, kind.scale, layout.n, k, kind.dense_type,
                                              qpn::test::volta_v100(), layout)
                          .ok());
        }
        std::vector<std::byte> whole(static_cast<std::size_t>(layout.total_bytes), std::byte{0xcd});
        std::vector<std::byte> pieces(whole.size(), std::byte{0xab});
        std::vector<qpn::weight_part> const parts = weight.views();
        ASSERT_TRUE(qpn::prepack(layout, parts.data(), parts.size(), whole.data()).ok());
        for (auto const& [piece, first_row] : random_pieces(weight, random)) {
          qpn::weight_part const rows = {
              piece.n,
              piece.codes.data(),
              piece.block_scales.data(),
              piece.global_scale,
              piece.channel_scales.empty() ? nullptr : piece.channel_scales.data(),
              piece.scale_blocks.empty() ? nullptr : piece.scale_blocks.data()};
          status const packed = qpn::prepack_rows(layout, rows, first_row, pieces.data());
          ASSERT_TRUE(packed.ok()) << packed.what << ", row " << packed.row;
        }
        ASSERT_EQ(pieces, whole);
      }
    }
  }
}

TEST(prepack, pieces_name_the_rows_of_the_fused_matrix_in_their_errors) {
  published_weight weight = small_weight(format_id::fp8, scale_mode::tensor);
  packed_layout layout;
  ASSERT_TRUE(
      qpn::make_packed_layout(format_id::fp8, scale_mode::tensor, 67, 32, dtype::f16, layout).ok());
  std::vector<std::byte> out(static_cast<std::size_t>(layout.total_bytes));
  weight.parts().front().codes[1 * 32 + 5] = 0x7f;
  status const packed = qpn::prepack_rows(layout, weight.views().front(), 64, out.data());
  EXPECT_EQ(packed.code, status_code::invalid_value);
  EXPECT_EQ(packed.row, 65);
  EXPECT_EQ(packed.column, 5);
}

TEST(prepack, pieces_that_do_not_lie_in_the_weight_are_refused) {
  published_weight weight = small_weight(format_id::nvfp4, scale_mode::tensor);
  packed_layout layout;
  ASSERT_TRUE(
      qpn::make_packed_layout(format_id::nvfp4, scale_mode::tensor, 67, 32, dtype::f16, layout)
          .ok());
  std::vector<std::byte> out(static_cast<std::size_t>(layout.total_bytes));
  qpn::weight_part const rows = weight.views().front();
  auto const code = [&](qpn::weight_part const& piece, std::int64_t first_row) {
    return qpn::prepack_rows(layout, piece, first_row, out.data()).code;
  };
  EXPECT_EQ(code(rows, 64), status_code::ok);
  constexpr std::int64_t huge = (std::numeric_limits<std::int64_t>::max)();
  for (std::int64_t const first_row :
       {std::int64_t{-1}, std::int64_t{65}, std::int64_t{67}, huge}) {
    EXPECT_EQ(code(rows, first_row), status_code::invalid_shape) << first_row;
  }
  // With a tensor scale: a piece that begins, and one that ends, inside a tile.
  qpn::weight_part one = rows;
  one.n = 1;
  EXPECT_EQ(code(one, 66), status_code::invalid_shape);
  EXPECT_EQ(code(rows, 32), status_code::invalid_shape);
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{-1}, huge}) {
    qpn::weight_part piece = rows;
    piece.n = n;
    EXPECT_EQ(code(piece, 64), status_code::invalid_shape) << n;
  }
  qpn::weight_part missing = rows;
  missing.codes = nullptr;
  EXPECT_EQ(code(missing, 64), status_code::invalid_value);
  missing = rows;
  missing.block_scales = nullptr;
  EXPECT_EQ(code(missing, 64), status_code::invalid_value);
  layout.total_bytes += 64;
  EXPECT_EQ(code(rows, 64), status_code::invalid_value);
}

TEST(prepack, unpacking_with_other_boundaries_than_were_packed_is_noticed) {
  random_source random(9);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {32, 32}, 16, random);
  packed_weight const packed = weight.pack();
  qpn::unpacked_part const whole{64, nullptr, nullptr, nullptr, nullptr};
  EXPECT_EQ(qpn::unpack(packed, &whole, 1).code, status_code::invalid_value);
  qpn::unpacked_part const halves[] = {{32, nullptr, nullptr, nullptr, nullptr},
                                       {32, nullptr, nullptr, nullptr, nullptr}};
  EXPECT_TRUE(qpn::unpack(packed, halves, 2).ok());

  published_weight blocks({format_id::fp8, scale_mode::block, dtype::f16}, {32, 64}, 130, random);
  packed_weight const packed_blocks = blocks.pack();
  qpn::unpacked_part const all{96, nullptr, nullptr, nullptr, nullptr};
  status const noticed = qpn::unpack(packed_blocks, &all, 1);
  EXPECT_EQ(noticed.code, status_code::invalid_value);
  EXPECT_EQ(noticed.row, 32);
}
