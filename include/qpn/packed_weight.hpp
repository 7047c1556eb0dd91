// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "qpn/detail/mma16_map.hpp"
#include "qpn/detail/quadpair_map.hpp"
#include "qpn/detail/slice_split.hpp"
#include "qpn/detail/work_split.hpp"
#include "qpn/device_info.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/status.hpp"

namespace qpn {

/// Rows of one tile: the unit of fp32 tensor scales and of work splitting, in every layout.
inline constexpr std::int64_t tile_n = 32;

enum class layout_id : std::uint8_t { cpu_tile32 = 1, sm70_quadpair = 2, sm80_mma16 = 3 };

/// Where the bytes of a packed weight are: a value that can be compared, copied and stored with the
/// bytes.
///
/// Layout cpu_tile32, version 1. The weight [n, k] is cut into tiles of 32 rows; n is padded to a
/// multiple of 32 and k to a multiple of 16 with zero bytes. Within a tile k runs slowest and the
/// row fastest, so that a vector register holds neighbouring rows:
///   codes, nvfp4     [padded_n / 32][padded_k / 2][32] bytes; low nibble = even k, as published
///   codes, fp8       [padded_n / 32][padded_k][32] bytes
///   codes, dense16   [padded_n / 32][padded_k][32] little-endian 16-bit words
///   block scales     [padded_n / 32][padded_k / 16][32] e4m3 bytes (nvfp4 only)
///   scales, tensor   [padded_n / 32] fp32
///   scales, channel  [padded_n] fp32
///   scales, block    [padded_n / 32][k / 128, rounded up] fp32
/// Sections start at multiples of 64 bytes from the first byte of the weight. The bytes themselves
/// may lie anywhere; at a multiple of 64 bytes no tile shares a cache line with another.
///
/// Layout sm70_quadpair, version 1: for kernels over mma.m8n8k4. n is padded to a multiple of 64
/// (two tiles, a tile group) and k to a multiple of a record's k with zero bits.
///   records          [padded_n / 64][padded_k / record k][2 tiles of the group][record bytes]
///   scales, tensor   [padded_n / 32] fp32
///   scales, channel  [padded_n] fp32
///   scales, block    [padded_n / 32][k / 128, rounded up] fp32
/// A record is what one warp reads for one tile and one step of k; those of a group's two tiles lie
/// side by side, so that one pointer serves both. detail/quadpair_map.hpp says where a record's
/// words are, detail/quadpair_codes.hpp what they hold:
///   nvfp4    64 k, 1152 bytes: e2m1 codes, then the 4 block scales of each row without signs;
///            the codes of a negative scale have theirs flipped
///   fp8      32 k, 1024 bytes: e4m3 codes
///   dense16  16 k, 1024 bytes: 16-bit words as published; kernels round 2^8 times a bf16 to fp16
/// Sections start at multiples of 128 bytes; in device memory the weight itself must, too. `ctas`
/// fixes the order of summation: kernels split the work over that many CTAs whatever m is. There
/// are at most 2^31 - 1 units of work (a tile group at a step), so that kernels count them in int.
///
/// Layout sm80_mma16, version 1: for kernels over mma.m16n8k16. Padding, sections and alignments
/// are those of sm70_quadpair; it also takes block scales:
///   scales, block    [padded_n / 32][k / 128, rounded up] fp32
/// A record has the size of a quadpair one and serves a strip: 16 rows of each of a group's two
/// tiles:
///   records          [padded_n / 32 strips][padded_k / record k][record bytes]
/// detail/mma16_map.hpp says where a record's words are. Here `ctas` is the number of slices of k
/// that the warps of one CTA share, detail/slice_split.hpp: it fixes the order of summation.
struct packed_layout {
  layout_id id = layout_id::cpu_tile32;
  std::uint16_t version = 1;
  format_id format = format_id::dense16;
  dtype code_type = dtype::f16;  ///< e2m1, e4m3, or for dense16: f16 or bf16
  scale_mode scale = scale_mode::none;
  std::int64_t n = 0;         ///< output rows
  std::int64_t k = 0;         ///< reduction length
  std::int64_t padded_n = 0;  ///< multiple of 32; in layouts for GPUs of 64
  std::int64_t padded_k = 0;  ///< multiple of 16; in layouts for GPUs of a record's k
  std::int64_t codes_offset = 0;
  std::int64_t block_scales_offset =
      0;                           ///< bytes; equals scales_offset where there is no such section
  std::int64_t scales_offset = 0;  ///< bytes; equals total_bytes where there are no fp32 scales
  std::int64_t total_bytes = 0;
  /// CTAs that share the work, see detail/work_split.hpp; sm80_mma16: slices of k; cpu_tile32: 0
  std::int32_t ctas = 0;
};

[[nodiscard]] constexpr bool operator==(packed_layout const& a, packed_layout const& b) noexcept {
  return a.id == b.id && a.version == b.version && a.format == b.format &&
         a.code_type == b.code_type && a.scale == b.scale && a.n == b.n && a.k == b.k &&
         a.padded_n == b.padded_n && a.padded_k == b.padded_k && a.codes_offset == b.codes_offset &&
         a.block_scales_offset == b.block_scales_offset && a.scales_offset == b.scales_offset &&
         a.total_bytes == b.total_bytes && a.ctas == b.ctas;
}

[[nodiscard]] constexpr bool operator!=(packed_layout const& a, packed_layout const& b) noexcept {
  return !(a == b);
}

/// A packed weight: its layout and its bytes. Does not own them.
struct packed_weight {
  packed_layout layout;
  std::byte const* data = nullptr;
};

namespace detail {

/// a * b, both >= 0; false where the product exceeds int64.
[[nodiscard]] constexpr bool checked_multiply(std::int64_t a, std::int64_t b,
                                              std::int64_t& product) noexcept {
  if (b != 0 && a > (std::numeric_limits<std::int64_t>::max)() / b) return false;
  product = a * b;
  return true;
}

/// The next multiple of `unit` (> 0) at or above value (>= 0); false where it exceeds int64.
[[nodiscard]] constexpr bool checked_round_up(std::int64_t value, std::int64_t unit,
                                              std::int64_t& rounded) noexcept {
  if (value > (std::numeric_limits<std::int64_t>::max)() - (unit - 1)) return false;
  rounded = (value + (unit - 1)) / unit * unit;
  return true;
}

/// Appends a section of rows * columns elements at `end`, which moves to the next multiple of
/// `alignment` bytes.
[[nodiscard]] constexpr bool append_section(std::int64_t rows, std::int64_t columns,
                                            std::int64_t element_bits, std::int64_t alignment,
                                            std::int64_t& end) noexcept {
  std::int64_t elements = 0;
  std::int64_t section_bits = 0;
  std::int64_t section_bytes = 0;
  if (!checked_multiply(rows, columns, elements)) return false;
  if (!checked_multiply(elements, element_bits, section_bits)) return false;
  if (!checked_round_up(section_bits / 8, alignment, section_bytes)) return false;
  if (end > (std::numeric_limits<std::int64_t>::max)() - section_bytes) return false;
  end += section_bytes;
  return true;
}

/// fp32 scales along k that a row has, in every layout; scale mode not none.
[[nodiscard]] QPN_HD constexpr std::int64_t scale_columns(packed_layout const& layout) noexcept {
  return layout.scale == scale_mode::block ? (layout.k - 1) / scale_block + 1 : 1;
}

/// Appends the section of fp32 scales, empty where there are none: the last one of every layout.
[[nodiscard]] constexpr bool append_scales(std::int64_t alignment, packed_layout& layout) noexcept {
  std::int64_t const rows = layout.scale == scale_mode::none      ? 0
                            : layout.scale == scale_mode::channel ? layout.padded_n
                                                                  : layout.padded_n / tile_n;
  layout.total_bytes = layout.scales_offset;
  return append_section(rows, scale_columns(layout), 32, alignment, layout.total_bytes);
}

/// The padded sizes and the sections of layout cpu_tile32; false where they exceed 64 bits.
template <class Format>
[[nodiscard]] constexpr bool place_tile32(packed_layout& layout) noexcept {
  constexpr std::int64_t alignment = 64;
  layout.id = layout_id::cpu_tile32;
  if (!checked_round_up(layout.n, tile_n, layout.padded_n)) return false;
  if (!checked_round_up(layout.k, 16, layout.padded_k)) return false;
  std::int64_t end = 0;
  if (!append_section(layout.padded_n, layout.padded_k, Format::code_bits, alignment, end)) {
    return false;
  }
  layout.block_scales_offset = end;
  if constexpr (Format::group_k != 0) {
    if (!append_section(layout.padded_n, layout.padded_k / Format::group_k, 8, alignment, end)) {
      return false;
    }
  }
  layout.scales_offset = end;
  return append_scales(alignment, layout);
}

inline constexpr status size_exceeds_64_bits{status_code::invalid_shape, 0,
                                             "packed layout: size exceeds 64 bits"};

/// Batches of records of a strip of layout sm80_mma16.
template <class Format>
[[nodiscard]] constexpr std::int64_t batches_of(packed_layout const& layout) noexcept {
  return (layout.padded_k - 1) / mma16_record<Format>::batch_k + 1;
}

/// The padded sizes, the sections and the work split of layout `id`, one for GPUs.
template <class Format>
[[nodiscard]] constexpr status place_records(layout_id id, std::int32_t sm_count,
                                             packed_layout& layout) noexcept {
  using record = quadpair_record<Format>;
  static_assert(record::bytes == mma16_record<Format>::bytes &&
                record::k == mma16_record<Format>::k);
  constexpr std::int64_t alignment = 128;
  layout.id = id;
  if (!checked_round_up(layout.n, 2 * tile_n, layout.padded_n)) return size_exceeds_64_bits;
  if (!checked_round_up(layout.k, record::k, layout.padded_k)) return size_exceeds_64_bits;
  std::int64_t const tiles = layout.padded_n / tile_n;
  std::int64_t const steps = layout.padded_k / record::k;
  std::int64_t end = 0;
  if (!append_section(tiles, steps, std::int64_t{8} * record::bytes, alignment, end)) {
    return size_exceeds_64_bits;
  }
  if (tiles / 2 * steps > (std::numeric_limits<std::int32_t>::max)()) {
    return {status_code::invalid_shape, 0,
            "packed layout: more than 2^31 - 1 units of work (64 rows by one step of k)"};
  }
  layout.block_scales_offset = end;
  layout.scales_offset = end;
  layout.ctas = id == layout_id::sm80_mma16
                    ? choose_slices(tiles, batches_of<Format>(layout), sm_count)
                    : choose_ctas(tiles / 2 * steps, sm_count);
  return append_scales(alignment, layout) ? status{} : size_exceeds_64_bits;
}

/// What every layout asks of its arguments; then `place(Format{}, layout)` fills in the rest, or
/// refuses.
template <class Place>
[[nodiscard]] constexpr status make_layout(format_id format, scale_mode scale, std::int64_t n,
                                           std::int64_t k, dtype dense_type, packed_layout& out,
                                           Place place) noexcept {
  status const unknown{status_code::unsupported_format, 0, "packed layout: unknown format"};
  return visit_format<status>(format, unknown, [&](auto tag) noexcept -> status {
    using Format = decltype(tag);
    packed_layout layout;
    layout.format = format;
    layout.scale = scale;
    layout.code_type = Format::code_bits == 4   ? dtype::e2m1
                       : Format::code_bits == 8 ? dtype::e4m3
                                                : dense_type;
    if (!Format::accepts(layout.code_type)) {
      return {status_code::unsupported_format, 0, "packed layout: dense16 takes f16 or bf16"};
    }
    if (!Format::accepts(scale)) {
      return {
          status_code::unsupported_format, 0,
          "packed layout: nvfp4 takes a tensor or channel scale, fp8 also block scales, dense16 "
          "none"};
    }
    if (n < 1 || k < 1) {
      return {status_code::invalid_shape, 0, "packed layout: n and k must be at least 1"};
    }
    if constexpr (Format::group_k != 0) {
      if (k % Format::group_k != 0) {
        return {status_code::invalid_shape, 0,
                "packed layout: nvfp4 needs k to be a multiple of 16"};
      }
    }
    layout.n = n;
    layout.k = k;
    if (status const placed = place(tag, layout); !placed.ok()) return placed;
    out = layout;
    return {};
  });
}

[[nodiscard]] constexpr status make_record_layout(layout_id id, format_id format, scale_mode scale,
                                                  std::int64_t n, std::int64_t k, dtype dense_type,
                                                  std::int32_t sm_count,
                                                  packed_layout& out) noexcept {
  if (sm_count < 1 || sm_count > max_sm_count) {
    return {status_code::invalid_value, 0, "packed layout: a device has 1 to 1024 multiprocessors"};
  }
  return make_layout(format, scale, n, k, dense_type, out,
                     [id, sm_count](auto tag, packed_layout& layout) noexcept -> status {
                       return place_records<decltype(tag)>(id, sm_count, layout);
                     });
}

/// The same for a layout of any format.
[[nodiscard]] constexpr std::int64_t visit_batches(packed_layout const& layout) noexcept {
  return visit_format<std::int64_t>(layout.format, 0, [&](auto tag) noexcept -> std::int64_t {
    return batches_of<decltype(tag)>(layout);
  });
}

}  // namespace detail

/// Computes the layout of a weight [n, k] for the CPU: cpu_tile32.
/// @param format     nvfp4, fp8 or dense16
/// @param scale      tensor or channel for nvfp4 and fp8; block for fp8; none for dense16
/// @param n, k       >= 1; for nvfp4 k must be a multiple of 16
/// @param dense_type f16 or bf16: the element type of dense16; not read for the other formats
/// @return invalid_shape: n or k not positive, k not a multiple of the group, or sizes beyond 64
/// bits;
///         unsupported_format: no such format, or the format does not take this scale mode or
///         element type
[[nodiscard]] constexpr status make_packed_layout(format_id format, scale_mode scale,
                                                  std::int64_t n, std::int64_t k, dtype dense_type,
                                                  packed_layout& out) noexcept {
  return detail::make_layout(format, scale, n, k, dense_type, out,
                             [](auto tag, packed_layout& layout) noexcept -> status {
                               bool const placed = detail::place_tile32<decltype(tag)>(layout);
                               return placed ? status{} : detail::size_exceeds_64_bits;
                             });
}

/// The layout that the kernels of a GPU read: sm80_mma16 from compute capability 8.0 on,
/// sm70_quadpair before.
[[nodiscard]] constexpr layout_id layout_for(device_info const& device) noexcept {
  return device.compute_capability >= 80 ? layout_id::sm80_mma16 : layout_id::sm70_quadpair;
}

/// The same for a GPU, in a layout of choice. Devices newer than Volta run the kernels of
/// sm70_quadpair with an emulated instruction: slowly, to test them. The result depends on `id`
/// and on compute_capability and sm_count of `device` only.
/// @param id  sm70_quadpair or sm80_mma16
/// @return also unsupported_arch: compute capability below 70, for sm80_mma16 below 80;
///         invalid_value: another id, or sm_count is not in 1..1024; invalid_shape: more than
///         2^31 - 1 units of work
[[nodiscard]] constexpr status make_packed_layout(format_id format, scale_mode scale,
                                                  std::int64_t n, std::int64_t k, dtype dense_type,
                                                  device_info const& device, layout_id id,
                                                  packed_layout& out) noexcept {
  if (id != layout_id::sm70_quadpair && id != layout_id::sm80_mma16) {
    return {status_code::invalid_value, 0,
            "packed layout: GPUs read sm70_quadpair and sm80_mma16 only"};
  }
  if (device.compute_capability < (id == layout_id::sm80_mma16 ? 80 : 70)) {
    return {status_code::unsupported_arch, 0,
            "packed layout: the device must have compute capability 7.0 or newer, for sm80_mma16 "
            "8.0"};
  }
  return detail::make_record_layout(id, format, scale, n, k, dense_type, device.sm_count, out);
}

/// The same for a GPU, in the layout that its own kernels read: layout_for.
[[nodiscard]] constexpr status make_packed_layout(format_id format, scale_mode scale,
                                                  std::int64_t n, std::int64_t k, dtype dense_type,
                                                  device_info const& device,
                                                  packed_layout& out) noexcept {
  return make_packed_layout(format, scale, n, k, dense_type, device, layout_for(device), out);
}

/// Whether `layout` is one that make_packed_layout of this version produces, for some device where
/// it is one for GPUs: what a reader of stored bytes must ask before it trusts the offsets.
[[nodiscard]] constexpr bool is_valid(packed_layout const& layout) noexcept {
  packed_layout expected;
  status made{status_code::invalid_value};
  switch (layout.id) {
    case layout_id::cpu_tile32:
      made = make_packed_layout(layout.format, layout.scale, layout.n, layout.k, layout.code_type,
                                expected);
      break;
    case layout_id::sm70_quadpair: {
      // The smallest device that could have that many CTAs; if any has, this one does.
      std::int32_t const sm_count =
          layout.ctas / detail::ctas_per_sm + (layout.ctas % detail::ctas_per_sm != 0 ? 1 : 0);
      made = detail::make_record_layout(layout.id, layout.format, layout.scale, layout.n, layout.k,
                                        layout.code_type, sm_count, expected);
      break;
    }
    case layout_id::sm80_mma16: {
      made = detail::make_record_layout(layout.id, layout.format, layout.scale, layout.n, layout.k,
                                        layout.code_type, 1, expected);
      // Kernels take any split; which one a device's layouts have is no concern of a reader.
      std::int64_t const batches = detail::visit_batches(expected);
      bool const possible =
          layout.ctas >= 1 && layout.ctas <= detail::max_slices && layout.ctas <= batches;
      if (possible) expected.ctas = layout.ctas;
      break;
    }
  }
  return made.ok() && layout == expected;
}

}  // namespace qpn
