// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm70/lane.cuh"
#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"

// The lane operations of detail/lane_types.hpp that sm_80 adds (PTX ISA, "cp.async", "mbarrier" and
// "mma with floating point type").

namespace qpn::detail::sm80 {

struct device_lane : sm70::device_lane {
  std::uint64_t evict_first = 0;  ///< cache policy of what is read once

  QPN_DEVICE explicit device_lane(unsigned char* shared) : sm70::device_lane{shared} {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
#endif
  }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  QPN_DEVICE unsigned shared_address(int offset) const {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) +
           static_cast<unsigned>(offset);
  }

  /// Stays where it is in the order of other operations: the compiler would load too much at once.
  template <class T>
  QPN_DEVICE T shared_load_ordered(int offset) {
    T v;
    if constexpr (sizeof(T) == 16) {
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                   : "r"(shared_address(offset)));
    } else {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(v.w[0]), "=r"(v.w[1])
                   : "r"(shared_address(offset)));
    }
    return v;
  }

  QPN_DEVICE void fence_device() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }

  QPN_DEVICE void copy_stream(int offset, word4 const* p) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(offset)), "l"(p), "l"(evict_first)
                 : "memory");
  }
  QPN_DEVICE void copy(int offset, word4 const* p) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(shared_address(offset)), "l"(p)
                 : "memory");
  }
  QPN_DEVICE void copies_arrive(int barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"
                 :
                 : "r"(shared_address(barrier))
                 : "memory");
  }
  QPN_DEVICE void fill_stream(int offset, std::byte const* p, int bytes, int barrier) {
    int const id = thread() % warp_lanes;
    QPN_UNROLL_BY_4
    for (int at = 16 * id; at < bytes; at += 16 * warp_lanes) {
      copy_stream(offset + at, reinterpret_cast<word4 const*>(p + at));
    }
    if (id == 0) barrier_arrive(barrier);
  }

  QPN_DEVICE void barrier_init(int barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
  }
  QPN_DEVICE void publish_barriers() {}
  QPN_DEVICE void barrier_arrive(int barrier) {
    asm volatile(
        "{\n"
        ".reg .b64 state;\n"
        "mbarrier.arrive.shared.b64 state, [%0];\n"
        "}"
        :
        : "r"(shared_address(barrier))
        : "memory");
  }
  QPN_DEVICE void barrier_wait(int barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}"
        :
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }

  QPN_DEVICE void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4],
                               std::uint32_t const (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif

  QPN_DEVICE void allow_next() {}
  QPN_DEVICE void wait_previous() {}
  QPN_DEVICE float multiply_add(float a, float b, float c) {
    return fmaf(a, b, c);
  }
};

}  // namespace qpn::detail::sm80
