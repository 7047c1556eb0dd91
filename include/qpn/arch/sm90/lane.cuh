// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/arch/sm80/lane.cuh"
#include "qpn/config.hpp"

// The lane operations of detail/lane_types.hpp that sm_90 adds (PTX ISA, "griddepcontrol").

namespace qpn::detail::sm90 {

struct device_lane : sm80::device_lane {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  QPN_DEVICE void allow_next() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }
  QPN_DEVICE void wait_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
  }
#endif
};

}  // namespace qpn::detail::sm90
