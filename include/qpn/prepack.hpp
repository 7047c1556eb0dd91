// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qpn/config.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/detail/packed_rows.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/detail/weight_defect.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"

namespace qpn {

/// One matrix [n, k] of a checkpoint, row-major as published. k and the format are those of the
/// packed layout.
struct weight_part {
  std::int64_t n = 0;
  void const* codes =
      nullptr;  ///< nvfp4: u8 [n, k/2], low nibble = even k; fp8: u8 [n, k]; dense16: u16 [n, k]
  void const* block_scales = nullptr;  ///< nvfp4: e4m3 [n, k/16]; else null
  float global_scale = 1.0f;  ///< multiplies every weight of the part; not read for dense16
  float const* channel_scales = nullptr;  ///< fp32 [n]; scale mode channel only
  float const* scale_blocks =
      nullptr;  ///< fp32 [n / 128, k / 128], each rounded up; scale mode block only
};

/// The same for unpack: where to write. Null pointers are skipped.
struct unpacked_part {
  std::int64_t n = 0;
  void* codes = nullptr;
  void* block_scales = nullptr;
  float* global_scale = nullptr;    ///< scale mode tensor
  float* channel_scales = nullptr;  ///< scale mode channel
  float* scale_blocks = nullptr;    ///< scale mode block
};

namespace detail {

/// Refuses codes that no kernel can use; `row` is that of the fused matrix.
[[nodiscard]] inline status check_codes(packed_layout const& layout, std::byte const* codes,
                                        std::int64_t row) noexcept {
  return visit_format<status>(layout.format, {}, [&](auto format) noexcept -> status {
    for (std::int64_t k = 0; k < layout.k; ++k) {
      weight_defect const defect = code_defect(format, layout, codes, k);
      if (defect != weight_defect::none) return defect_status(defect, row, k);
    }
    return {};
  });
}

[[nodiscard]] inline status check_block_scales(packed_layout const& layout,
                                               std::byte const* block_scales,
                                               std::int64_t row) noexcept {
  for (std::int64_t group = 0; group < block_scale_count(layout); ++group) {
    weight_defect const defect = block_scale_defect(block_scales, group);
    if (defect != weight_defect::none) return defect_status(defect, row, group);
  }
  return {};
}

/// The fp32 scale that row `source` of a part is packed with, in scale mode block at column
/// `column` of its blocks.
[[nodiscard]] QPN_HD inline float scale_of_row(packed_layout const& layout, weight_part const& part,
                                               std::int64_t source,
                                               std::int64_t column = 0) noexcept {
  if (layout.scale == scale_mode::channel && part.channel_scales != nullptr) {
    return part.channel_scales[source];
  }
  if (layout.scale == scale_mode::block && part.scale_blocks != nullptr) {
    return part.scale_blocks[source / scale_block * scale_columns(layout) + column];
  }
  return part.global_scale;
}

/// Writes the fp32 scales of row `source` of `part` as those of row `row`; nothing in scale mode
/// none. The defect's column is that of the block.
[[nodiscard]] inline status pack_scale(packed_layout const& layout, weight_part const& part,
                                       std::int64_t source, std::int64_t row,
                                       std::byte* out) noexcept {
  if (layout.scale == scale_mode::none) return {};
  for (std::int64_t column = 0; column < scale_columns(layout); ++column) {
    float const scale = scale_of_row(layout, part, source, column);
    if (!is_finite(scale)) {
      return defect_status(weight_defect::infinite_scale, row,
                           layout.scale == scale_mode::block ? column : -1);
    }
    std::memcpy(out + scale_offset(layout, row, column * scale_block), &scale, sizeof scale);
  }
  return {};
}

/// The fp32 scale of a row, in scale mode block that of column `column` of its blocks.
[[nodiscard]] inline float stored_scale(packed_weight const& weight, std::int64_t row,
                                        std::int64_t column = 0) noexcept {
  float scale = 0.0f;
  std::memcpy(&scale, weight.data + scale_offset(weight.layout, row, column * scale_block),
              sizeof scale);
  return scale;
}

/// Zeroes every byte that belongs to none of the rows 0..n-1.
inline void pack_padding(packed_layout const& layout, row_codec const& codec,
                         std::byte* out) noexcept {
  auto const zero = [out](std::int64_t begin, std::int64_t end) noexcept {
    std::memset(out + begin, 0, static_cast<std::size_t>(end - begin));
  };
  for (std::int64_t row = layout.n; row < layout.padded_n; ++row) {
    codec.pack(layout, nullptr, nullptr, row, out);
  }
  if (layout.block_scales_offset != layout.scales_offset) {
    zero(layout.block_scales_offset + layout.padded_n * block_scale_count(layout),
         layout.scales_offset);
  }
  if (layout.scale != scale_mode::none) {
    zero(scale_offset(layout, layout.n - 1, layout.k - 1) + std::int64_t{sizeof(float)},
         layout.total_bytes);
  }
}

/// Whether rows [first, first + rows) are rows of the weight.
[[nodiscard]] inline status check_rows(packed_layout const& layout, std::int64_t first,
                                       std::int64_t rows) noexcept {
  if (first >= 0 && first <= layout.n && rows >= 1 && rows <= layout.n - first) return {};
  return {status_code::invalid_shape, 0, "prepack: the parts' rows do not add up to n", first, -1};
}

/// Whether the fp32 scale may change at `row`, or the weight ends there.
[[nodiscard]] inline status check_boundary(packed_layout const& layout, std::int64_t row) noexcept {
  bool const by_tile = layout.scale == scale_mode::tensor || layout.scale == scale_mode::block;
  if (!by_tile || row % tile_n == 0 || row == layout.n) return {};
  return {
      status_code::invalid_shape, 0,
      "prepack: with a tensor scale or block scales every part but the last needs a multiple of "
      "32 rows",
      row, -1};
}

[[nodiscard]] inline status check_layout(packed_layout const& layout) noexcept {
  if (is_valid(layout)) return {};
  return {status_code::invalid_value, 0, "prepack: layout was not made by make_packed_layout"};
}

/// The shape rules that prepack and unpack share; Part is weight_part or unpacked_part.
template <class Part>
[[nodiscard]] status check_parts(packed_layout const& layout, Part const* parts,
                                 std::size_t count) noexcept {
  if (status const checked = check_layout(layout); !checked.ok()) return checked;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (status const checked = check_rows(layout, row, parts[i].n); !checked.ok()) return checked;
    if (status const checked = check_boundary(layout, row); !checked.ok()) return checked;
    row += parts[i].n;
  }
  if (row != layout.n) {
    return {status_code::invalid_shape, 0, "prepack: the parts' rows do not add up to n", row, -1};
  }
  return {};
}

}  // namespace detail

