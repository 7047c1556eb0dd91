// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <qpn/dtype.hpp>
#include <qpn/format.hpp>
#include <qpn/prepack.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/repository.hpp"
#include "checkpoint/safetensors.hpp"

namespace qwen38::checkpoint {

/// How the weight of a linear layer is stored. w[n, k] is
///   nvfp4        e2m1(code) x e4m3(block scale of n, k / 16) x scale
///   fp8_tensor   e4m3(code) x scale
///   fp8_channel  e4m3(code) x scale[n]
///   fp8_block    e4m3(code) x scale[n / 128, k / 128]
///   bf16, f16    the value itself
enum class quant_class : std::uint8_t { nvfp4, fp8_tensor, fp8_channel, fp8_block, bf16, f16 };
inline constexpr std::size_t quant_class_count = 6;

[[nodiscard]] constexpr std::string_view to_string(quant_class cls) noexcept {
  switch (cls) {
    case quant_class::nvfp4: return "nvfp4";
    case quant_class::fp8_tensor: return "fp8_tensor";
    case quant_class::fp8_channel: return "fp8_channel";
    case quant_class::fp8_block: return "fp8_block";
    case quant_class::bf16: return "bf16";
    case quant_class::f16: return "f16";
  }
  return "unknown";
}

/// Blocks of scale mode block along n or k, the last one cut where it must be.
[[nodiscard]] constexpr std::int64_t scale_blocks_in(std::int64_t extent) noexcept {
  return (extent + qpn::scale_block - 1) / qpn::scale_block;
}

/// A linear layer's tensors, checked. Points into the mapped file; empty spans in a headers-only
/// repository.
struct linear_view {
  std::string module;
  quant_class cls = quant_class::bf16;
  qpn::format_id format = qpn::format_id::dense16;
  qpn::dtype dense_type = qpn::dtype::bf16;        ///< bf16 or f16; bf16 if not dense
  qpn::scale_mode scales = qpn::scale_mode::none;  ///< none if dense
  std::int64_t n = 0;                              ///< outputs
  std::int64_t k = 0;                              ///< inputs
  std::span<std::byte const> codes;  ///< nvfp4: u8 [n, k / 2], low nibble = even k; else [n, k]
  std::span<std::byte const> block_scales;  ///< nvfp4: e4m3 [n, k / 16]; else empty
  float scale = 1;                          ///< scale mode tensor: multiplies every weight; else 1
  std::vector<float> channel_scales;        ///< scale mode channel: [n]; else empty
  std::vector<float>
      scale_blocks;  ///< scale mode block: [n / 128, k / 128], rounded up; else empty
};

/// ".weight", ".weight_scale", ...: every tensor `module` + suffix belongs to the linear `module`,
/// whether its format is served or not.
[[nodiscard]] std::span<std::string_view const> linear_suffixes() noexcept;

/// Finds, checks and claims the tensors of `module`, e.g. "model.layers.0.mlp.up_proj". The class
/// follows from the tensors that exist, never from a JSON file:
///   U8 weight, weight_scale, weight_scale_2               NVFP4 of ModelOpt
///   U8 weight_packed, weight_scale, weight_global_scale   NVFP4 of compressed-tensors; its global
///       scale is a divisor, so `scale` is the reciprocal, rounded once
///   F8_E4M3 weight, weight_scale of one element           FP8 with a tensor scale
///   F8_E4M3 weight, weight_scale [n, 1]                   FP8 with channel scales
///   F8_E4M3 weight, weight_scale_inv or weight_scale [n / 128, k / 128]   FP8 with block scales,
///       which multiply under both names
///   BF16 or F16 weight alone                              dense
/// Shapes must be those of [n, k]; FP8 scales are F32 or BF16; fp32 scales are finite and positive;
/// missing scales, scales that the class does not have, and formats that are recognised but not
/// served (integer codes, AWQ pre-scales and others) are refused by name. Codes and block scales
/// of e4m3 are not read here: packing refuses their NaNs.
/// @throws qwen38::error (corrupt_data, unsupported)
[[nodiscard]] linear_view find_linear(repository& tensors, std::string const& module,
                                      std::int64_t n, std::int64_t k);

/// The same weight in the terms of qpn's prepack; points into the repository.
[[nodiscard]] qpn::weight_part to_part(linear_view const& linear) noexcept;

/// A tensor that is used as numbers: norms, convolution, gates, embedding.
struct dense_view {
  std::string name;
  qpn::dtype type = qpn::dtype::bf16;  ///< bf16, f16 or f32
  std::vector<std::int64_t> shape;
  std::span<std::byte const> bytes;  ///< row-major, little-endian, not aligned

  /// Converts out.size() elements from index `first` on, exactly.
  /// @throws qwen38::error: corrupt_data at a NaN or infinity; invalid_argument if out of range.
  void to_f32(std::size_t first, std::span<float> out) const;

  /// All elements.
  [[nodiscard]] std::vector<float> to_f32() const;
};

/// Finds, checks and claims one tensor; `name` is the whole name.
/// @throws qwen38::error (corrupt_data) for a missing tensor, another dtype or another shape.
[[nodiscard]] dense_view find_dense(repository& tensors, std::string const& name,
                                    std::vector<std::int64_t> const& shape);

}  // namespace qwen38::checkpoint
