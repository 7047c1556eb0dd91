// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <qpn/cpu/gemm.hpp>
#include <qpn/cpu/thread_pool.hpp>
#include <qpn/detail/tile_map.hpp>
#include <qpn/prepack.hpp>
#include <qpn/reference/dequant.hpp>
#include <vector>

#include "support/devices.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "support/weight_pieces.hpp"

// prepack, unpack and reference::dequant on layout sm70_quadpair.

namespace {

using qpn::dtype;
using qpn::format_id;
using qpn::packed_layout;
using qpn::packed_weight;
using qpn::scale_mode;
using qpn::status;
using qpn::status_code;
using qpn::test::all_weight_kinds;
using qpn::test::blank_parts;
using qpn::test::expect_same_parts;
using qpn::test::published_part;
using qpn::test::published_weight;
using qpn::test::random_source;
using qpn::test::unpacked_views;
using qpn::test::volta_layout_of;
using qpn::test::weight_kind;

/// Packs into bytes that were not zero before.
status pack_for_volta(published_weight const& weight, std::vector<std::byte>& bytes) {
  packed_layout const layout = volta_layout_of(weight);
  bytes.assign(static_cast<std::size_t>(layout.total_bytes), std::byte{0xcd});
  std::vector<qpn::weight_part> const parts = weight.views();
  return qpn::prepack(layout, parts.data(), parts.size(), bytes.data());
}

/// A part as unpack returns it: block scales without signs, their codes' signs flipped instead.
published_part canonical(published_part part) {
  for (std::size_t group = 0; group < part.block_scales.size(); ++group) {
    if (part.block_scales[group] < 0x80) continue;
    part.block_scales[group] &= 0x7f;
    for (std::size_t i = 0; i < 8; ++i) part.codes[8 * group + i] ^= 0x88;
  }
  return part;
}

void expect_round_trip(published_weight& weight) {
  std::vector<std::byte> bytes;
  status const packed = pack_for_volta(weight, bytes);
  ASSERT_TRUE(packed.ok()) << packed.what;
  std::deque<published_part> out = blank_parts(weight.parts(), std::nanf(""));
  std::vector<qpn::unpacked_part> const views = unpacked_views(out);
  status const unpacked =
      qpn::unpack({volta_layout_of(weight), bytes.data()}, views.data(), views.size());
  ASSERT_TRUE(unpacked.ok()) << unpacked.what;
  std::deque<published_part> expected;
  for (published_part const& part : weight.parts()) expected.push_back(canonical(part));
  expect_same_parts(out, expected, weight.layout().scale == scale_mode::tensor);
}

/// Parts of 1 to 130 rows together.
std::vector<std::int64_t> random_parts(scale_mode scale, random_source& random) {
  return qpn::test::random_part_rows(scale, random, 130);
}

std::int64_t random_k(format_id format, random_source& random) {
  return format == format_id::nvfp4 ? 16 * random.integer(1, 17) : random.integer(16, 272);
}

/// The packed bytes, built bit by bit from the description of the layout; zero where it names none.
class quadpair_image {
 public:
  explicit quadpair_image(published_weight& weight)
      : layout_(volta_layout_of(weight)), bytes_(static_cast<std::size_t>(layout_.total_bytes)) {
    std::size_t row = 0;
    for (published_part const& published : weight.parts()) {
      published_part const part = canonical(published);
      for (std::size_t r = 0; r < static_cast<std::size_t>(part.n); ++r, ++row) {
        for (std::size_t k = 0; k < row_length(); ++k) place_code(part, r, row, k);
        if (layout_.scale != scale_mode::none) place_fp32_scale(part, r, row);
      }
    }
  }

  [[nodiscard]] std::vector<std::byte> const& bytes() const { return bytes_; }

 private:
  [[nodiscard]] std::size_t row_length() const { return static_cast<std::size_t>(layout_.k); }

  /// Bits [first, first + count) of the little-endian word at `offset` become `value`.
  void place_bits(std::size_t offset, unsigned first, unsigned count, std::uint32_t value) {
    for (unsigned bit = 0; bit < count; ++bit) {
      if ((value >> bit & 1u) == 0) continue;
      bytes_[offset + (first + bit) / 8] |= std::byte{1} << (first + bit) % 8;
    }
  }

