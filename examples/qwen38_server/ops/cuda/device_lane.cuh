// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <qpn/arch/sm70/lane.cuh>
#include <qpn/detail/lane_types.hpp>

namespace qwen38::ops::cuda {

/// The operations of lane_math.hpp on a GPU, beside those of the library's lane.
struct device_lane : qpn::detail::sm70::device_lane {
  QPN_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  QPN_DEVICE float sqrt(float x) { return __fsqrt_rn(x); }
  QPN_DEVICE float log1p(float x) { return log1pf(x); }
  QPN_DEVICE void sine_cosine(double angle, float& sine, float& cosine) {
    double s = 0;
    double c = 0;
    sincos(angle, &s, &c);
    sine = static_cast<float>(s);
    cosine = static_cast<float>(c);
  }
  QPN_DEVICE qpn::detail::float2_pair half_pair(std::uint32_t bits) {
    float2 const pair = __half22float2(as_half2(bits));
    return {pair.x, pair.y};
  }
};

}  // namespace qwen38::ops::cuda
