// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "qpn/config.hpp"
#include "qpn/detail/lane_types.hpp"

// The lane operations of detail/lane_types.hpp on a GPU. mma.m8n8k4 is Volta's own instruction;
// newer GPUs run it as a subroutine of shuffles and FMAs (PTX ISA, "Warp-level matrix
// instructions: mma", warns of it), with another order of its four products.

namespace qpn::detail::sm70 {

// A barrier of the 64 threads of a pair of warps. On Volta a named one, by the number of the pair:
// 0 is that of __syncthreads. On newer GPUs an mbarrier for each pair (PTX ISA, "mbarrier"):
// compute-sanitizer's racecheck follows these, but not barriers of a part of the CTA.

/// In shared memory, of the caller's pair.
QPN_DEVICE std::uint32_t pair_barrier() {
  __shared__ std::uint64_t barriers[1024 / 64];
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(barriers + threadIdx.x / 64));
}

/// By all threads of the CTA, before any of them waits.
QPN_DEVICE void init_pair_barriers() {
#if __CUDA_ARCH__ >= 800
  if (threadIdx.x % 64 == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(pair_barrier()) : "memory");
  }
  __syncthreads();
#endif
}

QPN_DEVICE void sync_pair_of_warps() {
#if __CUDA_ARCH__ >= 800
  std::uint64_t arrival;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];"
               : "=l"(arrival)
               : "r"(pair_barrier())
               : "memory");
  std::uint32_t is_complete = 0;
  while (is_complete == 0) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.test_wait.shared.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}\n"
        : "=r"(is_complete)
        : "r"(pair_barrier()), "l"(arrival)
        : "memory");
  }
#else
  asm volatile("bar.sync %0, 64;" ::"r"(threadIdx.x / 64 + 1) : "memory");
#endif
}

/// dynamic shared memory starts at `shared_bytes`.
struct device_lane {
  unsigned char* shared_bytes;

  QPN_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  QPN_DEVICE int block() const { return static_cast<int>(blockIdx.x); }

  // ld.global.cs: evict first (PTX ISA, "Cache operators").
  QPN_DEVICE word4 load_stream(word4 const* p) {
    word4 v;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
  }
  QPN_DEVICE std::uint32_t load_stream(std::uint32_t const* p) {
    std::uint32_t v;
    asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
  }

  QPN_DEVICE word4 load_together(word4 const* p) { return load_words(p); }
  QPN_DEVICE std::uint32_t load_together(std::uint32_t const* p) {
    std::uint32_t v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
  }

  template <class T>
  QPN_DEVICE T load(T const* p) {
    return *p;
  }
  QPN_DEVICE word4 load_words(word4 const* p) {
    word4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
  }
  template <class T>
  QPN_DEVICE void store(T* p, T value) {
    *p = value;
  }
  template <class T>
  QPN_DEVICE T load_volatile(T const* p) {
    return *const_cast<T const volatile*>(p);
  }
  template <class T>
  QPN_DEVICE T shared_load(int offset) {
    return *reinterpret_cast<T const*>(shared_bytes + offset);
  }
  template <class T>
  QPN_DEVICE void shared_store(int offset, T value) {
    *reinterpret_cast<T*>(shared_bytes + offset) = value;
  }

  QPN_DEVICE void sync_warp() { __syncwarp(); }
  QPN_DEVICE void init_pairs() { init_pair_barriers(); }
  QPN_DEVICE void sync_pair() { sync_pair_of_warps(); }
  QPN_DEVICE void sync_block() { __syncthreads(); }
  QPN_DEVICE void fence_device() { __threadfence(); }
  QPN_DEVICE std::uint32_t atomic_add(std::uint32_t* p, std::uint32_t value) {
    return atomicAdd(p, value);
  }
  QPN_DEVICE std::uint64_t atomic_max(std::uint64_t* p, std::uint64_t value) {
    return atomicMax(reinterpret_cast<unsigned long long*>(p),
                     static_cast<unsigned long long>(value));
  }
  QPN_DEVICE bool any(bool condition) { return __any_sync(0xffffffffu, condition) != 0; }
  QPN_DEVICE std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }

  QPN_DEVICE void mma_m8n8k4(float (&d)[8], std::uint32_t const (&a)[2],
                             std::uint32_t const (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, "
        "{%0, %1, %2, %3, %4, %5, %6, %7};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
  }

  QPN_DEVICE static __half2 as_half2(std::uint32_t bits) {
    return *reinterpret_cast<__half2 const*>(&bits);
  }
  QPN_DEVICE static std::uint32_t as_bits(__half2 pair) {
    return *reinterpret_cast<std::uint32_t const*>(&pair);
  }
  QPN_DEVICE std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b) {
    return as_bits(__hmul2(as_half2(a), as_half2(b)));
  }
  QPN_DEVICE std::uint32_t broadcast_low(std::uint32_t a) {
    return as_bits(__low2half2(as_half2(a)));
  }
  QPN_DEVICE std::uint32_t broadcast_high(std::uint32_t a) {
    return as_bits(__high2half2(as_half2(a)));
  }
  QPN_DEVICE std::uint32_t convert_half2(float low, float high) {
    return as_bits(__floats2half2_rn(low, high));
  }
  QPN_DEVICE float widen_low(std::uint32_t pair) { return __low2float(as_half2(pair)); }
  QPN_DEVICE float widen_high(std::uint32_t pair) { return __high2float(as_half2(pair)); }
  QPN_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  QPN_DEVICE std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
    return __byte_perm(a, b, selector);
  }
  /// Hides where a value comes from, or the compiler computes it again in every step of a loop.
  QPN_DEVICE int keep(int value) {
    asm volatile("" : "+r"(value));
    return value;
  }
  QPN_DEVICE float exp(float x) { return expf(x); }
};

/// The lane of a GEMM, whose row blocks are the fastest dimension of the grid. Its indices are read
/// again for every use: what follows from them is not worth a register of the main loop.
struct gemm_lane : device_lane {
  QPN_DEVICE int thread() const {
    int value;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(value));
    return value;
  }
  QPN_DEVICE int block() const {
    int value;
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(value));
    return value;
  }
  QPN_DEVICE int row_block() const {
    int value;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(value));
    return value;
  }
};

}  // namespace qpn::detail::sm70