  void place_code(published_part const& part, std::size_t r, std::size_t row, std::size_t k) {
    std::size_t const quadpair = row % 32 / 8;
    std::size_t const position = row % 8;
    std::size_t const lane = position % 4 + 4 * quadpair + 16 * (position / 4);
    bool const is_nvfp4 = layout_.format == format_id::nvfp4;
    std::size_t const per_word = is_nvfp4 ? 8 : layout_.format == format_id::fp8 ? 4 : 2;
    std::size_t const record_k = 8 * per_word;
    std::size_t const steps = (row_length() + record_k - 1) / record_k;
    std::size_t const unit = row / 64 * steps + k / record_k;  // two tiles side by side
    std::size_t const record = (2 * unit + row % 64 / 32) * (is_nvfp4 ? 1152 : 1024);
    std::size_t const word = k % record_k / per_word;
    std::size_t const offset = record + word / 4 * 512 + lane * 16 + word % 4 * 4;
    std::size_t const element = r * row_length() + k;
    if (is_nvfp4) {
      constexpr unsigned sign_bits[8] = {15, 31, 7, 23, 0, 8, 16, 24};
      constexpr unsigned magnitude_bits[8] = {9, 25, 1, 17, 4, 12, 20, 28};
      std::uint32_t const pair = part.codes[element / 2];
      std::uint32_t const code = k % 2 == 0 ? pair & 0xfu : pair >> 4;
      place_bits(offset, sign_bits[k % 8], 1, code >> 3);
      place_bits(offset, magnitude_bits[k % 8], 3, code & 0x7u);
      if (k % 16 == 0) {
        float const scale = qpn::decode_e4m3(part.block_scales[element / 16]);
        std::uint32_t const half = qpn::encode_f16(128.0f * scale);
        bytes_[record + 1024 + lane * 4 + k % 64 / 16] = static_cast<std::byte>(half << 1 >> 8);
      }
    } else if (layout_.format == format_id::fp8) {
      constexpr unsigned sign_bits[4] = {15, 31, 14, 30};
      constexpr unsigned magnitude_bits[4] = {7, 23, 0, 16};
      std::uint32_t const code = part.codes[element];
      place_bits(offset, sign_bits[k % 4], 1, code >> 7);
      place_bits(offset, magnitude_bits[k % 4], 7, code & 0x7fu);
    } else {
      auto const code =
          static_cast<std::uint16_t>(part.codes[2 * element] | part.codes[2 * element + 1] << 8);
      place_bits(offset, 16 * (k % 2), 16, code);
    }
  }

  void place_fp32_scale(published_part const& part, std::size_t r, std::size_t row) {
    bool const by_block = layout_.scale == scale_mode::block;
    bool const per_row = layout_.scale == scale_mode::channel;
    std::size_t const columns = by_block ? (row_length() + 127) / 128 : 1;
    for (std::size_t column = 0; column < columns; ++column) {
      float const scale = by_block  ? part.scale_blocks[r / 128 * columns + column]
                          : per_row ? part.channel_scales[r]
                                    : part.global_scale;
      std::size_t const index = (per_row ? row : row / 32) * columns + column;
      std::memcpy(&bytes_[static_cast<std::size_t>(layout_.scales_offset) + 4 * index], &scale,
                  sizeof scale);
    }
  }

  packed_layout layout_;
  std::vector<std::byte> bytes_;
};

/// A weight of one part, [3, 32], to plant values in.
published_weight small_weight(format_id format, scale_mode scale, dtype dense = dtype::f16) {
  random_source random(5);
  return published_weight({format, scale, dense}, {3}, 32, random);
}

void plant_word(published_weight& weight, std::size_t row, std::size_t k, std::uint32_t word) {
  std::vector<std::uint8_t>& codes = weight.parts().front().codes;
  codes[(row * 32 + k) * 2] = static_cast<std::uint8_t>(word);
  codes[(row * 32 + k) * 2 + 1] = static_cast<std::uint8_t>(word >> 8);
}

void expect_refused(published_weight const& weight, std::int64_t row, std::int64_t column) {
  std::vector<std::byte> bytes;
  status const packed = pack_for_volta(weight, bytes);
  EXPECT_EQ(packed.code, status_code::invalid_value) << packed.what;
  EXPECT_EQ(packed.row, row);
  EXPECT_EQ(packed.column, column);
}

}  // namespace

