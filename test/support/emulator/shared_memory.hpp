// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/emulator/moment.hpp"
#include "support/emulator/report.hpp"

namespace qpn::test {

/// The shared memory of a CTA, with notes for each byte of who touched it last. Finds accesses that
/// are out of bounds or not at a multiple of their size, bytes that were never written, and races:
/// two threads touch a byte, one of them writes, and neither a sync_block nor, within a pair of
/// warps, a sync_pair nor, within a warp, a sync_warp lies between. Collectives other than these
/// order nothing.
class shared_memory {
 public:
  shared_memory(int bytes, emulation_report& report);

  /// Copies `size` bytes out; they are zero where the access is no good.
  void load(lane_moment const& at, int offset, void* value, int size);

  /// Copies `size` bytes in; the store is left out where the access is no good.
  void store(lane_moment const& at, int offset, void const* value, int size);

 private:
  struct note {
    std::uint32_t written = 0;  ///< Time of the last store; 0: never.
    std::uint32_t read = 0;     ///< Time of the last load; 0: never.
    std::int16_t writer = 0;
    std::int16_t reader = 0;       ///< The last one.
    bool several_readers = false;  ///< Of one warp, since its last barrier.
    bool several_warps = false;    ///< Of one pair, since its last barrier.
    bool several_pairs = false;    ///< Have read, since the last sync_block.
  };

  [[nodiscard]] bool usable(lane_moment const& at, char const* what, int offset, int size);
  void report_race(lane_moment const& at, char const* does, int offset, char const* did, int other);

  emulation_report& report_;
  std::vector<std::byte> bytes_;
  std::vector<note> notes_;
};

}  // namespace qpn::test
