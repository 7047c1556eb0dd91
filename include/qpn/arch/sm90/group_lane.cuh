// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/arch/sm90/wide_lane.cuh"
#include "qpn/config.hpp"

// The lane operations of the GEMM by warpgroups (PTX ISA, "cp.async" and "cp.async.bulk").

namespace qpn::detail::sm90 {

struct group_lane : wide_lane {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  // The compiler may split loads of structs.
  QPN_DEVICE word4 shared_load_words(int offset) {
    word4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "r"(shared_address(offset)));
    return v;
  }
  QPN_DEVICE word2 shared_load_pair(int offset) {
    word2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.w[0]), "=r"(v.w[1])
                 : "r"(shared_address(offset)));
    return v;
  }
  QPN_DEVICE void copy_if(bool condition, int offset, word4 const* p) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(offset)), "l"(p), "r"(condition ? 16 : 0)
                 : "memory");
  }
  QPN_DEVICE void copy_if(bool condition, int offset, std::uint32_t const* p) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(offset)), "l"(p), "r"(condition ? 4 : 0)
                 : "memory");
  }
  QPN_DEVICE void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  template <int Pending>
  QPN_DEVICE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
  }

  QPN_DEVICE void barrier_expect_if(bool condition, int barrier, int bytes) {
    asm volatile(
        "{\n"
        ".reg .pred expects;\n"
        "setp.ne.u32 expects, %2, 0;\n"
        "@expects mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n"
        "}"
        :
        : "r"(shared_address(barrier)), "r"(bytes), "r"(static_cast<unsigned>(condition))
        : "memory");
  }
  QPN_DEVICE void copy_bulk_if(bool condition, int offset, std::byte const* p, int bytes,
                               int barrier) {
    asm volatile(
        "{\n"
        ".reg .pred copies;\n"
        "setp.ne.u32 copies, %4, 0;\n"
        "@copies cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];\n"
        "}"
        :
        : "r"(shared_address(offset)), "l"(p), "r"(bytes), "r"(shared_address(barrier)),
          "r"(static_cast<unsigned>(condition))
        : "memory");
  }
#endif
};

}  // namespace qpn::detail::sm90