TEST(prepack_quadpair, every_bit_lies_where_the_layout_says_and_the_rest_is_zero) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      SCOPED_TRACE(testing::Message() << kind << ", seed " << seed);
      published_weight weight(kind, random_parts(kind.scale, random), random_k(kind.format, random),
                              random);
      std::vector<std::byte> bytes;
      ASSERT_TRUE(pack_for_volta(weight, bytes).ok());
      quadpair_image const image(weight);
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        ASSERT_EQ(std::to_integer<int>(bytes[i]), std::to_integer<int>(image.bytes()[i]))
            << "byte " << i << " of " << bytes.size() << ", k " << weight.layout().k;
      }
    }
  }
}

TEST(prepack_quadpair, unpack_returns_every_byte_of_ragged_fused_weights) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      SCOPED_TRACE(testing::Message() << kind << ", seed " << seed);
      published_weight weight(kind, random_parts(kind.scale, random), random_k(kind.format, random),
                              random);
      expect_round_trip(weight);
    }
  }
}

TEST(prepack_quadpair, unpack_returns_every_row_count_and_every_short_row) {
  random_source random(2);
  for (weight_kind const kind : all_weight_kinds) {
    for (std::int64_t n = 1; n <= 130; ++n) {
      SCOPED_TRACE(testing::Message() << kind << ", n " << n << ", seed " << random.seed());
      published_weight weight(kind, {n}, 16, random);
      expect_round_trip(weight);
    }
    std::int64_t const unit = kind.format == format_id::nvfp4 ? 16 : 1;
    for (std::int64_t k = unit; k <= 34 * unit && k <= 272; k += unit) {
      SCOPED_TRACE(testing::Message() << kind << ", k " << k << ", seed " << random.seed());
      published_weight weight(kind, {2}, k, random);
      expect_round_trip(weight);
    }
  }
}

TEST(prepack_quadpair, unpack_returns_every_nvfp4_code_under_every_scale) {
  random_source random(3);
  published_weight weight({format_id::nvfp4, scale_mode::tensor, dtype::f16}, {256}, 512, random);
  published_part& part = weight.parts().front();
  for (std::size_t row = 0; row < 256; ++row) {
    // Row r has block scale r (NaN replaced) and all 256 pairs of codes.
    auto const scale = static_cast<std::uint8_t>(row % 128 == 127 ? row - 1 : row);
    for (std::size_t group = 0; group < 32; ++group) part.block_scales[row * 32 + group] = scale;
    for (std::size_t i = 0; i < 256; ++i) {
      part.codes[row * 256 + i] = static_cast<std::uint8_t>(row + i);
    }
  }
  expect_round_trip(weight);
}

TEST(prepack_quadpair, unpack_skips_what_is_not_asked_for) {
  random_source random(4);
  published_weight weight({format_id::nvfp4, scale_mode::channel, dtype::f16}, {70}, 48, random);
  std::vector<std::byte> bytes;
  ASSERT_TRUE(pack_for_volta(weight, bytes).ok());
  qpn::unpacked_part const nothing{70, nullptr, nullptr, nullptr, nullptr};
  EXPECT_TRUE(qpn::unpack({volta_layout_of(weight), bytes.data()}, &nothing, 1).ok());
}

TEST(prepack_quadpair, packed_weights_have_the_published_values) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      SCOPED_TRACE(testing::Message() << kind << ", seed " << seed);
      published_weight weight(kind, random_parts(kind.scale, random), random_k(kind.format, random),
                              random);
      std::vector<std::byte> bytes;
      ASSERT_TRUE(pack_for_volta(weight, bytes).ok());
      std::vector<qpn::weight_part> const parts = weight.views();
      auto const count = static_cast<std::size_t>(weight.layout().n * weight.layout().k);
      std::vector<double> published(count);
      std::vector<double> packed(count, std::nan(""));
      qpn::reference::dequant(weight.layout(), parts.data(), parts.size(), published.data());
      qpn::reference::dequant({volta_layout_of(weight), bytes.data()}, packed.data());
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(packed[i], published[i]) << i;
        ASSERT_EQ(std::signbit(packed[i]), std::signbit(published[i])) << i;
      }
    }
  }
}