/// Packs some rows of the fused matrix, so that a loader needs no more of it in memory: `prepack`
/// in pieces. The bytes of all pieces together are those of one prepack of the whole.
///
/// Pieces may come in any order, and at the same time from several threads: they share no byte. The
/// piece with the last row writes the padding, too, so that `out` needs no preparation.
///
/// With a tensor scale pieces begin and end at multiples of 32 rows, or at the last row; with block
/// scales they also begin at a multiple of 128 rows of their part.
///
/// @param layout     from make_packed_layout
/// @param rows       rows.n rows of one part: its pointers are to the first of these rows
/// @param first_row  place of that row in the fused matrix
/// @param out        the whole weight: layout.total_bytes bytes, any alignment; what belongs to the
///                   rows is unspecified where the call fails
/// @return as prepack; invalid_shape: rows that the weight does not have, or a border inside a tile
[[nodiscard]] inline status prepack_rows(packed_layout const& layout, weight_part const& rows,
                                         std::int64_t first_row, std::byte* out) noexcept {
  if (status const checked = detail::check_layout(layout); !checked.ok()) return checked;
  status checked = detail::check_rows(layout, first_row, rows.n);
  if (checked.ok()) checked = detail::check_boundary(layout, first_row);
  if (checked.ok()) checked = detail::check_boundary(layout, first_row + rows.n);
  if (!checked.ok()) return checked;
  std::int64_t const groups = detail::block_scale_count(layout);
  if (rows.codes == nullptr || (groups != 0 && rows.block_scales == nullptr)) {
    return {status_code::invalid_value, 0, "prepack: a part has no codes or no block scales",
            first_row, -1};
  }
  std::int64_t const row_bytes = detail::published_row_bytes(layout);
  detail::row_codec const codec = detail::row_codec_of(layout);
  for (std::int64_t source = 0; source < rows.n; ++source) {
    std::int64_t const row = first_row + source;
    auto const* const codes = static_cast<std::byte const*>(rows.codes) + source * row_bytes;
    auto const* const scales =
        groups == 0 ? nullptr : static_cast<std::byte const*>(rows.block_scales) + source * groups;
    status packed = detail::check_codes(layout, codes, row);
    if (packed.ok()) packed = detail::check_block_scales(layout, scales, row);
    if (packed.ok()) packed = detail::pack_scale(layout, rows, source, row, out);
    if (!packed.ok()) return packed;
    codec.pack(layout, codes, scales, row, out);
  }
  if (first_row + rows.n == layout.n) detail::pack_padding(layout, codec, out);
  return {};
}

