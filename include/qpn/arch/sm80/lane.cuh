// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "qpn/arch/sm70/lane.cuh"
#include "qpn/arch/sm80/bf16_pair.cuh"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"

// The lane operations of detail/lane_types.hpp that sm_80 adds, or does in another way (PTX ISA,
// "ld.global.nc" and "mma with floating point type").

namespace qpn::detail::sm80 {

/// Row blocks are the fastest dimension of the grid: those of one strip read its weights together.
struct device_lane : sm70::device_lane {
  QPN_DEVICE int block() const { return static_cast<int>(blockIdx.y); }
  QPN_DEVICE int row_block() const { return static_cast<int>(blockIdx.x); }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  // Not into L1, which is for x.
  QPN_DEVICE word4 load_stream(word4 const* p) {
    word4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
  }
  QPN_DEVICE std::uint32_t load_stream(std::uint32_t const* p) {
    std::uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
  }
  QPN_DEVICE std::uint16_t load_stream(std::uint16_t const* p) {
    std::uint16_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return v;
  }

  QPN_DEVICE void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4],
                               std::uint32_t const (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  QPN_DEVICE void mma_m16n8k16_bf16(float (&d)[4], std::uint32_t const (&a)[4],
                                    std::uint32_t const (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  QPN_DEVICE std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
    return multiply_bf16_pair(a, b);
  }
#endif

  QPN_DEVICE void allow_next() {}
  QPN_DEVICE void wait_previous() {}
};

}  // namespace qpn::detail::sm80