TEST(prepack_quadpair, negative_block_scales_move_their_signs_into_the_codes) {
  published_weight weight = small_weight(format_id::nvfp4, scale_mode::tensor);
  published_part& part = weight.parts().front();
  part.block_scales = {0xc0, 0x40, 0x80, 0x00, 0x81, 0xfe};  // -2 2 / -0 0 / -2^-9 -448
  part.global_scale = 1.0f;
  std::vector<std::byte> bytes;
  ASSERT_TRUE(pack_for_volta(weight, bytes).ok());
  packed_weight const packed{volta_layout_of(weight), bytes.data()};
  std::vector<std::uint8_t> codes(part.codes.size());
  std::vector<std::uint8_t> scales(part.block_scales.size());
  qpn::unpacked_part const out{3, codes.data(), scales.data(), nullptr, nullptr};
  ASSERT_TRUE(qpn::unpack(packed, &out, 1).ok());
  EXPECT_EQ(scales, (std::vector<std::uint8_t>{0x40, 0x40, 0x00, 0x00, 0x01, 0x7e}));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    bool const flipped = part.block_scales[i / 8] >= 0x80;
    EXPECT_EQ(codes[i], part.codes[i] ^ (flipped ? 0x88 : 0)) << i;
  }
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t k = 0; k < 32; ++k) {
      double const published =
          qpn::reference::weight_at(weight.layout(), weight.views().front(), row, k);
      double const stored = qpn::reference::weight_at(packed, row, k);
      EXPECT_EQ(stored, published);
      EXPECT_EQ(std::signbit(stored), std::signbit(published));
    }
  }
}

TEST(prepack_quadpair, nan_codes_and_scales_are_refused_with_their_place) {
  for (int const code : {0x7f, 0xff}) {
    published_weight weight = small_weight(format_id::fp8, scale_mode::channel);
    weight.parts().front().codes[2 * 32 + 31] = static_cast<std::uint8_t>(code);
    expect_refused(weight, 2, 31);
    published_weight scaled = small_weight(format_id::nvfp4, scale_mode::tensor);
    scaled.parts().front().block_scales[1 * 2 + 1] = static_cast<std::uint8_t>(code);
    expect_refused(scaled, 1, 1);
  }
  for (std::uint32_t const word : {0x7c00u, 0xfc01u}) {
    published_weight weight = small_weight(format_id::dense16, scale_mode::none);
    plant_word(weight, 1, 7, word);
    expect_refused(weight, 1, 7);
  }
}

TEST(prepack_quadpair, bf16_weights_that_fp16_cannot_hold_are_refused_with_their_place) {
  for (std::uint32_t const sign : {0u, 0x8000u}) {
    for (std::uint32_t const word : {0x4380u, 0x4381u, 0x7f7fu, 0x7f80u, 0x7fc0u}) {
      published_weight weight = small_weight(format_id::dense16, scale_mode::none, dtype::bf16);
      plant_word(weight, 2, 9, word | sign);
      expect_refused(weight, 2, 9);
    }
    published_weight weight = small_weight(format_id::dense16, scale_mode::none, dtype::bf16);
    plant_word(weight, 2, 9, 0x437fu | sign);  // 255
    plant_word(weight, 0, 0, 0x3300u | sign);  // 2^-25
    plant_word(weight, 0, 1, 0x0000u | sign);
    expect_round_trip(weight);
  }
}

