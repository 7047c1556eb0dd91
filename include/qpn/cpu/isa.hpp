// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace qpn::cpu {

/// Instruction sets that cpu::gemm is written for. Results are the same bits on all of them.
enum class isa : std::uint8_t {
  automatic,  ///< the best one that this machine has
  scalar,     ///< plain C++
  avx2,       ///< x86-64 with AVX2, FMA and F16C
};

[[nodiscard]] constexpr char const* to_string(isa set) noexcept {
  switch (set) {
    case isa::automatic: return "automatic";
    case isa::scalar: return "scalar";
    case isa::avx2: return "avx2";
  }
  return "unknown isa";
}

/// The best instruction set of this machine; asked for once per process, since cpuid traps in
/// virtual machines.
[[nodiscard]] inline isa best_isa() noexcept {
#if defined(__x86_64__)
  static isa const best = [] {
    unsigned int eax = 0;
    unsigned int ebx = 0;
    unsigned int ecx = 0;
    unsigned int edx = 0;
    // __builtin_cpu_supports also asks whether the system saves the wide registers; F16C is not in
    // its list everywhere.
    __builtin_cpu_init();
    bool const has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1u) != 0;
    bool const has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    return has_f16c && has_avx2 ? isa::avx2 : isa::scalar;
  }();
  return best;
#else
  return isa::scalar;
#endif
}

}  // namespace qpn::cpu
