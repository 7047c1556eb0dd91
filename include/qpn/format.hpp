// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/dtype.hpp"

// Weight formats as types. The traits contract of a format:
//   id          its format_id
//   name        for logs and routes
//   code_bits   bits of one weight as published
//   group_k     consecutive k that share one e4m3 block scale; 0 = no block scales
//   accepts(dtype)       which element type its codes may have
//   accepts(scale_mode)  which fp32 scales it may carry
// Adding a format = one type here, one entry in visit_format, and its decoders.

namespace qpn {

enum class format_id : std::uint8_t { nvfp4 = 1, fp8 = 2, dense16 = 3 };

/// The fp32 scales of a weight: none; one per published matrix (kept per 32-row tile, so that fused
/// matrices with different scales keep them all); one per output row; one per block of 128 rows and
/// 128 k of a published matrix (kept per 32-row tile and 128 k).
enum class scale_mode : std::uint8_t { none, tensor, channel, block };

/// Rows and k of a block of scale mode block.
inline constexpr std::int64_t scale_block = 128;

[[nodiscard]] constexpr char const* to_string(scale_mode mode) noexcept {
  switch (mode) {
    case scale_mode::none: return "none";
    case scale_mode::tensor: return "tensor";
    case scale_mode::channel: return "channel";
    case scale_mode::block: return "block";
  }
  return "unknown scale_mode";
}

/// w[n, k] = e2m1(code[n, k]) * e4m3(block_scale[n, k / 16]) * scale
struct nvfp4 {
  static constexpr format_id id = format_id::nvfp4;
  static constexpr char const* name = "nvfp4";
  static constexpr int code_bits = 4;
  static constexpr int group_k = 16;
  [[nodiscard]] static constexpr bool accepts(dtype code) noexcept { return code == dtype::e2m1; }
  [[nodiscard]] static constexpr bool accepts(scale_mode mode) noexcept {
    return mode == scale_mode::tensor || mode == scale_mode::channel;
  }
};

/// w[n, k] = e4m3(code[n, k]) * scale, which in scale mode block is that of (n / 128, k / 128)
struct fp8 {
  static constexpr format_id id = format_id::fp8;
  static constexpr char const* name = "fp8";
  static constexpr int code_bits = 8;
  static constexpr int group_k = 0;
  [[nodiscard]] static constexpr bool accepts(dtype code) noexcept { return code == dtype::e4m3; }
  [[nodiscard]] static constexpr bool accepts(scale_mode mode) noexcept {
    return mode == scale_mode::tensor || mode == scale_mode::channel || mode == scale_mode::block;
  }
};

/// w[n, k] = f16(code[n, k]) or bf16(code[n, k])
struct dense16 {
  static constexpr format_id id = format_id::dense16;
  static constexpr char const* name = "dense16";
  static constexpr int code_bits = 16;
  static constexpr int group_k = 0;
  [[nodiscard]] static constexpr bool accepts(dtype code) noexcept {
    return code == dtype::f16 || code == dtype::bf16;
  }
  [[nodiscard]] static constexpr bool accepts(scale_mode mode) noexcept {
    return mode == scale_mode::none;
  }
};

/// Calls visitor(Format{}) for the format type of `id`, or returns `otherwise` where `id` names
/// none.
template <class Result, class Visitor>
constexpr Result visit_format(format_id id, Result otherwise, Visitor&& visitor) {
  switch (id) {
    case format_id::nvfp4: return visitor(nvfp4{});
    case format_id::fp8: return visitor(fp8{});
    case format_id::dense16: return visitor(dense16{});
  }
  return otherwise;
}

[[nodiscard]] constexpr char const* to_string(format_id id) noexcept {
  return visit_format<char const*>(id, "unknown format",
                                   [](auto format) { return decltype(format)::name; });
}

}  // namespace qpn
