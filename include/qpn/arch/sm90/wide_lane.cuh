// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm70/lane.cuh"
#include "qpn/arch/sm80/bf16_pair.cuh"
#include "qpn/arch/sm90/gemm_wide_finish.hpp"
#include "qpn/arch/sm90/gemm_wide_shape.hpp"
#include "qpn/arch/sm90/wgmma.cuh"
#include "qpn/config.hpp"
#include "qpn/dtype.hpp"

// The lane operations of the GEMM for many rows (PTX ISA, "wgmma", "setmaxnreg", "mbarrier",
// "cp.async.bulk", "barrier.cluster", "mapa", "stmatrix" and "griddepcontrol").

namespace qpn::detail::sm90 {

struct wide_lane : sm70::device_lane {
  QPN_DEVICE int blocks() const { return static_cast<int>(gridDim.x); }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  QPN_DEVICE unsigned shared_address(int offset) const {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) +
           static_cast<unsigned>(offset);
  }

  QPN_DEVICE void allow_next() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }
  QPN_DEVICE void wait_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");  // bulk copies read what it wrote
  }

  QPN_DEVICE int cluster_size() const {
    int value;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(value));
    return value;
  }
  QPN_DEVICE int cluster_rank() const {
    int value;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(value));
    return value;
  }
  QPN_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
  }
  QPN_DEVICE float4_quad cluster_load(int offset, int rank) {
    unsigned address;
    float4_quad q;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(address)
                 : "r"(shared_address(offset)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(q.v[0]), "=f"(q.v[1]), "=f"(q.v[2]), "=f"(q.v[3])
                 : "r"(address));
    return q;
  }
  QPN_DEVICE void sync_consumers() {
    asm volatile("bar.sync 1, %0;" ::"n"(wide_consumer_threads) : "memory");
  }

  QPN_DEVICE void barrier_init(int barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
  }
  QPN_DEVICE void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  QPN_DEVICE void barrier_expect(int barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
  }
  QPN_DEVICE void barrier_wait(int barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}"
        :
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
  /// Without a branch, which would end the compiler's view of the products under way.
  QPN_DEVICE void barrier_arrive_if(bool condition, int barrier) {
    asm volatile(
        "{\n"
        ".reg .pred arrives;\n"
        "setp.ne.u32 arrives, %1, 0;\n"
        "@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n"
        "}"
        :
        : "r"(shared_address(barrier)), "r"(static_cast<unsigned>(condition))
        : "memory");
  }
  QPN_DEVICE void copy_bulk(int offset, std::byte const* p, int bytes, int barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :
        : "r"(shared_address(offset)), "l"(p), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
  }
  QPN_DEVICE void copy_words(int offset, word4 const* p) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(shared_address(offset)), "l"(p)
                 : "memory");
  }
  QPN_DEVICE void copies_arrive(int barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 :
                 : "r"(shared_address(barrier))
                 : "memory");
  }
  QPN_DEVICE void fence_bulk_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }

  template <int Count>
  QPN_DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
  }
  template <int Count>
  QPN_DEVICE void release_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
  }

  /// What is computed from `words` is computed after this.
  QPN_DEVICE void hold(word4& words) {
    asm volatile(""
                 : "+r"(words.w[0]), "+r"(words.w[1]), "+r"(words.w[2]),
                   "+r"(words.w[3])::"memory");
  }
  /// All of `a` is computed before: the compiler moves arithmetic past a fence of memory.
  template <int Steps>
  QPN_DEVICE void begin_products(std::uint32_t (&a)[Steps][4]) {
    QPN_UNROLL
    for (int i = 0; i < Steps; ++i) {
      asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  }
  QPN_DEVICE void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  template <int Pending>
  QPN_DEVICE void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
  }
  /// The descriptor of operand B: rows of 128 bytes, k innermost, 8 rows 1024 bytes apart, 128-byte
  /// swizzle.
  QPN_DEVICE std::uint64_t rows_at(int offset) {
    return (static_cast<std::uint64_t>(1) << 62) | (static_cast<std::uint64_t>(1024 / 16) << 32) |
           (static_cast<std::uint64_t>(1) << 16) |
           static_cast<std::uint64_t>((shared_address(offset) & 0x3ffff) >> 4);
  }
  /// d += a b, or = a b, with the 16 k of a slice of the rows.
  template <dtype XType, int Registers>
  QPN_DEVICE void multiply_rows(float (&d)[Registers], std::uint32_t const (&a)[4],
                                std::uint64_t rows, int slice, bool accumulate) {
    std::uint64_t const of_slice = rows + static_cast<std::uint64_t>(2 * slice);
    if constexpr (XType == dtype::bf16) {
      wgmma_bf16(d, a, of_slice, accumulate);
    } else {
      wgmma_f16(d, a, of_slice, accumulate);
    }
  }
  QPN_DEVICE std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
    return sm80::multiply_bf16_pair(a, b);
  }

  QPN_DEVICE std::uint32_t convert_bf16(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  /// Four 8 x 8 matrices of 16-bit elements, in the lanes' fragments, become 8 columns each of 8
  /// rows in shared memory.
  QPN_DEVICE void shared_store_transposed(int offset, int row_bytes,
                                          std::uint32_t const (&pairs)[4]) {
    int const id = thread() % warp_lanes;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(shared_address(offset + id % 8 * row_bytes + id / 8 * 16)), "r"(pairs[0]),
                   "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
  }
#endif
};

}  // namespace qpn::detail::sm90
