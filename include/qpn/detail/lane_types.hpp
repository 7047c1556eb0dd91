// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Kernel bodies are lane programs: function templates over a Lane, an object that stands for one
// thread of the GPU. arch/sm70/lane.cuh binds its operations to PTX; the tests bind the same
// source to an emulator that runs on a CPU. The operations, with p in global memory:
//
//   int thread()            index in the CTA              int block()   index of the CTA
//   load_stream(p)          4 or 16 bytes that the grid reads once: weights
//   load(p), store(p, v)    2 to 16 bytes
//   load_volatile(p)        not from L1: what other CTAs wrote
//   shared_load<T>(offset), shared_store(offset, v)       shared memory of the CTA
//   sync_warp()             orders shared memory between the lanes of a warp
//   sync_block()            orders shared and global memory between the threads of a CTA
//   fence_device()          lets other CTAs see this thread's stores before its next atomic
//   atomic_add, atomic_max  return the old value
//   shuffle_xor(v, mask)    v of lane ^ mask
//   mma_m8n8k4(d, a, b)     d += a b in the fragments of detail/quadpair_map.hpp
//   mma_m16n8k16(d, a, b)   d += a b in the fragments of detail/mma16_map.hpp; sm_80 and newer
//   barrier_init(barrier, arrivals), publish_barriers()   barriers of 8 bytes in shared memory, by
//   barrier_arrive(barrier), barrier_wait(barrier, parity)  their offset; sm_80 and newer, as are:
//   copy(offset, p)         16 bytes of global memory to shared memory, later
//   copies_arrive(barrier)  arrives once the thread's copies so far are there
//   fill_stream(offset, p, bytes, barrier)                by a warp: copies what the grid reads
//   once,
//                           and arrives once, when all is there
//   allow_next(), wait_previous()                         the stream's next kernel may begin; the
//                           last one has ended. sm_90, elsewhere nothing
//   multiply_half2(a, b), broadcast_low(a), broadcast_high(a), convert_half2(low, high)
//   byte_permute(a, b, selector), exp(x), keep(value): the value, in a register
//   multiply_add(a, b, c)   a * b + c, rounded once
//
// sync_warp, shuffle_xor and mma_* want all lanes of the warp, sync_block the whole CTA.

namespace qpn::detail {

/// What one lane loads or stores at once.
struct alignas(16) word4 {
  std::uint32_t w[4];
};

/// x of one row and lane for `Steps` instructions m16n8k16.
template <int Steps>
struct alignas(8 * Steps) x_fragment {
  std::uint32_t w[2 * Steps];
};

struct alignas(8) float2_pair {
  float low;
  float high;
};

}  // namespace qpn::detail
