// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm90/gemm_wide_shape.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/bits.hpp"
#include "qpn/detail/epilogue.hpp"
#include "qpn/detail/lane_types.hpp"
#include "qpn/detail/mma16_map.hpp"
#include "qpn/dtype.hpp"

// The epilogue of the kernels over wgmma: a warp finishes its strip for up to 32 rows of x at a
// time. Scale, bias and activation act on the accumulator registers; the values then turn from
// weight rows to rows of y in shared memory of the warp's own.

namespace qpn::detail::sm90 {

struct alignas(16) float4_quad {
  float v[4];
};

/// What a lane keeps for its weight rows, and its warp's place. Values of 8 rows of x are
/// v[half][i] as mma16_weight_row and mma16_x_row place them; with silu_gate, `Gated`, y's are
/// those of half 0.
struct wide_finisher {
  static constexpr int half_row_bytes = 2 * 32 + 16;    ///< of a row of 16-bit values
  static constexpr int float_row_bytes = 4 * (32 + 4);  ///< of a row of fp32 values

  float scale[2][2];  ///< [half][i / 2], times what the decoder left out
  float bias[2][2];
  int column;  ///< of y, the first of the strip
  int id;      ///< the lane
  int shared;  ///< byte offset of the warp's shared memory

  template <class Lane>
  QPN_HD wide_finisher(Lane& lane, epilogue_params const& e, int strip, int lane_id,
                       int shared_at) noexcept
      : column(e.act == activation::silu_gate ? strip / 2 * 32 + mma16_column(strip, 0, 0)
                                              : strip / 2 * 64 + mma16_column(strip, 0, 0)),
        id(lane_id),
        shared(shared_at) {
    QPN_UNROLL
    for (int half = 0; half < 2; ++half) {
      QPN_UNROLL
      for (int i = 0; i < 2; ++i) {
        std::int64_t const at = std::int64_t{strip} / 2 * 64 +
                                mma16_column(strip, half, mma16_weight_row(lane_id, 2 * i));
        scale[half][i] = e.code_scale;
        bias[half][i] = 0.0f;
        if (at >= e.n) continue;
        if (e.scale != scale_mode::none) {
          scale[half][i] *=
              lane.load(e.scales + (e.scale == scale_mode::tensor ? at / tile_n : at));
        }
        if (e.bias != nullptr) bias[half][i] = lane.load(e.bias + at);
      }
    }
  }

