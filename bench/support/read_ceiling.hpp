// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/machine.hpp"

namespace qpn::bench {

/// `copies` pieces of memory, `stride` bytes apart and `bytes` long, that launches take turns with.
struct rotated_memory {
  std::byte const* data = nullptr;
  std::size_t bytes = 0;   ///< a multiple of 16
  std::size_t stride = 0;  ///< a multiple of 16
  std::int64_t copies = 0;
};

/// Microseconds of a launch of the read kernel over one piece: the median of `replays` replays of a
/// graph of `launches` or more.
[[nodiscard]] double read_us(rotated_memory const& memory, std::int64_t launches,
                             std::int64_t replays, machine const& gpu);

/// The same over random bytes, as many as make rotation_bytes.
[[nodiscard]] double read_us(std::size_t bytes, std::int64_t launches, std::int64_t replays,
                             machine const& gpu);

}  // namespace qpn::bench
