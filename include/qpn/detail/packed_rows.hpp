// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qpn/config.hpp"
#include "qpn/detail/quadpair_codes.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"

// One row of codes and block scales, from its published form into each layout and back. `codes` and
// `block_scales` are the row as published, layout.k long. Rows share no byte of a packed weight, so
// that they can be written in any order and at the same time. Values are not checked here.

namespace qpn::detail {

/// Writes row `row` up to padded_k; null codes write a row of zeros.
inline void pack_row_tile32(packed_layout const& layout, std::byte const* codes,
                            std::byte const* block_scales, std::int64_t row,
                            std::byte* out) noexcept {
  std::int64_t const unit_bytes = code_unit_bytes(layout);
  std::int64_t const units = codes == nullptr ? 0 : code_units(layout, layout.k);
  std::int64_t const padded_units = code_units(layout, layout.padded_k);
  std::byte* const packed = out + code_offset(layout, row, 0);
  for (std::int64_t unit = 0; unit < padded_units; ++unit) {
    for (std::int64_t byte = 0; byte < unit_bytes; ++byte) {
      packed[unit * tile_n * unit_bytes + byte] =
          unit < units ? codes[unit * unit_bytes + byte] : std::byte{0};
    }
  }
  for (std::int64_t group = 0; group < block_scale_count(layout); ++group) {
    out[block_scale_offset(layout, row, group)] =
        codes == nullptr ? std::byte{0} : block_scales[group];
  }
}

/// The inverse of pack_row_tile32. Null pointers are skipped.
inline void unpack_row_tile32(packed_weight const& weight, std::int64_t row, std::byte* codes,
                              std::byte* block_scales) noexcept {
  packed_layout const& layout = weight.layout;
  std::int64_t const unit_bytes = code_unit_bytes(layout);
  for (std::int64_t unit = 0; codes != nullptr && unit < code_units(layout, layout.k); ++unit) {
    std::memcpy(codes + unit * unit_bytes, weight.data + code_offset(layout, row, unit),
                static_cast<std::size_t>(unit_bytes));
  }
  for (std::int64_t group = 0; block_scales != nullptr && group < block_scale_count(layout);
       ++group) {
    block_scales[group] = weight.data[block_scale_offset(layout, row, group)];
  }
}

/// Little-endian numbers at any address.
[[nodiscard]] QPN_HD inline std::uint16_t load_u16(std::byte const* at) noexcept {
  return static_cast<std::uint16_t>(static_cast<std::uint8_t>(at[0]) |
                                    static_cast<std::uint8_t>(at[1]) << 8);
}
[[nodiscard]] QPN_HD inline std::uint32_t load_u32(std::byte const* at) noexcept {
  return load_u16(at) | static_cast<std::uint32_t>(load_u16(at + 2)) << 16;
}
QPN_HD inline void store_u16(std::byte* at, std::uint16_t value) noexcept {
  at[0] = static_cast<std::byte>(value & 0xffu);
  at[1] = static_cast<std::byte>(value >> 8);
}

// Layouts for GPUs. A word's codes, in the order of k, between published row and word; k is that of
// the word's first code. Codes past the row's end are zero and are not written back. Host and
// device pack with these.

[[nodiscard]] QPN_HD inline std::uint32_t read_word(nvfp4, packed_layout const&,
                                                    std::byte const* codes,
                                                    std::byte const* block_scales,
                                                    std::int64_t k) noexcept {
  // k and the row's length are multiples of 8: the word is of one group and wholly in the row.
  auto const scale = static_cast<std::uint8_t>(block_scales[k / nvfp4::group_k]);
  std::uint32_t word = load_u32(codes + k / 2);
  if ((scale & 0x80u) != 0) word ^= 0x88888888u;
  std::uint8_t unpacked[8] = {};
  QPN_UNROLL
  for (int i = 0; i < 8; ++i) unpacked[i] = static_cast<std::uint8_t>(word >> 4 * i & 0xfu);
  return pack_e2m1_word(unpacked);
}

QPN_HD inline void write_word(nvfp4, packed_layout const&, std::uint32_t word, std::int64_t k,
                              std::byte* codes) noexcept {
  std::uint8_t unpacked[8] = {};
  unpack_e2m1_word(word, unpacked);
  QPN_UNROLL
  for (int i = 0; i < 4; ++i) {
    codes[k / 2 + i] = static_cast<std::byte>(unpacked[2 * i] | unpacked[2 * i + 1] << 4);
  }
}

[[nodiscard]] QPN_HD inline std::uint32_t read_word(fp8, packed_layout const& layout,
                                                    std::byte const* codes, std::byte const*,
                                                    std::int64_t k) noexcept {
  std::uint8_t word[4] = {};
  QPN_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (k + i < layout.k) word[i] = static_cast<std::uint8_t>(codes[k + i]);
  }
  return pack_e4m3_word(word);
}