TEST(prepack_quadpair, every_16_bit_weight_that_is_taken_comes_back_bit_by_bit) {
  for (dtype const type : {dtype::f16, dtype::bf16}) {
    SCOPED_TRACE(qpn::to_string(type));
    random_source random(6);
    published_weight weight({format_id::dense16, scale_mode::none, type}, {256}, 256, random);
    std::uint32_t const end = type == dtype::f16 ? 0x7c00u : 0x4380u;  // bf16: 256
    published_part& part = weight.parts().front();
    for (std::uint32_t code = 0; code <= 0xffff; ++code) {
      std::uint32_t const word = (code & 0x7fffu) < end ? code : 0u;
      part.codes[2 * code] = static_cast<std::uint8_t>(word);
      part.codes[2 * code + 1] = static_cast<std::uint8_t>(word >> 8);
    }
    expect_round_trip(weight);
  }
}

TEST(prepack_quadpair, small_bf16_weights_keep_their_exact_values) {
  published_weight weight = small_weight(format_id::dense16, scale_mode::none, dtype::bf16);
  plant_word(weight, 0, 0, 0x3060u);  // 1.75 * 2^-31: the kernel rounds it, the weight does not
  plant_word(weight, 0, 1, 0x8001u);  // the smallest negative number
  std::vector<std::byte> bytes;
  ASSERT_TRUE(pack_for_volta(weight, bytes).ok());
  packed_weight const packed{volta_layout_of(weight), bytes.data()};
  EXPECT_EQ(qpn::reference::weight_at(packed, 0, 0), 0x1.cp-31);
  EXPECT_EQ(qpn::reference::weight_at(packed, 0, 1), -0x1p-133);
}

TEST(prepack_quadpair, records_of_the_two_tiles_of_a_group_lie_side_by_side) {
  // [130, 160] nvfp4: 3 tile groups of 3 steps, records of 1152 bytes.
  packed_layout layout;
  ASSERT_TRUE(qpn::make_packed_layout(format_id::nvfp4, scale_mode::tensor, 130, 160, dtype::f16,
                                      qpn::test::volta_v100(), layout)
                  .ok());
  auto const record = [&](std::int64_t tile, std::int64_t step) {
    return qpn::detail::record_offset<qpn::nvfp4>(layout, tile * qpn::tile_n, step);
  };
  EXPECT_EQ(record(0, 0), 0);
  EXPECT_EQ(record(1, 0), 1152);
  EXPECT_EQ(record(0, 1), 2304);
  EXPECT_EQ(record(1, 2), 5760);
  EXPECT_EQ(record(2, 0), 6912);
  EXPECT_EQ(record(5, 2), 19584);
  EXPECT_EQ(layout.scales_offset, 19584 + 1152);
  // Row 45 = row 13 of tile 1: quad-pair 1, position 5, so lane 21. k 100 is in step 1, word 4.
  EXPECT_EQ(qpn::detail::word_offset<qpn::nvfp4>(layout, 45, 100), 2304 + 1152 + 512 + 21 * 16);
  EXPECT_EQ(qpn::detail::scale_byte_offset(layout, 45, 6), 2304 + 1152 + 1024 + 21 * 4 + 2);
}

TEST(prepack_quadpair, the_work_split_is_that_of_the_layout) {
  packed_layout layout;
  ASSERT_TRUE(qpn::make_packed_layout(format_id::fp8, scale_mode::tensor, 5120, 1536, dtype::f16,
                                      qpn::test::volta_v100(), layout)
                  .ok());
  qpn::detail::work_split const split = qpn::detail::split_of<qpn::fp8>(layout);
  EXPECT_EQ(split.tile_groups, 80);
  EXPECT_EQ(split.steps, 48);
  EXPECT_EQ(split.ctas, layout.ctas);
}

TEST(prepack_quadpair, cpu_gemm_refuses_the_layout) {
  published_weight weight = small_weight(format_id::fp8, scale_mode::tensor);
  std::vector<std::byte> bytes;
  ASSERT_TRUE(pack_for_volta(weight, bytes).ok());
  std::vector<float> const x(32);
  std::vector<float> y(3);
  qpn::cpu::gemm_args args;
  args.x = x.data();
  args.m = 1;
  args.ldx = 32;
  args.y = y.data();
  args.ldy = 3;
  qpn::cpu::thread_pool pool(1);
  EXPECT_EQ(qpn::cpu::gemm({volta_layout_of(weight), bytes.data()}, args, pool).code,
            status_code::invalid_value);
}
