// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "qpn/cpu/detail/block_ops.hpp"
#include "qpn/cpu/detail/block_ops_avx2.hpp"
#include "qpn/cpu/detail/block_ops_scalar.hpp"
#include "qpn/cpu/isa.hpp"
#include "qpn/cpu/thread_pool.hpp"
#include "qpn/detail/alignment.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/status.hpp"

namespace qpn::cpu {

/// Strides are in elements. x and y must not overlap each other or the weight.
struct gemm_args {
  void const* x = nullptr;    ///< [m, k], row-major
  dtype x_type = dtype::f32;  ///< f32, f16 or bf16
  std::int64_t m = 0;         ///< rows of x and y; 0 does nothing
  std::int64_t ldx = 0;       ///< >= k
  void* y = nullptr;          ///< [m, n], row-major
  dtype y_type = dtype::f32;  ///< f32, f16 or bf16
  std::int64_t ldy = 0;       ///< >= n
  bool accumulate = false;    ///< y += instead of y =; y_type f32 only
  isa path = isa::automatic;  ///< for tests and measurements; changes no bit of the result
};

namespace detail {

[[nodiscard]] inline bool is_activation_type(dtype type) noexcept {
  return type == dtype::f32 || type == dtype::f16 || type == dtype::bf16;
}

/// Whether a matrix of m rows, ld elements apart, has a byte size that fits.
[[nodiscard]] inline bool extent_fits(std::int64_t m, std::int64_t ld, dtype type) noexcept {
  return ld <= (std::numeric_limits<std::int64_t>::max)() / m / (bits(type) / 8);
}

[[nodiscard]] inline status check_gemm(packed_weight const& weight,
                                       gemm_args const& args) noexcept {
  packed_layout const& layout = weight.layout;
  if (!is_valid(layout) || layout.id != layout_id::cpu_tile32) {
    return {status_code::invalid_value, 0, "cpu::gemm: the weight has no valid cpu_tile32 layout"};
  }
  if (!is_activation_type(args.x_type) || !is_activation_type(args.y_type)) {
    return {status_code::unsupported_format, 0, "cpu::gemm: x and y must be f32, f16 or bf16"};
  }
  if (args.accumulate && args.y_type != dtype::f32) {
    return {status_code::unsupported_format, 0, "cpu::gemm: accumulation needs an f32 y"};
  }
  if (args.path == isa::avx2 && best_isa() != isa::avx2) {
    return {status_code::unsupported_arch, 0, "cpu::gemm: this machine has no AVX2, FMA and F16C"};
  }
  if (args.m < 0) return {status_code::invalid_shape, 0, "cpu::gemm: m is negative"};
  if (args.m == 0) return {};
  if (args.ldx < layout.k || args.ldy < layout.n) {
    return {status_code::invalid_shape, 0, "cpu::gemm: ldx must be at least k and ldy at least n"};
  }
  if (!extent_fits(args.m, args.ldx, args.x_type) || !extent_fits(args.m, args.ldy, args.y_type)) {
    return {status_code::invalid_shape, 0, "cpu::gemm: the size of x or y exceeds 64 bits"};
  }
  if (weight.data == nullptr || args.x == nullptr || args.y == nullptr) {
    return {status_code::invalid_value, 0, "cpu::gemm: weight, x or y is null"};
  }
  if (!qpn::detail::is_element_aligned(args.x, args.x_type) ||
      !qpn::detail::is_element_aligned(args.y, args.y_type)) {
    return {status_code::misaligned, 0, "cpu::gemm: x and y must be aligned to their elements"};
  }
  return {};
}

[[nodiscard]] inline block_ops const& select_block_ops(isa path) noexcept {
#if defined(__x86_64__)
  if (path != isa::scalar && best_isa() == isa::avx2) return avx2_block_ops;
#endif
  static_cast<void>(path);
  return scalar_block_ops;
}

[[nodiscard]] inline block_ops::decode_function select_decoder(
    block_ops const& ops, packed_layout const& layout) noexcept {
  switch (layout.format) {
    case format_id::nvfp4: return ops.decode_nvfp4;
    case format_id::fp8: return ops.decode_fp8;
    case format_id::dense16: break;
  }
  return layout.code_type == dtype::f16 ? ops.decode_f16 : ops.decode_bf16;
}

/// One 32-row tile of the weight against up to chunk_m rows of x.
class tile_multiplier {
 public:
  tile_multiplier(packed_weight const& weight, gemm_args const& args, block_ops const& ops) noexcept
      : layout_(weight.layout),
        data_(weight.data),
        args_(args),
        ops_(ops),
        decode_(select_decoder(ops, weight.layout)) {}

