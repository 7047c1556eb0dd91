// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <qpn/arch/sm70/lane.cuh>
#include <qpn/detail/lane_types.hpp>

#include "ops/cuda/byte_range.hpp"

namespace qwen38::ops::cuda {

/// Lets the stream's next kernel begin when all CTAs of this one have (PTX ISA, "griddepcontrol").
QPN_DEVICE void allow_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits for the end of the launch before. All kernels here do, most before anything else: what is
/// complete when one goes on is all work before it.
QPN_DEVICE void wait_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The piece of the range that begins at `at`, if one does, into L2 (PTX ISA,
/// "cp.async.bulk.prefetch"). Nothing waits for the bytes.
QPN_DEVICE void fetch_ahead(byte_range range, std::size_t at) {
#if __CUDA_ARCH__ >= 900
  if (at >= range.bytes) return;
  std::size_t const left = range.bytes - at;
  auto const bytes = static_cast<unsigned>(left < ahead_piece_bytes ? left : ahead_piece_bytes);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(range.data + at), "r"(bytes)
               : "memory");
#endif
}

/// The operations of lane_math.hpp on a GPU, beside those of the library's lane.
struct device_lane : qpn::detail::sm70::device_lane {
  using qpn::detail::sm70::device_lane::load_volatile;
  QPN_DEVICE qpn::detail::float2_pair load_volatile(qpn::detail::float2_pair const* p) {
    qpn::detail::float2_pair v;
    asm volatile("ld.volatile.global.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.low), "=f"(v.high)
                 : "l"(p)
                 : "memory");
    return v;
  }
  QPN_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  QPN_DEVICE float sqrt(float x) { return __fsqrt_rn(x); }
  QPN_DEVICE float log1p(float x) { return log1pf(x); }
  QPN_DEVICE float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
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
  QPN_DEVICE void wait_previous() { cuda::wait_previous(); }
  QPN_DEVICE void fetch_ahead(byte_range range, std::size_t at) { cuda::fetch_ahead(range, at); }

  // PTX ISA, "barrier.cluster", "mapa" and "st" to shared::cluster: of kernels that are launched in
  // clusters of two, on compute capability 9.0 and newer.
  QPN_DEVICE void arrive_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
  }
  QPN_DEVICE void wait_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
  /// To the shared memory of the other CTA.
  QPN_DEVICE void peer_store(int offset, float value) {
#if __CUDA_ARCH__ >= 900
    auto const here = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_bytes + offset));
    asm volatile(
        "{.reg .b32 rank, there;\n"
        "mov.u32 rank, %%cluster_ctarank;\n"
        "xor.b32 rank, rank, 1;\n"
        "mapa.shared::cluster.u32 there, %0, rank;\n"
        "st.shared::cluster.f32 [there], %1;}" ::"r"(here),
        "f"(value)
        : "memory");
#endif
  }
  QPN_DEVICE std::uint32_t atomic_wrap(std::uint32_t* p, std::uint32_t last) {
    return atomicInc(p, last);
  }

  // PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "cp.async". Kernels
  // that use them are not launched on older GPUs.
  QPN_DEVICE void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4],
                               std::uint32_t const (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
  }
  QPN_DEVICE void copy_async(int offset, void const* p, bool held) {
#if __CUDA_ARCH__ >= 800
    auto const to = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes + offset));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(p),
                 "r"(held ? 16 : 0)
                 : "memory");
#else
    __trap();
#endif
  }
  QPN_DEVICE void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  template <int Groups>
  QPN_DEVICE void wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#endif
  }

  // Those of peer_wait.hpp. A release is cumulative: it covers what the CTA stored before a barrier
  // (PTX ISA, "Memory Consistency Model", "Causality order").
  QPN_DEVICE void sync_block_for_release() {
    __syncthreads();
  }
  QPN_DEVICE void store_release_system(std::uint64_t* p, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
  }
  QPN_DEVICE std::uint64_t load_acquire_system(std::uint64_t const* p) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
  }
  QPN_DEVICE std::int64_t nanoseconds() {
    std::int64_t value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
    return value;
  }
};

}  // namespace qwen38::ops::cuda