  /// Puts the values of 8 rows of x, those from `row` on of the 32, into shared memory: 16-bit ones
  /// if `Halves`, else fp32.
  template <bool Halves, bool Gated, class Lane>
  QPN_HD void put(Lane& lane, epilogue_params const& e, int row, float (&v)[2][4]) const noexcept {
    QPN_UNROLL
    for (int half = 0; half < 2; ++half) {
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) {
        v[half][i] = rounded_product(v[half][i], scale[half][i / 2]);
        if (e.bias != nullptr) v[half][i] = rounded_sum(v[half][i], bias[half][i / 2]);
      }
    }
    if constexpr (Gated) {
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) v[0][i] = gated(lane, v[0][i], v[1][i]);
    }
    if constexpr (Halves) {
      // A magnitude at or beyond infinity reaches bit 15 of its half.
      std::uint32_t const to_sign = e.y_type == dtype::f16 ? 0x04000400u : 0x00800080u;
      std::uint32_t pairs[4] = {};
      std::uint32_t beyond = 0;
      QPN_UNROLL
      for (int q = 0; q < (Gated ? 2 : 4); ++q) {
        pairs[q] = pair(lane, e, v[q / 2][q % 2 * 2], v[q / 2][q % 2 * 2 + 1]);
        beyond |= (pairs[q] & 0x7fff7fffu) + to_sign;
      }
      if ((beyond & 0x80008000u) != 0 && e.overflow == overflow_policy::saturate) {
        QPN_UNROLL
        for (int q = 0; q < (Gated ? 2 : 4); ++q) {
          pairs[q] =
              pair(lane, e, limited(e, v[q / 2][q % 2 * 2]), limited(e, v[q / 2][q % 2 * 2 + 1]));
        }
      }
      lane.shared_store_transposed(shared + row * half_row_bytes, half_row_bytes, pairs);
    } else {
      QPN_UNROLL
      for (int half = 0; half < (Gated ? 1 : 2); ++half) {
        QPN_UNROLL
        for (int i = 0; i < 4; ++i) {
          lane.shared_store(shared + (row + mma16_x_row(id, i)) * float_row_bytes +
                                4 * (16 * half + mma16_weight_row(id, i)),
                            v[half][i]);
        }
      }
    }
  }

  /// Stores `rows` of the `Most` rows, which are in shared memory, from row first_row of y on.
  template <bool Halves, bool Gated, int Most, class Lane>
  QPN_HD void store(Lane& lane, epilogue_params const& e, wide_output output,
                    std::int64_t first_row, int rows) const noexcept {
    std::int64_t const columns = Gated ? e.n / 2 : e.n;
    if constexpr (Halves) {
      constexpr int parts = Gated ? 2 : 4;  // of 8 columns
      int const part = id % parts;
      int const at = column + part / 2 * 32 + part % 2 * 8;
      if (at >= columns) return;
      std::uint16_t* const to =
          static_cast<std::uint16_t*>(e.y) + (first_row + id / parts) * e.ldy + at;
      QPN_UNROLL
      for (int row = 0; row < Most; row += warp_lanes / parts) {
        int const mine = row + id / parts;
        if (mine < rows) {
          lane.store(reinterpret_cast<word4*>(to + row * e.ldy),
                     lane.template shared_load<word4>(shared + mine * half_row_bytes + 16 * part));
        }
      }
    } else if (output == wide_output::floats) {
      constexpr int quads = Gated ? 4 : 8;
      int const quad = id % quads;
      int const at = column + quad / 4 * 32 + quad % 4 * 4;
      if (at >= columns) return;
      QPN_UNROLL_BY_4
      for (int row = 0; row < Most; row += warp_lanes / quads) {
        int const mine = row + id / quads;
        if (mine >= rows) continue;
        float4_quad value =
            lane.template shared_load<float4_quad>(shared + mine * float_row_bytes + 16 * quad);
        if (e.residual != nullptr) {
          add_residual(lane, e, (first_row + mine) * e.ld_residual + at, value);
        }
        float* const to = static_cast<float*>(e.y) + (first_row + mine) * e.ldy + at;
        lane.store(reinterpret_cast<float4_quad*>(to), value);
      }
    } else {
      constexpr int width = Gated ? 16 : 32;  // columns
      int const at = column + id % width / 16 * 32 + id % 16;
      if (at >= columns) return;
      QPN_NO_UNROLL
      for (int row = id / width; row < rows; row += warp_lanes / width) {
        store_result(
            lane, e, first_row + row, at,
            lane.template shared_load<float>(shared + row * float_row_bytes + 4 * (id % width)));
      }
    }
  }

 private:
  /// Two values as f16 or bf16, the first one low.
  template <class Lane>
  [[nodiscard]] QPN_HD static std::uint32_t pair(Lane& lane, epilogue_params const& e, float low,
                                                 float high) noexcept {
    return e.y_type == dtype::f16 ? lane.convert_half2(low, high) : lane.convert_bf16(low, high);
  }

  /// A finite value beyond the largest f16 or bf16 becomes that.
  [[nodiscard]] QPN_HD static float limited(epilogue_params const& e, float value) noexcept {
    std::uint32_t const most = e.y_type == dtype::f16 ? 0x477fe000u : 0x7f7f0000u;  // bits of fp32
    std::uint32_t const bits = float_bits(value);
    std::uint32_t const size = bits & 0x7fffffffu;
    return size > most && size < 0x7f800000u ? bits_float((bits & 0x80000000u) | most) : value;
  }

  template <class Lane>
  QPN_HD static void add_residual(Lane& lane, epilogue_params const& e, std::int64_t at,
                                  float4_quad& value) noexcept {
    if (e.residual_type == dtype::f32) {
      float4_quad const more = lane.load(
          reinterpret_cast<float4_quad const*>(static_cast<float const*>(e.residual) + at));
      QPN_UNROLL
      for (int i = 0; i < 4; ++i) value.v[i] += more.v[i];
      return;
    }
    word2 const pairs = lane.load(
        reinterpret_cast<word2 const*>(static_cast<std::uint16_t const*>(e.residual) + at));
    QPN_UNROLL
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const word = pairs.w[i / 2];
      std::uint16_t const code = static_cast<std::uint16_t>(i % 2 == 0 ? word : word >> 16);
      value.v[i] += decode_16(code, e.residual_type);
    }
  }
};

}  // namespace qpn::detail::sm90
