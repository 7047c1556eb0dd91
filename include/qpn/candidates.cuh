// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "qpn/arch/sm70/lane.cuh"
#include "qpn/candidates.hpp"
#include "qpn/config.hpp"
#include "qpn/detail/launch.cuh"
#include "qpn/status.hpp"

namespace qpn {

namespace detail {

QPN_KERNEL __launch_bounds__(merge_candidates_threads) void merge_candidates_kernel(
    merge_candidates_args const args) {
  sm70::device_lane lane{nullptr};
  merge_candidates_program(lane, args);
}

}  // namespace detail

/// merge_candidates on a GPU: the same bits. Stream-ordered; allocates and synchronises nothing;
/// can be captured in a graph; pointers are to memory that the device can reach.
/// @return ok with nothing launched where m is 0; as merge_candidates on the host; also
///         not_compiled_for_arch, launch_failed
[[nodiscard]] static inline status merge_candidates(merge_candidates_args const& args,
                                                    cudaStream_t stream) noexcept {
  status const checked = detail::check_merge_candidates(args);
  if (!checked.ok() || args.m == 0) return checked;
  std::int64_t const blocks =
      (detail::merge_entries(args) - 1) / detail::merge_candidates_threads + 1;
  return detail::launch_outcome(
      detail::launch(&detail::merge_candidates_kernel, static_cast<unsigned>(blocks),
                     detail::merge_candidates_threads, 0, stream, args),
      "merge_candidates: the launch failed",
      "merge_candidates: this program was not compiled for the device's architecture");
}

}  // namespace qpn
