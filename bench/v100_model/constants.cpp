// SPDX-License-Identifier: Apache-2.0
#include "constants.hpp"

namespace qpn::bench::v100 {

std::span<constant const> published_constants() {
  static constexpr constant all[] = {
      sm_count,    clock_ghz,      read_gb_s,        l2_gb_s,        schedulers, pipe_cycles,
      xu_cycles,   hmma_cycles,    wavefront_cycles, shared_latency, l2_latency, load_latency,
      add_latency, barrier_cycles, prologue_cycles,  decode_nvfp4,   decode_fp8, fma_share,
      stall_ratio, registers_mt1,  registers_mt2};
  return all;
}

}  // namespace qpn::bench::v100
