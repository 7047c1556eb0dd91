// SPDX-License-Identifier: Apache-2.0
#include "round_constants.hpp"

namespace qpn::bench::v100 {

std::span<constant const> round_constants() {
  static constexpr constant all[] = {
      boundary_us,     graph_gap_us,   peer_gb_s,   all_reduce_us, all_reduce_bytes,
      all_reduce_hops, attention_busy, sine_cycles, silu_cycles,   turn_us};
  return all;
}

}  // namespace qpn::bench::v100