QPN_HD inline void write_word(fp8, packed_layout const& layout, std::uint32_t word, std::int64_t k,
                              std::byte* codes) noexcept {
  std::uint8_t unpacked[4] = {};
  unpack_e4m3_word(word, unpacked);
  QPN_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (k + i < layout.k) codes[k + i] = static_cast<std::byte>(unpacked[i]);
  }
}

[[nodiscard]] QPN_HD inline std::uint32_t read_word(dense16, packed_layout const& layout,
                                                    std::byte const* codes, std::byte const*,
                                                    std::int64_t k) noexcept {
  std::uint16_t words[2] = {};
  QPN_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (k + i < layout.k) words[i] = load_u16(codes + 2 * (k + i));
  }
  return pack_dense_word(words);
}

QPN_HD inline void write_word(dense16, packed_layout const& layout, std::uint32_t word,
                              std::int64_t k, std::byte* codes) noexcept {
  std::uint16_t words[2] = {};
  unpack_dense_word(word, words);
  QPN_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (k + i < layout.k) store_u16(codes + 2 * (k + i), words[i]);
  }
}

/// The word whose first code is k, k < padded_k, of a row; null codes are a row of zeros.
template <class Format>
[[nodiscard]] QPN_HD std::uint32_t pack_word(packed_layout const& layout, std::byte const* codes,
                                             std::byte const* block_scales,
                                             std::int64_t k) noexcept {
  if (codes == nullptr || k >= layout.k) return 0;
  return read_word(Format{}, layout, codes, block_scales, k);
}

/// The scale byte of a group, group < padded_k / 16, of a row; null codes are a row of zeros.
[[nodiscard]] QPN_HD inline std::uint8_t pack_scale_byte(packed_layout const& layout,
                                                         std::byte const* codes,
                                                         std::byte const* block_scales,
                                                         std::int64_t group) noexcept {
  if (codes == nullptr || group >= block_scale_count(layout)) return 0;
  return encode_block_scale(static_cast<std::uint8_t>(block_scales[group]));
}

/// Writes row `row` up to padded_k; null codes write a row of zeros.
template <class Format>
void pack_row_records(packed_layout const& layout, std::byte const* codes,
                      std::byte const* block_scales, std::int64_t row, std::byte* out) noexcept {
  using record = quadpair_record<Format>;
  for (std::int64_t k = 0; k < layout.padded_k; k += record::codes_per_word) {
    std::uint32_t const word = pack_word<Format>(layout, codes, block_scales, k);
    std::memcpy(out + word_offset<Format>(layout, row, k), &word, sizeof word);
  }
  if constexpr (Format::group_k != 0) {
    for (std::int64_t group = 0; group < layout.padded_k / Format::group_k; ++group) {
      out[scale_byte_offset(layout, row, group)] =
          static_cast<std::byte>(pack_scale_byte(layout, codes, block_scales, group));
    }
  }
}

/// The inverse of pack_row_records, in canonical form: block scales without signs. Null pointers
/// are skipped.
template <class Format>
void unpack_row_records(packed_weight const& weight, std::int64_t row, std::byte* codes,
                        std::byte* block_scales) noexcept {
  using record = quadpair_record<Format>;
  packed_layout const& layout = weight.layout;
  for (std::int64_t k = 0; codes != nullptr && k < layout.k; k += record::codes_per_word) {
    std::uint32_t word = 0;
    std::memcpy(&word, weight.data + word_offset<Format>(layout, row, k), sizeof word);
    write_word(Format{}, layout, word, k, codes);
  }
  for (std::int64_t group = 0; block_scales != nullptr && group < block_scale_count(layout);
       ++group) {
    auto const byte = static_cast<std::uint8_t>(weight.data[scale_byte_offset(layout, row, group)]);
    block_scales[group] = static_cast<std::byte>(decode_block_scale(byte));
  }
}

/// The row functions of one layout and format.
struct row_codec {
  /// Writes a row up to padded_k; null codes write a row of zeros.
  void (*pack)(packed_layout const& layout, std::byte const* codes, std::byte const* block_scales,
               std::int64_t row, std::byte* out) noexcept;
  /// Reads a row back. Null pointers are skipped.
  void (*unpack)(packed_weight const& weight, std::int64_t row, std::byte* codes,
                 std::byte* block_scales) noexcept;
};

/// The functions for a valid layout.
[[nodiscard]] inline row_codec row_codec_of(packed_layout const& layout) noexcept {
  constexpr row_codec tile32 = {pack_row_tile32, unpack_row_tile32};
  if (layout.id == layout_id::cpu_tile32) return tile32;
  return visit_format<row_codec>(layout.format, tile32, [](auto format) noexcept -> row_codec {
    using Format = decltype(format);
    return {pack_row_records<Format>, unpack_row_records<Format>};
  });
}

}  // namespace qpn::detail
