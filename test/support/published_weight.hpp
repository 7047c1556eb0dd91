// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <ostream>
#include <qpn/dtype.hpp>
#include <qpn/format.hpp>
#include <qpn/packed_weight.hpp>
#include <qpn/prepack.hpp>
#include <span>
#include <string>
#include <vector>

#include "random.hpp"

namespace qpn::test {

/// What a weight is made of, without its shape.
struct weight_kind {
  format_id format;
  scale_mode scale;
  dtype dense_type;
};

inline std::string to_string(weight_kind kind) {
  std::string name = std::string(qpn::to_string(kind.format)) + "_";
  name += kind.format == format_id::dense16 ? qpn::to_string(kind.dense_type)
                                            : qpn::to_string(kind.scale);
  return name;
}

inline std::ostream& operator<<(std::ostream& out, weight_kind kind) {
  return out << to_string(kind);
}

/// Every format with every scale mode and element type that it takes.
inline constexpr weight_kind all_weight_kinds[] = {
    {format_id::nvfp4, scale_mode::tensor, dtype::f16},
    {format_id::nvfp4, scale_mode::channel, dtype::f16},
    {format_id::fp8, scale_mode::tensor, dtype::f16},
    {format_id::fp8, scale_mode::channel, dtype::f16},
    {format_id::dense16, scale_mode::none, dtype::f16},
    {format_id::dense16, scale_mode::none, dtype::bf16},
    {format_id::fp8, scale_mode::block, dtype::f16},
};

/// Those without fp32 scales along k, which some methods do not take.
inline constexpr std::span<weight_kind const> kinds_without_scale_blocks{all_weight_kinds, 6};

/// A weight, and the type of the rows of x that it is multiplied by.
struct operand_kinds {
  weight_kind weight;
  dtype x_type;
};

inline std::string to_string(operand_kinds kinds) {
  return to_string(kinds.weight) + (kinds.x_type == dtype::bf16 ? "_by_bf16" : "");
}

inline std::ostream& operator<<(std::ostream& out, operand_kinds kinds) {
  return out << to_string(kinds);
}

/// All that the kernels of layout sm80_mma16 multiply: every weight with x in f16, every one but
/// that in f16 with x in bf16.
[[nodiscard]] inline std::vector<operand_kinds> all_operand_kinds() {
  std::vector<operand_kinds> all;
  for (weight_kind const weight : all_weight_kinds) all.push_back({weight, dtype::f16});
  for (weight_kind const weight : all_weight_kinds) {
    bool const is_f16 = weight.format == format_id::dense16 && weight.dense_type == dtype::f16;
    if (!is_f16) all.push_back({weight, dtype::bf16});
  }
  return all;
}

/// Whether every part but the last needs whole tiles of 32 rows.
[[nodiscard]] inline bool is_kept_by_tile(scale_mode scale) {
  return scale == scale_mode::tensor || scale == scale_mode::block;
}

/// One published matrix that owns its bytes.
struct published_part {
  std::int64_t n = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scales;
  float global_scale = 1.0f;
  std::vector<float> channel_scales;
  std::vector<float> scale_blocks;
};

/// Parts of a fused weight and, once packed, the packed bytes.
class published_weight {
 public:
  published_weight(weight_kind kind, std::vector<std::int64_t> const& rows, std::int64_t k,
                   random_source& random) {
    std::int64_t n = 0;
    for (std::int64_t part_rows : rows) n += part_rows;
    status const made = make_packed_layout(kind.format, kind.scale, n, k, kind.dense_type, layout_);
    EXPECT_TRUE(made.ok()) << made.what;
    for (std::int64_t part_rows : rows) parts_.push_back(random_part(part_rows, random));
  }

  [[nodiscard]] packed_layout const& layout() const { return layout_; }
  [[nodiscard]] std::deque<published_part>& parts() { return parts_; }

  [[nodiscard]] std::vector<weight_part> views() const {
    std::vector<weight_part> views;
    for (published_part const& part : parts_) {
      views.push_back({part.n, part.codes.data(),
                       part.block_scales.empty() ? nullptr : part.block_scales.data(),
                       part.global_scale,
                       part.channel_scales.empty() ? nullptr : part.channel_scales.data(),
                       part.scale_blocks.empty() ? nullptr : part.scale_blocks.data()});
    }
    return views;
  }

