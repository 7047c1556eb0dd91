// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/arch/sm80/lane.cuh"
#include "qpn/config.hpp"

// The lane operations of detail/lane_types.hpp that sm_90 does in another way: weights come by bulk
// copies, one for a whole stage (PTX ISA, "cp.async.bulk").

namespace qpn::detail::sm90 {

struct device_lane : sm80::device_lane {
  using sm80::device_lane::device_lane;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  // PTX ISA, "griddepcontrol".
  QPN_DEVICE void allow_next() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }
  QPN_DEVICE void wait_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
  }

  QPN_DEVICE void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  QPN_DEVICE void fill_stream(int offset, std::byte const* p, int bytes, int barrier) {
    if (thread() % warp_lanes != 0) return;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;"
        :
        : "r"(shared_address(offset)), "l"(p), "r"(bytes), "r"(shared_address(barrier)),
          "l"(evict_first)
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
#endif
};

}  // namespace qpn::detail::sm90
