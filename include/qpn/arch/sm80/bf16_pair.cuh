// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/config.hpp"

namespace qpn::detail::sm80 {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
/// Two bf16 products, rounded to nearest even; subnormals are kept (PTX ISA, "Half precision
/// floating point instructions: fma"; mul.bf16x2 came with sm_90). -0 added keeps the sign of 0.
[[nodiscard]] QPN_DEVICE std::uint32_t multiply_bf16_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}
#endif

}  // namespace qpn::detail::sm80
