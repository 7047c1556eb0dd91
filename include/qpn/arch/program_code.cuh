// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

#include "qpn/config.hpp"
#include "qpn/detail/launch.cuh"
#include "qpn/detail/program_code.hpp"
#include "qpn/status.hpp"

namespace qpn::detail {

/// Whether this compilation of device code may use the instructions of sm_90a. __CUDA_ARCH__ and
/// what the runtime tells of a kernel are the same with and without the a.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool compiled_for_sm90a = true;
#else
inline constexpr bool compiled_for_sm90a = false;
#endif

inline constexpr int probe_threads = 64;

/// Never launched: its attributes tell for what the code beside it was compiled.
QPN_KERNEL __launch_bounds__(compiled_for_sm90a ? probe_threads
                                                : probe_threads / 2) void program_code_kernel() {}

/// What the current device runs of this translation unit. Asks the driver once for each device; may
/// be called while a stream is captured.
/// @return not_compiled_for_arch: no code at all; launch_failed with the CUDA error
[[nodiscard]] static inline status ask_program_code(program_code& out) noexcept {
  constexpr int most_devices = 64;                // devices beyond are asked every time
  static std::atomic<int> answers[most_devices];  // 0: none yet; 2 * arch + sm90a
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  int answer = 0;
  if (error == cudaSuccess) {
    if (device < most_devices) answer = answers[device].load(std::memory_order_relaxed);
    if (answer == 0) {
      cudaFuncAttributes attributes{};
      error =
          cudaFuncGetAttributes(&attributes, reinterpret_cast<void const*>(&program_code_kernel));
      answer = 2 * attributes.ptxVersion + (attributes.maxThreadsPerBlock == probe_threads ? 1 : 0);
    }
  }
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
    return launch_outcome(error, "gemm: the device cannot be asked what code it runs",
                          "gemm: this program was not compiled for the device's architecture");
  }
  if (device < most_devices) answers[device].store(answer, std::memory_order_relaxed);
  out = {answer / 2, answer % 2 != 0};
  return {};
}

}  // namespace qpn::detail
