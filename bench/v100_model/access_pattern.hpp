// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "qpn/detail/quadpair_map.hpp"

// What one load or store of a warp costs in L1 and shared memory. Both take a warp in phases of at
// most 128 bytes: 8 lanes with 16 bytes each, 16 with 8, or all 32.

namespace qpn::bench::v100 {

/// One instruction of a warp. Lanes that are switched off have no address.
struct warp_access {
  enum class kind : std::uint8_t { stream_load, load, shared_load, shared_store };

  static constexpr std::uint64_t off = UINT64_MAX;

  kind what = kind::load;
  int bytes = 4;                                          ///< of a lane
  std::array<std::uint64_t, detail::warp_lanes> address;  ///< byte address, or off

  warp_access() { address.fill(off); }
};

struct access_cost {
  int wavefronts = 0;  ///< cycles of the data path
  int conflicts = 0;   ///< wavefronts beyond one a phase; of shared memory only
  int sectors = 0;     ///< of 32 bytes that global memory sends
};

/// Global memory: a wavefront for each 128-byte line of each phase.
[[nodiscard]] access_cost global_cost(warp_access const& access);

/// Shared memory: as many wavefronts a phase as the busiest of 32 banks has different words.
[[nodiscard]] access_cost shared_cost(warp_access const& access);

}  // namespace qpn::bench::v100
