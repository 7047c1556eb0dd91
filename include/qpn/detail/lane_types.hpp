// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Kernel bodies are lane programs: function templates over a Lane, an object that stands for one
// thread of the GPU. arch/sm70/lane.cuh binds its operations to PTX; the tests bind the same
// source to an emulator that runs on a CPU. The operations, with p in global memory:
//
//   int thread()            index in the CTA
//   int block()             index of the CTA
//   int row_block()         which rows of x the CTA has, where several CTAs have one index
//   load_stream(p)          2, 4 or 16 bytes that the grid reads once: weights
//   load(p), store(p, v)    2 to 16 bytes
//   load_volatile(p)        not from L1: what other CTAs wrote
//   shared_load<T>(offset), shared_store(offset, v)       shared memory of the CTA
//   load_together(p)        4 or 16 bytes that warps of a CTA read at the same step: by way of L1
//   load_words(p)           16 bytes, not moved by the compiler
//   sync_warp()             orders shared memory between the lanes of a warp
//   sync_pair()             the same between those of warps 2 i and 2 i + 1 of the CTA
//   sync_block()            orders shared and global memory between the threads of a CTA
//   fence_device()          lets other CTAs see this thread's stores before its next atomic
//   atomic_add, atomic_max  return the old value
//   shuffle_xor(v, mask)    v of lane ^ mask
//   any(condition)          whether it holds in some lane of the warp
//   mma_m8n8k4(d, a, b)     d += a b in the fragments of detail/quadpair_map.hpp
//   mma_m16n8k16(d, a, b)   d += a b in the fragments of detail/mma16_map.hpp; sm_80 and newer
//   mma_m16n8k16_bf16(d, a, b)                            the same for bf16 pairs
//   multiply_half2(a, b), broadcast_low(a), broadcast_high(a), convert_half2(low, high)
//   multiply_bf16x2(a, b)                                 a pair of bf16; sm_80 and newer
//   widen_low(pair), widen_high(pair)                     a half of a half2 in fp32
//   fma(a, b, c)                                          a b + c, rounded once
//   byte_permute(a, b, selector), exp(x), keep(value): the value, in a register
//   allow_next()            lets the stream's next kernel start, if it was launched to overlap
//   wait_previous()         until the stream's kernels before have ended; sm_90 and newer
//
// sync_warp, shuffle_xor, any and mma_m8n8k4 want all lanes of the warp, sync_pair those of two
// warps, sync_block the whole CTA.

namespace qpn::detail {

/// What one lane loads or stores at once.
struct alignas(16) word4 {
  std::uint32_t w[4];
};
struct alignas(8) word2 {
  std::uint32_t w[2];
};

struct alignas(8) float2_pair {
  float low;
  float high;
};

}  // namespace qpn::detail
