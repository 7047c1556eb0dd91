// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "qpn/config.hpp"
#include "qpn/detail/alignment.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/detail/device_prepack.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/quadpair_codes.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"

// dequantize on a GPU as a lane program; the launch is in dequantize.cuh. One thread for each
// packed word: 8 threads side by side read and write one row's part of a record, so that both the
// packed bytes and the rows of the result move in whole 32-byte sectors.

namespace qpn::detail {

/// Pointers are to device memory.
struct dequantize_params {
  packed_weight weight;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  void* out = nullptr;
  dtype out_type = dtype::f16;
  std::int64_t ldo = 0;
  bool by_words = false;    ///< rows of `out` are 16-byte aligned
  bool with_scales = true;  ///< the fp32 ones; block scales always count
  float factor = 1.0f;      ///< of every value: a power of two
};

/// The codes of a word as numbers, times `scale`, the block scale: exact.
QPN_HD constexpr void decode_word(nvfp4, packed_layout const&, std::uint32_t word, float scale,
                                  float (&values)[8]) noexcept {
  std::uint8_t codes[8] = {};
  unpack_e2m1_word(word, codes);
  QPN_UNROLL
  for (int i = 0; i < 8; ++i) values[i] = decode_e2m1(codes[i]) * scale;
}

QPN_HD constexpr void decode_word(fp8, packed_layout const&, std::uint32_t word, float,
                                  float (&values)[4]) noexcept {
  std::uint8_t codes[4] = {};
  unpack_e4m3_word(word, codes);
  QPN_UNROLL
  for (int i = 0; i < 4; ++i) values[i] = decode_e4m3(codes[i]);
}

QPN_HD constexpr void decode_word(dense16, packed_layout const& layout, std::uint32_t word, float,
                                  float (&values)[2]) noexcept {
  std::uint16_t codes[2] = {};
  unpack_dense_word(word, codes);
  QPN_UNROLL
  for (int i = 0; i < 2; ++i) {
    values[i] = layout.code_type == dtype::f16 ? decode_f16(codes[i]) : decode_bf16(codes[i]);
  }
}

/// Finite values become finite in f16, by the rule of encode_f16_saturating.
[[nodiscard]] QPN_HD constexpr float clamp_to_f16(float value) noexcept {
  if (!is_finite(value)) return value;
  return value > f16_max ? f16_max : value < -f16_max ? -f16_max : value;
}

struct alignas(8) word2 {
  std::uint32_t w[2];
};

/// Stores words at a multiple of 4 * Words bytes, or of 16 if that is less.
template <int Words, class Lane>
QPN_HD void store_words(Lane& lane, std::byte* at, std::uint32_t const (&words)[Words]) noexcept {
  if constexpr (Words % 4 == 0) {
    QPN_UNROLL
    for (int i = 0; i < Words; i += 4) {
      lane.store(reinterpret_cast<word4*>(at + 4 * i),
                 word4{{words[i], words[i + 1], words[i + 2], words[i + 3]}});
    }
  } else if constexpr (Words == 2) {
    lane.store(reinterpret_cast<word2*>(at), word2{{words[0], words[1]}});
  } else {
    static_assert(Words == 1, "a packed word has 2, 4 or 8 codes");
    lane.store(reinterpret_cast<std::uint32_t*>(at), words[0]);
  }
}

/// Stores the first `left` (>= 1) of Count values at element `at` of the result.
template <int Count, class Lane>
QPN_HD void store_values(Lane& lane, dequantize_params const& p, std::int64_t at, std::int64_t left,
                         float const (&values)[Count]) noexcept {
  bool const by_words = p.by_words && left >= Count;
  if (p.out_type == dtype::f32) {
    float* const out = static_cast<float*>(p.out) + at;
    if (by_words) {
      std::uint32_t words[Count];
      QPN_UNROLL
      for (int i = 0; i < Count; ++i) words[i] = float_bits(values[i]);
      store_words(lane, reinterpret_cast<std::byte*>(out), words);
      return;
    }
    QPN_UNROLL
    for (int i = 0; i < Count; ++i) {
      if (i < left) lane.store(out + i, values[i]);
    }
    return;
  }
  std::uint16_t* const out = static_cast<std::uint16_t*>(p.out) + at;
  std::uint32_t words[Count / 2];
  QPN_UNROLL
  for (int i = 0; i < Count / 2; ++i) {
    words[i] = lane.convert_half2(clamp_to_f16(values[2 * i]), clamp_to_f16(values[2 * i + 1]));
  }
  if (by_words) {
    store_words(lane, reinterpret_cast<std::byte*>(out), words);
    return;
  }
  QPN_UNROLL
  for (int i = 0; i < Count; ++i) {
    if (i < left) lane.store(out + i, static_cast<std::uint16_t>(words[i / 2] >> 16 * (i % 2)));
  }
}

/// Writes rows [first_row, first_row + rows) as numbers. Blocks: units_of_rows; word_threads
/// threads.
template <class Format, class Lane>
QPN_HD void dequantize_program(Lane& lane, dequantize_params const& p) noexcept {
  using record = quadpair_record<Format>;
  packed_layout const& layout = p.weight.layout;
  word_place const at = word_of_thread<Format>(layout, p.first_row, lane.block(), lane.thread());
  std::int64_t const row = at.row - p.first_row;
  std::int64_t const k = at.step * record::k + at.word * record::codes_per_word;
  if (row < 0 || row >= p.rows || k >= layout.k) return;

  std::byte const* const packed = p.weight.data + at.record_offset;
  std::uint32_t const word =
      lane.load_stream(reinterpret_cast<std::uint32_t const*>(packed + at.word_offset));
  float block_scale = 1.0f;
  if constexpr (Format::group_k != 0) {
    constexpr int words_per_group = Format::group_k / record::codes_per_word;
    int const id = lane_of_weight_row(static_cast<int>(at.row % tile_n));
    auto const byte =
        static_cast<std::uint8_t>(packed[record::scale_offset(id, at.word / words_per_group)]);
    block_scale = decode_f16(static_cast<std::uint16_t>(byte << 7)) * 0.0078125f;  // 2^-7
  }
  float values[record::codes_per_word];
  decode_word(Format{}, layout, word, block_scale, values);
  float scale = p.factor;
  if (p.with_scales && layout.scale != scale_mode::none) {
    scale *=
        lane.load(reinterpret_cast<float const*>(p.weight.data + scale_offset(layout, at.row, k)));
  }
  QPN_UNROLL
  for (int i = 0; i < record::codes_per_word; ++i) values[i] *= scale;
  store_values(lane, p, row * p.ldo + k, layout.k - k, values);
}

/// Also decides by_words.
template <class Format>
[[nodiscard]] status check_dequantize(dequantize_params& p) noexcept {
  packed_layout const& layout = p.weight.layout;
  if (layout.id != layout_id::sm70_quadpair || !is_valid(layout)) {
    return {status_code::invalid_value, 0,
            "dequantize: the weight has no valid sm70_quadpair layout"};
  }
  if (layout.format != Format::id) {
    return {status_code::unsupported_format, 0, "dequantize: the layout has another format"};
  }
  if (p.out_type != dtype::f16 && p.out_type != dtype::f32) {
    return {status_code::unsupported_format, 0, "dequantize: the result must be f16 or f32"};
  }
  if (p.first_row < 0 || p.first_row > layout.n || p.rows < 1 || p.rows > layout.n - p.first_row) {
    return {status_code::invalid_shape, 0, "dequantize: the weight does not have these rows",
            p.first_row, -1};
  }
  if (p.ldo < layout.k) {
    return {status_code::invalid_shape, 0, "dequantize: ldo must be at least k"};
  }
  if (p.ldo > (std::numeric_limits<std::int64_t>::max)() / 4 / p.rows) {
    return {status_code::invalid_shape, 0, "dequantize: the size of the result exceeds 64 bits"};
  }
  if (p.weight.data == nullptr || p.out == nullptr) {
    return {status_code::invalid_value, 0, "dequantize: the weight or the result is null"};
  }
  int const element_bytes = bits(p.out_type) / 8;
  if (!is_aligned_to(128, p.weight.data) ||
      !is_aligned_to(static_cast<std::uintptr_t>(element_bytes), p.out)) {
    return {status_code::misaligned, 0,
            "dequantize: the weight must be 128-byte aligned, the result to its elements"};
  }
  p.by_words = is_aligned_to(16, p.out) && p.ldo * element_bytes % 16 == 0;
  return {};
}

}  // namespace qpn::detail
