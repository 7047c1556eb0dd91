// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only header of qpn that defines helper macros. Everything here is host-safe.

#if defined(_MSVC_LANG) ? _MSVC_LANG < 201703L : __cplusplus < 201703L
#error "qpn needs C++17 or newer: compile with -std=c++17"
#endif

/// Marks a function that both host and device code may call; empty without nvcc.
#if defined(__CUDACC__)
#define QPN_HD __host__ __device__
#else
#define QPN_HD
#endif

/// Before a loop of a lane program: registers can only be indexed by constants, or loops must stay
/// small.
#if defined(__CUDA_ARCH__)
#define QPN_UNROLL _Pragma("unroll")
#define QPN_NO_UNROLL _Pragma("unroll 1")
#define QPN_UNROLL_BY_4 _Pragma("unroll 4")
#else
#define QPN_UNROLL
#define QPN_NO_UNROLL
#define QPN_UNROLL_BY_4
#endif

/// fp32 a * b and a + b, rounded each on its own: nvcc fuses the operators. Before sm_80 the
/// kernels whose bits must agree have one epilogue, and these would make it spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define QPN_ROUNDED_PRODUCT(a, b) __fmul_rn(a, b)
#define QPN_ROUNDED_SUM(a, b) __fadd_rn(a, b)
#else
#define QPN_ROUNDED_PRODUCT(a, b) ((a) * (b))
#define QPN_ROUNDED_SUM(a, b) ((a) + (b))
#endif

#if defined(__CUDACC__)
/// A function of device code alone.
#define QPN_DEVICE __device__ __forceinline__
/// A kernel. Internal linkage: translation units that are compiled for different architectures then
/// never share one.
#define QPN_KERNEL static __global__
#endif