  void run(std::int64_t tile) noexcept {
    if (layout_.scale != scale_mode::block) load_scales(tile, 0);
    for (std::int64_t first = 0; first < args_.m; first += chunk_m) {
      std::int64_t const rows = args_.m - first < chunk_m ? args_.m - first : chunk_m;
      if (layout_.scale == scale_mode::block) {
        sum_scaled_blocks(tile, first, rows);
      } else {
        sum(tile, first, rows, 0, layout_.k, totals_);
      }
      store(tile, first, rows);
    }
  }

 private:
  void load_scales(std::int64_t tile, std::int64_t k) noexcept {
    for (std::int64_t row = 0; row < tile_n; ++row) {
      scales_[row] = 1.0f;
      if (layout_.scale == scale_mode::none) continue;
      std::memcpy(&scales_[row], data_ + qpn::detail::scale_offset(layout_, tile * tile_n + row, k),
                  sizeof(float));
    }
  }

  /// sums[rows][32] = the products of k in [begin, end), without fp32 scales.
  void sum(std::int64_t tile, std::int64_t first, std::int64_t rows, std::int64_t begin,
           std::int64_t end, float* sums) noexcept {
    std::memset(sums, 0, static_cast<std::size_t>(rows * tile_n) * sizeof(float));
    for (std::int64_t k = begin; k < end; k += block_k) multiply_block(tile, first, rows, k, sums);
  }

  /// totals_ with each stretch of 128 k multiplied by its scale; leaves ones in scales_.
  void sum_scaled_blocks(std::int64_t tile, std::int64_t first, std::int64_t rows) noexcept {
    std::memset(totals_, 0, static_cast<std::size_t>(rows * tile_n) * sizeof(float));
    for (std::int64_t k = 0; k < layout_.k; k += scale_block) {
      std::int64_t const left = layout_.k - k;
      sum(tile, first, rows, k, k + (left < scale_block ? left : scale_block), part_);
      load_scales(tile, k);
      for (std::int64_t i = 0; i < rows; ++i) {
        float* const total = totals_ + i * tile_n;
        ops_.finish(part_ + i * tile_n, scales_, total, total);
      }
    }
    for (float& scale : scales_) scale = 1.0f;
  }

  void multiply_block(std::int64_t tile, std::int64_t first, std::int64_t rows, std::int64_t k,
                      float* sums) noexcept {
    std::int64_t const left = layout_.k - k;
    std::int64_t const padded_left = layout_.padded_k - k;
    std::int64_t const row = tile * tile_n;
    std::byte const* const codes =
        data_ + qpn::detail::code_offset(layout_, row, qpn::detail::code_units(layout_, k));
    std::byte const* const block_scales =
        layout_.format == format_id::nvfp4
            ? data_ + qpn::detail::block_scale_offset(layout_, row, k / nvfp4::group_k)
            : nullptr;
    decode_(codes, block_scales, padded_left < block_k ? padded_left : block_k, weights_);
    std::int64_t const k_count = left < block_k ? left : block_k;
    if (args_.x_type == dtype::f32) {
      float const* const x = static_cast<float const*>(args_.x) + first * args_.ldx + k;
      ops_.multiply(weights_, k_count, x, args_.ldx, rows, sums);
      return;
    }
    auto const* const x = static_cast<std::uint16_t const*>(args_.x) + first * args_.ldx + k;
    auto const widen = args_.x_type == dtype::f16 ? ops_.widen_f16 : ops_.widen_bf16;
    for (std::int64_t i = 0; i < rows; ++i)
      widen(x + i * args_.ldx, k_count, widened_ + i * block_k);
    ops_.multiply(weights_, k_count, widened_, block_k, rows, sums);
  }

