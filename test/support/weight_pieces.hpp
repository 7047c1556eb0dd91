// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <qpn/packed_weight.hpp>
#include <qpn/prepack.hpp>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "published_weight.hpp"
#include "random.hpp"

// Weights for layout sm70_quadpair, whole and in pieces.

namespace qpn::test {

/// Some rows of a fused weight, in the buffers of their part.
struct weight_piece {
  std::int64_t first_row;  ///< in the fused matrix
  std::size_t part;
  std::int64_t first_of_part;
  weight_part rows;
};

[[nodiscard]] inline packed_layout volta_layout_of(published_weight const& weight) {
  packed_layout const& cpu = weight.layout();
  packed_layout layout;
  status const made =
      make_packed_layout(cpu.format, cpu.scale, cpu.n, cpu.k, cpu.code_type, volta_v100(), layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

/// Parts of 1 to `most` rows together; with a tensor scale all but the last are whole tiles.
[[nodiscard]] inline std::vector<std::int64_t> random_part_rows(scale_mode scale,
                                                                random_source& random,
                                                                std::int64_t most = 200) {
  std::int64_t left = random.integer(1, most);
  std::vector<std::int64_t> rows;
  while (left > 0) {
    std::int64_t n = random.integer(1, left);
    if (is_kept_by_tile(scale) && n < left) n = n < 32 ? left : n / 32 * 32;
    rows.push_back(n);
    left -= n;
  }
  return rows;
}

[[nodiscard]] inline std::int64_t random_reduction_length(format_id format, random_source& random) {
  return format == format_id::nvfp4 ? 16 * random.integer(1, 17) : random.integer(1, 140);
}

/// The rows of a weight cut at random, shuffled.
[[nodiscard]] inline std::vector<weight_piece> cut(published_weight const& weight,
                                                   random_source& random) {
  std::vector<weight_part> const parts = weight.views();
  packed_layout const& layout = weight.layout();
  std::int64_t const unit = layout.scale == scale_mode::block    ? scale_block
                            : layout.scale == scale_mode::tensor ? tile_n
                                                                 : 1;
  std::vector<weight_piece> pieces;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    weight_part const& part = parts[i];
    for (std::int64_t first = 0; first < part.n;) {
      std::int64_t const count =
          std::min(part.n - first, unit * random.integer(1, 1 + part.n / unit / 2));
      auto const rows_at = [first](void const* rows, std::int64_t row_bytes) -> void const* {
        return rows == nullptr ? nullptr : static_cast<std::byte const*>(rows) + first * row_bytes;
      };
      weight_part rows = part;
      rows.n = count;
      rows.codes = rows_at(part.codes, detail::published_row_bytes(layout));
      rows.block_scales = rows_at(part.block_scales, detail::block_scale_count(layout));
      if (part.channel_scales != nullptr) rows.channel_scales = part.channel_scales + first;
      if (part.scale_blocks != nullptr) {
        rows.scale_blocks = part.scale_blocks + first / scale_block * detail::scale_columns(layout);
      }
      pieces.push_back({row + first, i, first, rows});
      first += count;
    }
    row += part.n;
  }
  for (std::size_t i = pieces.size(); i > 1; --i) {
    auto const other = random.integer(0, static_cast<std::int64_t>(i) - 1);
    std::swap(pieces[i - 1], pieces[static_cast<std::size_t>(other)]);
  }
  return pieces;
}

/// Plants up to four values that prepack refuses, at random places.
inline void spoil(published_weight& weight, random_source& random) {
  packed_layout const& layout = weight.layout();
  for (std::int64_t count = random.integer(1, 4); count > 0; --count) {
    published_part& part = weight.parts()[static_cast<std::size_t>(
        random.integer(0, static_cast<std::int64_t>(weight.parts().size()) - 1))];
    auto const any = [&random](auto const& values) {
      return static_cast<std::size_t>(
          random.integer(0, static_cast<std::int64_t>(values.size()) - 1));
    };
    auto const sign = static_cast<std::uint8_t>(random.byte() & 0x80u);
    bool const spoil_scale = layout.scale != scale_mode::none && random.integer(0, 2) == 0;
    if (spoil_scale) {
      float const bad = detail::bits_float(random.integer(0, 1) == 0 ? 0x7f800000u : 0xffc00001u);
      if (layout.scale == scale_mode::tensor) {
        part.global_scale = bad;
      } else if (layout.scale == scale_mode::block) {
        part.scale_blocks[any(part.scale_blocks)] = bad;
      } else {
        part.channel_scales[any(part.channel_scales)] = bad;
      }
    } else if (layout.format == format_id::nvfp4) {
      part.block_scales[any(part.block_scales)] = static_cast<std::uint8_t>(0x7fu | sign);
    } else if (layout.format == format_id::fp8) {
      part.codes[any(part.codes)] = static_cast<std::uint8_t>(0x7fu | sign);
    } else {
      // f16: infinity or NaN; bf16 also 256 and more.
      std::size_t const word = any(part.codes) / 2;
      part.codes[2 * word + 1] = static_cast<std::uint8_t>(
          (layout.code_type == dtype::bf16 && random.integer(0, 1) == 0 ? 0x44u : 0x7fu) | sign);
      part.codes[2 * word] = static_cast<std::uint8_t>(random.byte() | 0x80u);
    }
  }
}

}  // namespace qpn::test