/// Packs published matrices, concatenated along n, into one weight. Padding is zero.
///
/// Layout cpu_tile32 keeps every byte of codes and block scales, signs of zeros and of block scales
/// included. Layouts for GPUs keep every weight's value and sign: a block scale with its sign
/// set is stored without it, and its codes' signs are flipped instead. They refuse bf16 weights
/// of 255.875 or more, since their kernels multiply them by 2^8 into fp16.
///
/// Scale mode tensor keeps one fp32 scale per 32-row tile, so every part but the last must have a
/// multiple of 32 rows. Scale mode channel keeps one per row and takes any boundary; a part without
/// channel_scales has its global_scale stored for each of its rows, so that parts of both kinds can
/// be fused. Scale mode block keeps one per tile and 128 k, with the boundaries of mode tensor and
/// global_scale for a part without scale_blocks.
///
/// @param layout  from make_packed_layout
/// @param parts   `count` matrices whose rows add up to layout.n
/// @param out     layout.total_bytes bytes, any alignment; unspecified where the call fails
/// @return invalid_value: a layout not made by make_packed_layout; or with row (of the fused
/// matrix) and column: a NaN
///         code or block scale, a non-finite 16-bit weight, one that does not fit the layout, a
///         non-finite fp32 scale. invalid_shape: rows do not add up, or a boundary inside a tile.
///         Deterministic.
[[nodiscard]] inline status prepack(packed_layout const& layout, weight_part const* parts,
                                    std::size_t count, std::byte* out) noexcept {
  if (status const checked = detail::check_parts(layout, parts, count); !checked.ok())
    return checked;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < count; ++i) {
    status const packed = prepack_rows(layout, parts[i], row, out);
    if (!packed.ok()) return packed;
    row += parts[i].n;
  }
  return {};
}

/// The inverse of prepack: writes the published matrices back, byte for byte, except that layouts
/// for GPUs return block scales without signs and their codes with flipped ones.
/// The parts' rows must be those that were packed (their shapes are not stored).
/// @return as prepack; also invalid_value with the row where a part of scale mode tensor, or a
/// block of mode block, holds
///         more than one scale, which means that the parts are not those that were packed
[[nodiscard]] inline status unpack(packed_weight const& weight, unpacked_part const* parts,
                                   std::size_t count) noexcept {
  packed_layout const& layout = weight.layout;
  if (status const checked = detail::check_parts(layout, parts, count); !checked.ok())
    return checked;
  std::int64_t const row_bytes = detail::published_row_bytes(layout);
  std::int64_t const groups = detail::block_scale_count(layout);
  bool const by_block = layout.scale == scale_mode::block;
  std::int64_t const columns = layout.scale == scale_mode::none ? 0 : detail::scale_columns(layout);
  detail::row_codec const codec = detail::row_codec_of(layout);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < count; ++i) {
    unpacked_part const& part = parts[i];
    for (std::int64_t r = 0; r < part.n; ++r, ++row) {
      auto const at = [r](void* rows, std::int64_t bytes) noexcept {
        return rows == nullptr ? nullptr : static_cast<std::byte*>(rows) + r * bytes;
      };
      codec.unpack(weight, row, at(part.codes, row_bytes), at(part.block_scales, groups));
      for (std::int64_t column = 0; column < columns; ++column) {
        float const scale = detail::stored_scale(weight, row, column);
        if (layout.scale == scale_mode::channel) {
          if (part.channel_scales != nullptr) part.channel_scales[r] = scale;
          continue;
        }
        std::int64_t const first = row - (by_block ? r % scale_block : r);
        if (detail::float_bits(scale) !=
            detail::float_bits(detail::stored_scale(weight, first, column))) {
          return detail::defect_status(detail::weight_defect::several_scales, row,
                                       by_block ? column : -1);
        }
        if (!by_block && part.global_scale != nullptr) *part.global_scale = scale;
        if (by_block && part.scale_blocks != nullptr) {
          part.scale_blocks[r / scale_block * columns + column] = scale;
        }
      }
    }
  }
  return {};
}

}  // namespace qpn