  void store(std::int64_t tile, std::int64_t first, std::int64_t rows) noexcept {
    std::int64_t const column = tile * tile_n;
    std::int64_t const left = layout_.n - column;
    std::int64_t const columns = left < tile_n ? left : tile_n;
    std::size_t const row_bytes = static_cast<std::size_t>(columns) * sizeof(float);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::int64_t const at = (first + i) * args_.ldy + column;
      float result[tile_n] = {};
      if (args_.accumulate) std::memcpy(result, static_cast<float const*>(args_.y) + at, row_bytes);
      ops_.finish(totals_ + i * tile_n, scales_, args_.accumulate ? result : nullptr, result);
      if (args_.y_type == dtype::f32) {
        std::memcpy(static_cast<float*>(args_.y) + at, result, row_bytes);
        continue;
      }
      auto* const y = static_cast<std::uint16_t*>(args_.y) + at;
      for (std::int64_t j = 0; j < columns; ++j) {
        y[j] =
            args_.y_type == dtype::f16 ? encode_f16_saturating(result[j]) : encode_bf16(result[j]);
      }
    }
  }

  packed_layout const& layout_;
  std::byte const* data_;
  gemm_args const& args_;
  block_ops const& ops_;
  block_ops::decode_function decode_;
  // 41 KB on the stack of each thread.
  alignas(64) float weights_[block_k * tile_n];
  alignas(64) float totals_[chunk_m * tile_n];
  alignas(64) float part_[chunk_m * tile_n];  ///< of one block of scales
  alignas(64) float widened_[chunk_m * block_k];
  alignas(64) float scales_[tile_n];
};

}  // namespace detail

/// y[m, n] = sum over k of x[m, k] * w[n, k], or y += that; w is the weight that was packed, its
/// decoding exact.
///
/// Sums are fp32 with fused multiply-adds, in the order that detail/block_ops.hpp states; relative
/// to sum |x| |w| an output's error is at most about (64 + k / 64) * 2^-24. f16 y: rounded to
/// nearest even, finite values beyond +-65504 become +-65504, infinities and NaN stay. bf16 y:
/// rounded to nearest even. Every NaN is written as the same quiet NaN.
///
/// Bitwise: a row of y depends on that row of x (and, accumulating, of y) and on the weight only:
/// not on m, on the row's position, on the other rows, on the number of threads, or on the
/// instruction set.
///
/// Splits the 32-row tiles of the weight over the pool's threads. Never allocates; takes about 42
/// KB of stack.
/// @return invalid_value: not a cpu_tile32 weight, or a null pointer; unsupported_format: element
/// types;
///         unsupported_arch: args.path; invalid_shape: m < 0, ldx < k, ldy < n, sizes beyond 64
///         bits; misaligned: x or y is not aligned to its elements
[[nodiscard]] inline status gemm(packed_weight const& weight, gemm_args const& args,
                                 thread_pool& pool) noexcept {
  status const checked = detail::check_gemm(weight, args);
  if (!checked.ok() || args.m == 0) return checked;
  detail::block_ops const& ops = detail::select_block_ops(args.path);
  auto const run_tiles = [&](std::int64_t begin, std::int64_t end) noexcept {
    detail::tile_multiplier multiplier(weight, args, ops);
    for (std::int64_t tile = begin; tile < end; ++tile) multiplier.run(tile);
  };
  // Below this many products waking the other threads costs more than they save.
  constexpr double serial_products = 65536.0;
  std::int64_t const tiles = weight.layout.padded_n / tile_n;
  double const products = static_cast<double>(weight.layout.n) *
                          static_cast<double>(weight.layout.k) * static_cast<double>(args.m);
  if (products < serial_products) {
    run_tiles(0, tiles);
  } else {
    pool.parallel_for(tiles, run_tiles);
  }
  return {};
}

}  // namespace qpn::cpu