  /// Packs into bytes that start `misalign` bytes behind a multiple of 64.
  packed_weight pack(std::size_t misalign = 0) {
    bytes_.assign(static_cast<std::size_t>(layout_.total_bytes) + 64 + misalign, std::byte{0xcd});
    std::size_t const to_line = (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64;
    std::byte* const data = bytes_.data() + to_line + misalign;
    std::vector<weight_part> const parts = views();
    status const packed = prepack(layout_, parts.data(), parts.size(), data);
    EXPECT_TRUE(packed.ok()) << packed.what << ", row " << packed.row << ", column "
                             << packed.column;
    return {layout_, data};
  }

 private:
  published_part random_part(std::int64_t n, random_source& random) const {
    published_part part;
    part.n = n;
    std::int64_t const k = layout_.k;
    auto const finite_e4m3 = [&random] {
      std::uint8_t code = random.byte();
      while (is_nan_e4m3(code)) code = random.byte();
      return code;
    };
    if (layout_.format == format_id::nvfp4) {
      for (std::int64_t i = 0; i < n * k / 2; ++i) part.codes.push_back(random.byte());
      for (std::int64_t i = 0; i < n * k / 16; ++i) part.block_scales.push_back(finite_e4m3());
    } else if (layout_.format == format_id::fp8) {
      for (std::int64_t i = 0; i < n * k; ++i) part.codes.push_back(finite_e4m3());
    } else {
      for (std::int64_t i = 0; i < n * k; ++i) {
        std::uint16_t const word = layout_.code_type == dtype::f16 ? encode_f16(random.normal())
                                                                   : encode_bf16(random.normal());
        part.codes.push_back(static_cast<std::uint8_t>(word));
        part.codes.push_back(static_cast<std::uint8_t>(word >> 8));
      }
    }
    if (layout_.scale != scale_mode::none) part.global_scale = 0.001f + random.normal();
    if (layout_.scale == scale_mode::channel) part.channel_scales = random.normals(n);
    if (layout_.scale == scale_mode::block) {
      part.scale_blocks = random.normals((n + 127) / 128 * ((k + 127) / 128));
    }
    return part;
  }

  packed_layout layout_;
  std::deque<published_part> parts_;
  std::vector<std::byte> bytes_;
};

/// Parts of the same sizes to unpack into, of codes 0xcd and scales that are `scale`.
[[nodiscard]] inline std::deque<published_part> blank_parts(std::deque<published_part> const& like,
                                                            float scale) {
  std::deque<published_part> parts;
  for (published_part const& part : like) {
    parts.push_back({part.n, std::vector<std::uint8_t>(part.codes.size(), 0xcd),
                     std::vector<std::uint8_t>(part.block_scales.size(), 0xcd), scale,
                     std::vector<float>(part.channel_scales.size(), scale),
                     std::vector<float>(part.scale_blocks.size(), scale)});
  }
  return parts;
}

/// Where unpack is to write all of the parts.
[[nodiscard]] inline std::vector<unpacked_part> unpacked_views(std::deque<published_part>& parts) {
  std::vector<unpacked_part> views;
  for (published_part& part : parts) {
    views.push_back({part.n, part.codes.data(), part.block_scales.data(), &part.global_scale,
                     part.channel_scales.empty() ? nullptr : part.channel_scales.data(),
                     part.scale_blocks.empty() ? nullptr : part.scale_blocks.data()});
  }
  return views;
}

/// Every byte of the parts; the fp32 scale of a part where `with_global_scale`.
inline void expect_same_parts(std::deque<published_part> const& found,
                              std::deque<published_part> const& expected,
                              bool with_global_scale = true) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].codes, expected[i].codes) << "part " << i;
    EXPECT_EQ(found[i].block_scales, expected[i].block_scales) << "part " << i;
    EXPECT_EQ(found[i].channel_scales, expected[i].channel_scales) << "part " << i;
    EXPECT_EQ(found[i].scale_blocks, expected[i].scale_blocks) << "part " << i;
    if (with_global_scale) {
      EXPECT_EQ(found[i].global_scale, expected[i].global_scale) << "part " << i;
    }
  }
}

}  // namespace qpn::test
