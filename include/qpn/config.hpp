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
