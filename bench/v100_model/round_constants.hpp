// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "constants.hpp"

// What the model of a round takes as given beside constants.hpp, each with its source.

namespace qpn::bench::v100 {

inline constexpr constant boundary_us{
    "ramp, drain and gap of a launch that is no product", 2, "us",
    "others' estimate for a kernel in a graph on a V100, quoted from memory; products have the "
    "fitted ramp and drain instead"};
inline constexpr constant graph_gap_us{
    "of it, and of a product's ramp and drain: gap between kernels of a graph", 0.5, "us",
    "NVIDIA's introduction to CUDA graphs, V100: 3.4 us a kernel of 2.9 us; quoted from memory"};
inline constexpr constant peer_gb_s{
    "NVLink between two of four V100-SXM2, one direction", 47.9, "GB/s",
    "Dell, p2pBandwidthLatencyTest on a C4130 with two links a pair: 47.88 to 47.93, measured"};
inline constexpr constant all_reduce_us{
    "one-shot all-reduce of 51,200 bytes over four V100", 11.6, "us",
    "1Cat-vLLM, in a graph, measured; the hop below is solved from it"};
inline constexpr constant all_reduce_bytes{"its bytes from each rank to each other one", 51200,
                                           "bytes", "5 rows of 5120 fp16"};
inline constexpr constant all_reduce_hops{
    "its steps over NVLink one after the other", 4, "",
    "a flag, a load and its answer, a flag: its published description"};
inline constexpr constant attention_busy{
    "attention in fp32: part of the time that the FMA pipe is busy", 0.7, "",
    "assumed: barriers, and shared memory beside it"};
inline constexpr constant sine_cycles{"sine and cosine of an angle in double", 300, "cycles",
                                      "assumed: about 100 instructions"};
inline constexpr constant silu_cycles{
    "gdn_short: convolution and silu of a warp's channels of a row", 80, "cycles",
    "assumed: about 40 instructions"};
inline constexpr constant turn_us{
    "the host between two rounds: ids read, text, passes set, a graph launched", 100, "us",
    "assumed; the predecessor's rounds have 1190 us between them"};

/// All of them, in the order of the page.
[[nodiscard]] std::span<constant const> round_constants();

/// Microseconds from a store until another rank sees it; skew between the ranks is in it.
[[nodiscard]] constexpr double hop_us() noexcept {
  double const l2_trips = 2;  // what it sends, and what it stores
  double const sent = all_reduce_bytes.value / peer_gb_s.value * 1e-3;
  double const local = boundary_us.value + l2_trips * microseconds(l2_latency.value);
  return (all_reduce_us.value - local - sent) / all_reduce_hops.value;
}

}  // namespace qpn::bench::v100
