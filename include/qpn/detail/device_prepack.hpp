// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/alignment.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/packed_rows.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/detail/weight_defect.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/prepack.hpp"
#include "qpn/prepack_report.hpp"
#include "qpn/status.hpp"

// prepack_rows and unpack_rows on a GPU as lane programs (detail/lane_types.hpp); the launches are
// in prepack.cuh. A CTA takes one unit: the records of a tile group, two tiles, at one step of k.
// Threads share no byte and no order. Published rows may lie at any address, so they are read and
// written byte by byte; packed bytes move in words, side by side within a warp.

namespace qpn::detail {

/// One thread for each 16 bytes of codes: 32 lanes, 2 halves, 2 tiles.
inline constexpr int prepack_threads = 128;

/// One thread for each word: the 8 of a row side by side, 32 rows, 2 tiles.
inline constexpr int word_threads = 512;

/// Units, one for each CTA, of the tile groups that hold rows [first_row, first_row + rows); fits
/// int for a valid layout.
template <class Format>
[[nodiscard]] constexpr std::int64_t units_of_rows(packed_layout const& layout,
                                                   std::int64_t first_row,
                                                   std::int64_t rows) noexcept {
  std::int64_t const groups = (first_row + rows - 1) / (2 * tile_n) - first_row / (2 * tile_n) + 1;
  return groups * (layout.padded_k / quadpair_record<Format>::k);
}

/// A tile at a step of k.
struct tile_step {
  std::int64_t tile;
  std::int64_t step;
};

/// Tile 0 or 1 of a CTA's unit; the first CTA has the first step of the group of first_row.
template <class Format>
[[nodiscard]] QPN_HD constexpr tile_step tile_of_unit(packed_layout const& layout,
                                                      std::int64_t first_row, int block,
                                                      int tile) noexcept {
  auto const steps = static_cast<std::uint32_t>(layout.padded_k / quadpair_record<Format>::k);
  auto const unit = static_cast<std::uint32_t>(block);
  std::int64_t const group = first_row / (2 * tile_n) + unit / steps;
  return {2 * group + tile, unit % steps};
}

/// The place of a thread of a program with one thread for each word.
struct word_place {
  std::int64_t row;
  std::int64_t step;
  int word;                    ///< 0..7, of the row in the record
  std::int64_t record_offset;  ///< of the record
  int word_offset;             ///< in the record
};

template <class Format>
[[nodiscard]] QPN_HD constexpr word_place word_of_thread(packed_layout const& layout,
                                                         std::int64_t first_row, int block,
                                                         int thread) noexcept {
  using record = quadpair_record<Format>;
  int const word = thread % record::words;
  int const row = thread / record::words % static_cast<int>(tile_n);
  tile_step const at = tile_of_unit<Format>(layout, first_row, block, thread / (word_threads / 2));
  return {at.tile * tile_n + row, at.step, word, record_offset<Format>(layout, at.tile, at.step),
          record::word_offset(lane_of_weight_row(row), word)};
}

/// Pointers are to device memory.
struct prepack_params {
  packed_layout layout;
  weight_part rows;
  std::int64_t first_row = 0;
  std::byte* out = nullptr;
  prepack_report* report = nullptr;
};

/// Keeps the first defect in the order of rows.
template <class Lane>
QPN_HD void report_defect(Lane& lane, packed_layout const& layout, prepack_report* report,
                          std::int64_t row, std::int64_t place, weight_defect defect) noexcept {
  if (defect == weight_defect::none) return;
  lane.atomic_max(&report->first_defect, defect_key(layout, row, place, defect));
}

/// Writes fp32 scale `index` of the packed weight.
template <class Lane>
QPN_HD void store_scale(Lane& lane, prepack_params const& p, std::int64_t index,
                        float scale) noexcept {
  lane.store(reinterpret_cast<float*>(p.out + p.layout.scales_offset) + index, scale);
}

/// The fp32 scales of one row, or of its tile; `published`: the row is one of the piece, else it is
/// padding.
template <class Lane>
QPN_HD void prepack_scale(Lane& lane, prepack_params const& p, std::int64_t row,
                          bool published) noexcept {
  packed_layout const& layout = p.layout;
  std::int64_t const in_tile = row % tile_n;
  std::int64_t const columns = scale_columns(layout);
  if (layout.scale == scale_mode::channel || in_tile == 0) {
    std::int64_t const line = layout.scale == scale_mode::channel ? row : row / tile_n;
    QPN_NO_UNROLL
    for (std::int64_t column = 0; column < columns; ++column) {
      float const scale =
          published ? scale_of_row(layout, p.rows, row - p.first_row, column) : 0.0f;
      if (!is_finite(scale)) {
        report_defect(lane, layout, p.report, row, scale_place(layout) + column,
                      weight_defect::infinite_scale);
      }
      store_scale(lane, p, line * columns + column, scale);
    }
    return;
  }
  // Scales of tiles: the other rows of the last tile zero what is left of the section.
  std::int64_t const index = (row / tile_n + 1) * columns + in_tile - 1;
  bool const in_last_tile = row / tile_n == layout.padded_n / tile_n - 1;
  if (in_last_tile && index < (layout.total_bytes - layout.scales_offset) / 4) {
    store_scale(lane, p, index, 0.0f);
  }
}

/// Packs rows [first_row, first_row + rows.n): bytes as prepack_rows of the host writes them.
/// Blocks: units_of_rows; prepack_threads threads.
template <class Format, class Lane>
QPN_HD void prepack_program(Lane& lane, prepack_params const& p) noexcept {
  using record = quadpair_record<Format>;
  packed_layout const& layout = p.layout;
  int const id = lane.thread() % warp_lanes;
  int const half = lane.thread() / warp_lanes % 2;
  tile_step const at = tile_of_unit<Format>(layout, p.first_row, lane.block(),
                                            lane.thread() / (prepack_threads / 2));
  std::int64_t const row = at.tile * tile_n + weight_row_of_lane(id);
  std::int64_t const end = p.first_row + p.rows.n;
  bool const published = row >= p.first_row && row < end;
  bool const padding = row >= layout.n && end == layout.n;
  if (!published && !padding) return;

  std::int64_t const source = row - p.first_row;
  std::int64_t const groups = block_scale_count(layout);
  std::byte const* const codes =
      published ? static_cast<std::byte const*>(p.rows.codes) + source * published_row_bytes(layout)
                : nullptr;
  std::byte const* const block_scales =
      published && groups != 0
          ? static_cast<std::byte const*>(p.rows.block_scales) + source * groups
          : nullptr;
  std::byte* const packed = p.out + record_offset<Format>(layout, at.tile, at.step);

  word4 words{};
  std::int64_t const first_k = at.step * record::k + half * (record::k / 2);
  QPN_UNROLL
  for (int j = 0; j < 4; ++j) {
    std::int64_t const k = first_k + j * record::codes_per_word;
    words.w[j] = pack_word<Format>(layout, codes, block_scales, k);
    QPN_UNROLL
    for (int i = 0; i < record::codes_per_word; ++i) {
      if (codes == nullptr || k + i >= layout.k) continue;
      report_defect(lane, layout, p.report, row, k + i,
                    code_defect(Format{}, layout, codes, k + i));
    }
  }
  lane.store(reinterpret_cast<word4*>(packed + record::word_offset(id, 4 * half)), words);

  if (half != 0) return;
  if constexpr (record::scales_per_lane != 0) {
    std::uint32_t scales = 0;
    QPN_UNROLL
    for (int i = 0; i < record::scales_per_lane; ++i) {
      std::int64_t const group = at.step * record::scales_per_lane + i;
      std::uint32_t const byte = pack_scale_byte(layout, codes, block_scales, group);
      scales |= byte << 8 * i;
      if (codes == nullptr || group >= groups) continue;
      report_defect(lane, layout, p.report, row, block_scale_place(layout, group),
                    block_scale_defect(block_scales, group));
    }
    lane.store(reinterpret_cast<std::uint32_t*>(packed + record::scale_offset(id, 0)), scales);
  }
  if (at.step == 0 && layout.scale != scale_mode::none) prepack_scale(lane, p, row, published);
}

/// Pointers are to device memory.
struct unpack_params {
  packed_weight weight;
  unpacked_part rows;
  std::int64_t first_row = 0;
  prepack_report* report = nullptr;
};

/// Reads the fp32 scales of a row back. Rows of one part have one tensor scale, those of a block of
/// 128 one in each column.
template <class Lane>
QPN_HD void unpack_scale(Lane& lane, unpack_params const& p, std::int64_t row) noexcept {
  packed_layout const& layout = p.weight.layout;
  auto const load = [&](std::int64_t of_row, std::int64_t column) noexcept {
    return lane.load(reinterpret_cast<float const*>(
        p.weight.data + scale_offset(layout, of_row, column * scale_block)));
  };
  std::int64_t const source = row - p.first_row;
  if (layout.scale == scale_mode::channel) {
    if (p.rows.channel_scales != nullptr) lane.store(p.rows.channel_scales + source, load(row, 0));
    return;
  }
  if (row % tile_n != 0) return;
  bool const by_block = layout.scale == scale_mode::block;
  std::int64_t const in_part = by_block ? source % scale_block : source;
  std::int64_t const columns = scale_columns(layout);
  QPN_NO_UNROLL
  for (std::int64_t column = 0; column < columns; ++column) {
    float const scale = load(row, column);
    if (in_part == 0 && !by_block && p.rows.global_scale != nullptr) {
      lane.store(p.rows.global_scale, scale);
    }
    if (in_part == 0 && by_block && p.rows.scale_blocks != nullptr) {
      lane.store(p.rows.scale_blocks + source / scale_block * columns + column, scale);
    }
    if (float_bits(scale) != float_bits(load(row - in_part, column))) {
      report_defect(lane, layout, p.report, row, scale_place(layout) + column,
                    weight_defect::several_scales);
    }
  }
}

/// Writes rows [first_row, first_row + rows.n) back as published. Blocks: units_of_rows;
/// word_threads threads.
template <class Format, class Lane>
QPN_HD void unpack_program(Lane& lane, unpack_params const& p) noexcept {
  using record = quadpair_record<Format>;
  packed_layout const& layout = p.weight.layout;
  word_place const at = word_of_thread<Format>(layout, p.first_row, lane.block(), lane.thread());
  std::int64_t const source = at.row - p.first_row;
  if (source < 0 || source >= p.rows.n) return;
  std::byte const* const packed = p.weight.data + at.record_offset;

  std::int64_t const k = at.step * record::k + at.word * record::codes_per_word;
  if (p.rows.codes != nullptr && k < layout.k) {
    std::uint32_t const word =
        lane.load_stream(reinterpret_cast<std::uint32_t const*>(packed + at.word_offset));
    write_word(Format{}, layout, word, k,
               static_cast<std::byte*>(p.rows.codes) + source * published_row_bytes(layout));
  }
  if constexpr (record::scales_per_lane != 0) {
    std::int64_t const groups = block_scale_count(layout);
    std::int64_t const group = at.step * record::scales_per_lane + at.word;
    if (p.rows.block_scales != nullptr && at.word < record::scales_per_lane && group < groups) {
      int const id = lane_of_weight_row(static_cast<int>(at.row % tile_n));
      auto const byte = static_cast<std::uint8_t>(packed[record::scale_offset(id, at.word)]);
      static_cast<std::byte*>(p.rows.block_scales)[source * groups + group] =
          static_cast<std::byte>(decode_block_scale(byte));
    }
  }
  if (at.step == 0 && at.word == 0 && layout.scale != scale_mode::none) {
    unpack_scale(lane, p, at.row);
  }
}

/// What the calls on rows of a weight in device memory share.
template <class Format>
[[nodiscard]] status check_device_rows(packed_layout const& layout, std::int64_t first_row,
                                       std::int64_t rows) noexcept {
  if (layout.id != layout_id::sm70_quadpair || !is_valid(layout)) {
    return {status_code::invalid_value, 0, "prepack: the weight has no valid sm70_quadpair layout"};
  }
  if (layout.format != Format::id) {
    return {status_code::unsupported_format, 0, "prepack: the layout has another format"};
  }
  status checked = check_rows(layout, first_row, rows);
  if (checked.ok()) checked = check_boundary(layout, first_row);
  if (checked.ok()) checked = check_boundary(layout, first_row + rows);
  return checked;
}

template <class Format>
[[nodiscard]] status check_prepack(prepack_params const& p) noexcept {
  status const checked = check_device_rows<Format>(p.layout, p.first_row, p.rows.n);
  if (!checked.ok()) return checked;
  if (p.rows.codes == nullptr || (Format::group_k != 0 && p.rows.block_scales == nullptr)) {
    return {status_code::invalid_value, 0, "prepack: a part has no codes or no block scales",
            p.first_row, -1};
  }
  if (p.out == nullptr || p.report == nullptr) {
    return {status_code::invalid_value, 0, "prepack: the weight or the report is null"};
  }
  if (!is_aligned_to(128, p.out) || !is_aligned_to(4, p.rows.channel_scales) ||
      !is_aligned_to(4, p.rows.scale_blocks) || !is_aligned_to(8, p.report)) {
    return {status_code::misaligned, 0,
            "prepack: the weight must be 128-byte aligned, scales and report to their elements"};
  }
  return {};
}

template <class Format>
[[nodiscard]] status check_unpack(unpack_params const& p) noexcept {
  status const checked = check_device_rows<Format>(p.weight.layout, p.first_row, p.rows.n);
  if (!checked.ok()) return checked;
  if (p.weight.data == nullptr || p.report == nullptr) {
    return {status_code::invalid_value, 0, "unpack: the weight or the report is null"};
  }
  if (!is_aligned_to(128, p.weight.data) || !is_aligned_to(4, p.rows.channel_scales) ||
      !is_aligned_to(4, p.rows.global_scale) || !is_aligned_to(4, p.rows.scale_blocks) ||
      !is_aligned_to(8, p.report)) {
    return {status_code::misaligned, 0,
            "unpack: the weight must be 128-byte aligned, scales and report to their elements"};
  }
  return {};
}

}  // namespace qpn::detail
